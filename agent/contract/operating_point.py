"""An operating point: the power mode and the highest clocks that a board was set to for a run."""

import msgspec

from edgemeter.agent.base.figures import plain_digits, significant

SETTINGS = ("power_mode", "governor", "cpu_max_hz", "gpu_max_hz", "memory_max_hz")


class OperatingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a board; null is what the board had before."""

    power_mode: str | None = None  # Name of the power mode (nvpmodel).
    governor: str | None = None  # CPU governor.
    cpu_max_hz: float | None = None  # Highest CPU clock in Hz.
    gpu_max_hz: float | None = None  # Highest GPU clock in Hz.
    memory_max_hz: float | None = None  # Highest memory clock in Hz.

    @property
    def words(self) -> str:
        """The same in words: `15W, governor schedutil, CPU at most 1.5 GHz`; empty where nothing is set."""
        clocks = (("CPU", self.cpu_max_hz), ("GPU", self.gpu_max_hz), ("memory", self.memory_max_hz))
        parts = [self.power_mode or "", f"governor {self.governor}" if self.governor else ""]
        parts += [f"{name} at most {_ghz(hz)} GHz" for name, hz in clocks if hz is not None]
        return ", ".join(filter(None, parts))


def _ghz(hz: float) -> str:
    """Return a clock with all of its digits, three at the least: clocks of boards differ in the fourth."""
    rounded = significant(hz / 1e9)
    return rounded if float(rounded.replace(",", "")) == hz / 1e9 else plain_digits(hz / 1e9, 10)
