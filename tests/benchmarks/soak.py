"""The collector's memory under 10,000 devices, once warm: the second half of a soak beside its first."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.comparison import Comparison, against
from tests.benchmarks.delivery import collecting
from tests.benchmarks.flood import Settings, send

RATE_PER_S = 3000
DEVICES = 10_000
# Until every device was seen several times, and what is looked at when there is time has been looked at once.
WARM_UP_S = 60.0
SOAK_S = float(os.environ.get("EDGEMETER_BENCH_SOAK_S") or 540)
RATIO = 1.1


def comparisons() -> Iterator[Comparison]:
    """Yield the largest memory of the second half beside that of the first."""
    rss_mb = soak(WARM_UP_S + SOAK_S)
    warm = rss_mb[int(len(rss_mb) * WARM_UP_S / (WARM_UP_S + SOAK_S)) :]
    half = len(warm) // 2
    early, late = max(warm[:half]), max(warm[half:])
    name = f"delivery: memory over {SOAK_S:.0f} s with {DEVICES:,} devices, once warm, second half beside first"
    yield against(name, "MB", late, ("first half", early), f"ratio <= {RATIO:g}", met=late <= RATIO * early)


def soak(seconds: float) -> list[float]:
    """Return the collector's resident memory in MB after each flood, until the time is over."""
    rss_mb: list[float] = []
    with collecting() as (broker, collector, _):
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < seconds:
            # Several floods, because one prepares all that it sends.
            send(Settings(broker.port, 2 * DEVICES, devices=DEVICES, rate_per_s=RATE_PER_S))
            rss_mb.append(_rss_mb(collector.pid))
            print(f"soak: {time.monotonic() - begun_s:.0f} s, {rss_mb[-1]:.1f} MB", file=sys.stderr)
    return rss_mb


def _rss_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
