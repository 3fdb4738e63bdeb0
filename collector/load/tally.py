"""What came of a load: how many were sent and receipted, and how long each took from being due to its receipt."""

import secrets
import threading
import time
from array import array
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for: `records` in all, `rate_per_s` over all devices, `patience_s` for receipts after the last one.

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
class Result:
    """What came of it. Latency is from the moment a record was due to its receipt, whatever held it up; null: no receipt came."""

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


class Tally:
    """Counts from any thread. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latencies_s = array("d")
        self._began_s = time.monotonic()
        self._last_s = self._began_s
        self.sent = 0

    def begin(self) -> None:
        """Count time from now: everybody is connected."""
        self._began_s = self._last_s = time.monotonic()

    def was_sent(self) -> None:
        """Count one that was handed to the client."""
        with self._lock:
            self.sent += 1

    def was_receipted(self, due_s: float) -> None:
        """Count one whose receipt came now."""
        now_s = time.monotonic()
        with self._lock:
            self._latencies_s.append(now_s - due_s)
            self._last_s = now_s

    @property
    def receipted(self) -> int:
        """How many receipts came."""
        return len(self._latencies_s)

    def result(self, plan: Plan, mode: str, connections: int, resent: int, record_bytes: int) -> Result:
        """Return what came of it so far."""
        with self._lock:
            latencies_ms = np.array(self._latencies_s) * 1000
            seconds = self._last_s - self._began_s
        p50, p90, p99, highest = np.percentile(latencies_ms, [50, 90, 99, 100]).tolist() if latencies_ms.size else [None] * 4
        return Result(
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
