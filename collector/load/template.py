"""What the simulated devices send: one record that the replay runtime measured on this machine, renumbered for each of them."""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent import records
from edgemeter.agent.errors import ConfigError, MeasurementError
from edgemeter.agent.records import RunRecord

MEASURE_S = 120.0
_RECORDING = {
    "format": "edgemeter-replay",
    "schema": 1,
    "latencies_ms": [2.0, 2.1, 2.5, 2.2],
    "inputs": [{"name": "x", "shape": [1, 2], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}],
}
_MARKS = ("\ufdd0id\ufdd0", "\ufdd0device\ufdd0", "\ufdd0fleet\ufdd0", 2**52 + 1, 2**52 + 2, 2**52 + 3)


@dataclass(frozen=True, slots=True)
class Number:
    """What tells a record from all others: the device's session, its place there, and when it was due."""

    session: int
    seq: int
    started_at_ns: int


class Template:
    """A record to copy: `record` as an object for an outbox, `payload` as text, which costs microseconds."""

    def __init__(self, measured: RunRecord) -> None:
        self._measured = measured
        self._texts = _cut(measured)

    def record(self, device: str, fleet: str, started_at_ns: int) -> RunRecord:
        """Return a copy with an id of its own."""
        return msgspec.structs.replace(self._measured, id=uuid.uuid4().hex, device=device, fleet=fleet, started_at_ns=started_at_ns)

    def payload(self, device: str, fleet: str, number: Number) -> bytes:
        """Return a copy as JSON, always the same for the same number: a repeat is the same record."""
        own = uuid.UUID(int=number.session << 64 | number.seq).hex
        values = (own, device, fleet, str(number.session), str(number.seq), str(number.started_at_ns))
        pieces = [self._texts[0]]
        for value, text in zip(values, self._texts[1:], strict=True):
            pieces += (value.encode(), text)
        return b"".join(pieces)


def measure() -> Template:
    """Return a template measured now, by `edgemeter run` in a process of its own (some 3 s).

    Raises:
        MeasurementError: the agent failed.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-load-") as folder:
        model = Path(folder) / "load.replay.json"
        model.write_text(json.dumps(_RECORDING))
        blank = Path(folder) / "config.toml"
        blank.touch()
        # Nothing that is set up for measuring on this machine may reach it: it would be published and take minutes.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EDGEMETER_")}
        environment["EDGEMETER_HOME"] = folder
        command = [sys.executable, "-m", "edgemeter.agent.cli", "run", "--model", str(model), "--config", str(blank), "--json"]
        options = ["--mode", "rapid", "--repeats", "1", "--power", "none", "--accuracy", "never", "--agreement", "never"]
        done = subprocess.run([*command, *options], capture_output=True, check=False, timeout=MEASURE_S, env=environment)
    try:
        (document,) = json.loads(done.stdout)["runs"]
        record = records.decode(json.dumps(document).encode())
    except (ValueError, KeyError, ConfigError) as error:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        message = f"`edgemeter run` measured nothing to send (status {done.returncode}): {said}"
        raise MeasurementError(message) from error
    # The copies carry the stamps of this machine; one that says its clock is wrong would be stamped by the collector, copy by copy.
    return Template(msgspec.structs.replace(record, clock_synchronised=None, session=None, seq=None))


def _cut(measured: RunRecord) -> list[bytes]:
    """Return the texts around the six values that differ, in the order of the record's fields."""
    own, device, fleet, session, seq, started = _MARKS
    marked = msgspec.structs.replace(
        measured, id=own, device=device, fleet=fleet, session=session, seq=seq, started_at_ns=started, case="load"
    )
    rest = records.encode(marked)
    texts = []
    for mark in _MARKS:
        text, _, rest = rest.partition(str(mark).encode())
        texts.append(text)
    return [*texts, rest]
