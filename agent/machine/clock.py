"""Whether the wall clock can be trusted. Timestamps of records depend on it, durations do not."""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

# The kernel starts with this error bound, and increases it from each correction on.
# Source: NTP_PHASE_LIMIT in Linux include/linux/timex.h; systemd's ntp_synced() uses the same
# limit.
UNSYNCHRONISED_MS = 16_000.0
# The offset is in nanoseconds when this bit of the status is set. Source: STA_NANO in adjtimex(2).
IN_NANOSECONDS = 0x2000


class _Timex(ctypes.Structure):
    """The first fields of the C library's struct timex, and room for the others.

    Source: adjtimex(2).
    """

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("max_error_us", ctypes.c_long),
        ("estimated_error_us", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),
    )


@dataclass(frozen=True, slots=True)
class KernelClock:
    """The state of the kernel's wall clock.

    It has the offset to correct, and the kernel's bound on the error.
    """

    offset_ms: float
    error_ms: float


def kernel_clock() -> KernelClock | None:
    """Return the state of the kernel's wall clock; None if the system call is not permitted."""
    timex = _Timex()
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    return KernelClock(
        offset_ms=timex.offset / (1e6 if timex.status & IN_NANOSECONDS else 1e3),
        error_ms=timex.max_error_us / 1e3,
    )


def kernel_clock_of(machine: Machine) -> KernelClock | None:
    """Return the state of the kernel's clock; None for a recorded machine."""
    return kernel_clock() if machine.root == THIS_MACHINE.root else None


def synchronised(
    machine: Machine = THIS_MACHINE,
    ask_kernel: Callable[[Machine], KernelClock | None] = kernel_clock_of,
) -> bool | None:
    """Return whether the wall clock is synchronised (NTP, chrony, PTP); None if unknown.

    If the kernel's state is unknown (in some sandboxes, and in recordings), systemd-timesyncd's
    mark shows it, but its absence does not.
    """
    state = ask_kernel(machine)
    if state is not None:
        return state.error_ms < UNSYNCHRONISED_MS
    return True if (machine.root / "run/systemd/timesync/synchronized").exists() else None


def wall_ns(monotonic_ns: int) -> int:
    """Return the time at a moment of the monotonic clock, UTC, ns.

    It is by the wall clock as it is set now. So a step of the wall clock since then, as on a board
    without a clock chip, does no harm.
    """
    return time.time_ns() - (time.monotonic_ns() - monotonic_ns)


def boot_id(machine: Machine = THIS_MACHINE) -> str | None:
    """Return the kernel's id of this boot; the monotonic clock counts from it."""
    return machine.line("proc/sys/kernel/random/boot_id")
