"""The demo on one machine: the shipped models measured by the real agent, delivered over a real broker, stored and compared."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgemeter.agent.base.errors import MeasurementError, TransientError, UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.receive.embedded_broker import EmbeddedBroker
from edgemeter.collector.receive.service import Collector
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.web import one_file
from edgemeter.collector.web.sources import DocumentSource

DEVICE = "this-machine"
READS = {"litert": (".tflite",), "onnx": (".onnx",), "pytorch": (".torchscript", ".pt", ".pt2")}
SETTLE_S = 30.0

Reporter = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What the demo measures: the suite's text, and what is left out because its runtime is not installed."""

    suite: str
    left_out: tuple[str, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class DeliveredRuns:
    """What arrived: where the ledger is, how many records it holds, how many were sent twice."""

    ledger: Path
    records: int
    duplicates: int


def run_demo(folder: Path, influx: InfluxConfig | None, report: Reporter) -> DeliveredRuns:
    """Measure, deliver and keep; `folder` takes the suite, the outbox and the ledger.

    Raises:
        UnavailableError: no runtime is installed, or the embedded broker is not.
        MeasurementError: the agent failed.
        TransientError: InfluxDB did not take everything in time.
    """
    plan = _plan(_findings())
    for note in plan.left_out:
        report(f"left out: {note}")
    folder.mkdir(parents=True, exist_ok=True)
    suite = folder / "demo.toml"
    suite.write_text(plan.suite)
    with ExitStack() as stack:
        broker = EmbeddedBroker()
        address = broker.start()
        stack.callback(broker.stop)
        collector = Collector(address, folder / "ledger.sqlite", influx)
        collector.start()
        stack.callback(collector.stop)
        report(f"broker and collector listen on {address}; measuring {plan.runs} runs, each in a process of its own ...")
        _measure(suite, str(address), folder)
        if not collector.settled(SETTLE_S):
            raise TransientError(
                f"not everything was passed on within {SETTLE_S:.0f} s: {collector.trouble() or 'the ledger is still busy'}"
            )
        with open_ledger(collector.place, "read") as ledger:
            held = ledger.last_row()
        return DeliveredRuns(folder / "ledger.sqlite", held, collector.counts.duplicates)


def _findings() -> list[dict[str, str]]:
    """Return what `edgemeter doctor` finds on this machine."""
    done = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli.main", "doctor", "--json"], capture_output=True, check=False, timeout=60
    )
    try:
        findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError) as error:
        raise MeasurementError(f"`edgemeter doctor` failed: {done.stderr.decode(errors='replace').strip()[-300:]}") from error
    return findings


def _plan(findings: Sequence[dict[str, str]]) -> DemoPlan:
    here = {one["name"]: one for one in findings}
    runtimes = [name for name in READS if here.get(name, {}).get("state") == "ok"]
    shipped = _shipped()
    if not runtimes:
        raise UnavailableError("no runtime is installed: `pip install 'edgemeter[litert,onnx]'`, then run the demo again")
    left_out = tuple(
        f"{path.name}: {here.get(name, {}).get('what', name)} ({here.get(name, {}).get('remedy') or 'install it'})"
        for path in shipped
        for name, suffixes in READS.items()
        if path.name.endswith(suffixes) and name not in runtimes
    )
    models = [path for path in shipped if any(path.name.endswith(READS[name]) for name in runtimes)]
    fp32 = next((path for path in models if "fp32" in path.name and path.suffix == ".onnx"), models[0])
    has_power = any(one["area"] == "power" and one["state"] == "ok" for one in findings)
    language = _language() if here.get("llama", {}).get("state") == "ok" else []
    suite = _suite(models, fp32, language, has_power=has_power)
    return DemoPlan(suite, left_out, (len(models) + 1 + len(language)) * (1 if has_power else 3))


def _suite(models: Sequence[Path], reference: Path, language: Sequence[Path], *, has_power: bool) -> str:
    scenes = models[0].parent.parent / "scenes"
    # A sensor supports an energy over 10 s and more only; without one, as many queries as a p99 needs.
    with_power, without = "seconds = 10.2\nidle_seconds = 2.0\nrepeats = 1", "seconds = 1.5\nrepeats = 3"
    length = f'mode = "rapid"\nqueries = 662\n{with_power if has_power else without}'
    return "\n".join(
        [
            "# Written by `edgemeter demo`; run it again with `edgemeter run demo.toml`.",
            'name = "demo"',
            "",
            "[defaults]",
            length,
            f"images = {json.dumps(str(scenes / 'images'))}",
            f"annotations = {json.dumps(str(scenes / 'annotations.json'))}",
            "",
            "[[case]]",
            f"model = {json.dumps([str(path) for path in models])}",
            "",
            "[[case]]",
            f"model = {json.dumps(str(reference))}",
            'role = "reference"',
            "",
            *(_generation(language) if language else ()),
        ]
    )


def _generation(language: Sequence[Path]) -> list[str]:
    """Return the lines of the case that generates text; its queries are many steps, so there are few."""
    models = f"model = {json.dumps([str(path) for path in language])}"
    return ["[[case]]", models, "prompt_tokens = 64", "output_tokens = 32", "queries = 64", ""]


def _language() -> list[Path]:
    """Return the shipped language model in 16 and in 4 bits."""
    return [path for place in _places() for path in sorted((place / "language").glob("*.gguf")) if path.stem.endswith(("f16", "q4_0"))]


def _places() -> list[Path]:
    """Return where the data of the package `models` is, whose code stays where it is."""
    found = find_spec("edgemeter.models")
    return [Path(place) for place in found.submodule_search_locations or ()] if found else []


def _shipped() -> list[Path]:
    """Return the model files that ship with a card."""
    files = [card.with_suffix("") for place in _places() for card in sorted((place / "shipped").glob("*.toml"))]
    if not files:
        raise UnavailableError("the shipped models are not here: install edgemeter from its wheel")
    return files


def _measure(suite: Path, address: str, folder: Path) -> None:
    """Run the agent; its progress goes to our standard error."""
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "run",
        str(suite),
        "--device",
        DEVICE,
        "--fleet",
        "demo",
        "--broker",
        address,
    ]
    agent = subprocess.Popen(
        [*command, "--no-save", "--json"], stdout=subprocess.DEVNULL, env={**os.environ, "EDGEMETER_HOME": str(folder)}
    )
    try:
        status = agent.wait()
    finally:
        if agent.poll() is None:
            agent.terminate()
            agent.wait()
    if status != 0:
        raise MeasurementError(f"`edgemeter run` ended with status {status}: see its message above")


def new_folder(home: Path) -> Path:
    """Return a folder of its own for this demo."""
    return home / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"


def write_demo_page(ledger: Path, path: Path) -> int:
    """Write the page of the ledger's runs and of a fleet simulated from one of them; return its size in bytes.

    Raises:
        ConfigError: the file cannot be written.
    """
    own = list(LedgerStore(ledger).contents(with_samples=True).runs)
    simulated = simulated_fleet.records_of(_template(own), end_ns=time.time_ns()) if own else ()
    return one_file.write_file_of(DocumentSource((*own, *simulated)), path, one_file.FileChoice())


def _template(own: list[RunRecord]) -> RunRecord:
    """Return the run that the fleet is made from: fp32 and scored, where there is one."""
    return max(own, key=lambda run: (run.precision == "fp32", run.accuracy is not None, run.verdict.state == "valid"))
