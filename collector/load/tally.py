"""The records that simulated devices send, and the result: how many were sent and receipted, and the time from due to receipt.

One record, of a run that was replayed once (`record.json`), is renumbered for each device: no run is started.
"""

import secrets
import threading
import time
import uuid
from array import array
from dataclasses import dataclass, field
from importlib.resources import files

import msgspec
import numpy as np

from edgemeter.agent.contract.record import RunRecord, decode, encode

_MARKS = ("\ufdd0id\ufdd0", "\ufdd0device\ufdd0", "\ufdd0fleet\ufdd0", 2**52 + 1, 2**52 + 2, 2**52 + 3)


@dataclass(frozen=True, slots=True)
class RecordNumber:
    """The identity of a record: the device's session, its number there, and when it was due."""

    session: int
    seq: int
    started_at_ns: int


class RecordTemplate:
    """A record to copy: `record` as an object for an outbox, `payload` as text, which costs microseconds."""

    def __init__(self, measured: RunRecord) -> None:
        self._measured = measured
        self._texts = _cut(measured)

    def record(self, device: str, fleet: str, started_at_ns: int) -> RunRecord:
        """Return a copy with its own id."""
        return msgspec.structs.replace(self._measured, id=uuid.uuid4().hex, device=device, fleet=fleet, started_at_ns=started_at_ns)

    def payload(self, device: str, fleet: str, number: RecordNumber) -> bytes:
        """Return a copy as JSON, always the same for the same number, so that a repeat is the same record."""
        run_id = uuid.UUID(int=number.session << 64 | number.seq).hex
        values = (run_id, device, fleet, str(number.session), str(number.seq), str(number.started_at_ns))
        pieces = [self._texts[0]]
        for value, text in zip(values, self._texts[1:], strict=True):
            pieces += (value.encode(), text)
        return b"".join(pieces)


def recorded_template() -> RecordTemplate:
    """Return the template that is part of the product."""
    return RecordTemplate(decode(files(__package__).joinpath("record.json").read_bytes()))


def _cut(measured: RunRecord) -> list[bytes]:
    """Return the texts around the six values that differ, in the order of the record's fields."""
    run_id, device, fleet, session, seq, started = _MARKS
    marked = msgspec.structs.replace(
        measured, id=run_id, device=device, fleet=fleet, session=session, seq=seq, started_at_ns=started, case="load"
    )
    remainder = encode(marked)
    texts = []
    for mark in _MARKS:
        text, _, remainder = remainder.partition(str(mark).encode())
        texts.append(text)
    return [*texts, remainder]


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The load: `records` in total, `rate_per_s` over all devices, `patience_s` for receipts after the last one.

    `name` begins the names of devices and fleets: two load generators of one name at one broker would throw each other out.
    """

    devices: int
    rate_per_s: float
    records: int
    patience_s: float
    name: str = field(default_factory=lambda: f"load-{secrets.token_hex(3)}")

    def device(self, number: int) -> str:
        """Return the name of the device of that number, from 0."""
        return f"{self.name}-{number:05d}"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result. Latency is from the time a record was due to its receipt, whatever delayed it; None: no receipt arrived."""

    devices: int
    connections: int
    mode: str
    rate_per_s: float
    sent: int
    receipted: int
    missing: int
    resent: int
    seconds: float
    records_per_s: float
    record_bytes: int
    latency_p50_ms: float | None
    latency_p90_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None


class LoadTally:
    """Counts from any thread. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latencies_s = array("d")
        self._began_s = time.monotonic()
        self._last_s = self._began_s
        self.sent = 0

    def begin(self) -> None:
        """Start the clock: every device is connected."""
        self._began_s = self._last_s = time.monotonic()

    def was_sent(self) -> None:
        """Count a record handed to the client."""
        with self._lock:
            self.sent += 1

    def was_receipted(self, due_s: float) -> None:
        """Count a record whose receipt arrived now."""
        now_s = time.monotonic()
        with self._lock:
            self._latencies_s.append(now_s - due_s)
            self._last_s = now_s

    @property
    def receipted(self) -> int:
        """How many receipts arrived."""
        return len(self._latencies_s)

    def result(self, plan: LoadPlan, mode: str, connections: int, resent: int, record_bytes: int) -> LoadResult:
        """Return the result so far."""
        with self._lock:
            latencies_ms = np.array(self._latencies_s) * 1000
            seconds = self._last_s - self._began_s
        p50, p90, p99, highest = np.percentile(latencies_ms, [50, 90, 99, 100]).tolist() if latencies_ms.size else [None] * 4
        return LoadResult(
            devices=plan.devices,
            connections=connections,
            mode=mode,
            rate_per_s=plan.rate_per_s,
            sent=self.sent,
            receipted=latencies_ms.size,
            missing=self.sent - latencies_ms.size,
            resent=resent,
            seconds=seconds,
            records_per_s=latencies_ms.size / seconds if seconds else 0.0,
            record_bytes=record_bytes,
            latency_p50_ms=p50,
            latency_p90_ms=p90,
            latency_p99_ms=p99,
            latency_max_ms=highest,
        )
