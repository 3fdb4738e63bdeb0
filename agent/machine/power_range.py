"""The power that a machine can draw at its input, at least and at most, by its board: what lies outside is no power but another unit.

The figures are bounds, not specifications. `highest_w` is what its supply or input can give, with all that may hang on it, `lowest_w` about
half of what it has been seen to draw idle, without a display. A factor of 10 in the shunt or of 1000 in the unit leaves them; HATs, drives
and accelerators do not. Source: ratings of the makers' supplies and power modes, as stated in each line of `board_limits.toml`.
"""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.machine.board_limits import BOARD_LIMITS

# What a supply draws at the wall, over what it gives. Source: the least efficiency of old linear adapters and of supplies at low load, 70%.
WALL_RATIO = 1.4
# A single reading may be of an inrush, or of a noisy sensor.
READING_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class PowerRange:
    """The power that a machine draws at its input, W, on average over seconds: our bounds, beyond the makers' ratings (`supply`)."""

    machine: str
    lowest_w: float
    highest_w: float
    supply: str
    words: tuple[str, ...] = ()  # In the model of a board, in small letters.

    def lowest_in(self, scope: Scope) -> float:
        """Return the least mean power of a running machine in that scope, W; 0 of parts, which may be off."""
        return self.lowest_w if scope in {"wall-ac", "board-input", "module"} else 0.0

    def highest_in(self, scope: Scope) -> float:
        """Return the largest mean power in that scope, W; an added graphics card has a supply of its own."""
        if scope == "gpu-board":
            return ANY_MACHINE.highest_w
        return self.highest_w * (WALL_RATIO if scope == "wall-ac" else 1)


# The most, a server of eight accelerators; the least, what a Pi Zero draws halted.
ANY_MACHINE = PowerRange("machine", 0.05, 25_000, "NVIDIA DGX H100 and B200: 10.2 and 14.3 kW")


class _PowerFile(msgspec.Struct):
    power: tuple[PowerRange, ...]


@lru_cache(maxsize=1)
def board_ranges() -> tuple[PowerRange, ...]:
    """Return the range of each board, in the order of the file, in which the first that fits a model counts."""
    return msgspec.toml.decode(BOARD_LIMITS.read_bytes(), type=_PowerFile).power
