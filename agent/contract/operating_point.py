"""An operating point: the power mode and the governor that a board was set to for a run."""

import msgspec

SETTINGS = ("power_mode", "governor")


class OperatingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a board; null is what the board had before."""

    power_mode: str | None = None  # Name of the power mode (nvpmodel).
    governor: str | None = None  # CPU governor.

    @property
    def words(self) -> str:
        """The same in words: `15W, governor schedutil`; empty where nothing is set."""
        return ", ".join(
            filter(None, (self.power_mode, f"governor {self.governor}" if self.governor else ""))
        )
