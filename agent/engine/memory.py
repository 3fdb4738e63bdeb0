"""Resident memory of this process, as the kernel counts it."""

import resource
from pathlib import Path


def resident_mb(proc: str = "/proc") -> float:
    """Return the memory resident now, MB (1e6 bytes)."""
    return _status_mb("VmRSS", proc)


def peak_mb(proc: str = "/proc") -> float:
    """Return the highest resident memory so far, MB (1e6 bytes)."""
    return _status_mb("VmHWM", proc)


def _status_mb(field: str, proc: str) -> float:
    try:
        lines = (Path(proc) / "self/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    # Without a /proc the kernel's high-water mark is all there is; Linux counts it in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
