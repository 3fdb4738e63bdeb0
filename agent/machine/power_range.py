"""Bounds of the power at the input of a machine, by its board.

A value outside them has a wrong unit or shunt.

`highest_w` is the most that its supply or input can give, with all attached devices; `lowest_w` is
about half of its lowest known idle power, without a display. A factor of 10 in the shunt or of 1000
in the unit exceeds the bounds; HATs, drives and accelerators do not.
Source: ratings of the makers' supplies and power modes, in each line of `board_limits.toml`.
"""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.machine.board_limits import BOARD_LIMITS

# Power at the wall over power at the board. Source: the least efficiency of old linear adapters,
# and of supplies at low load, is 70%.
WALL_RATIO = 1.4
# Allowance for a single reading, because of inrush and noise.
READING_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class PowerRange:
    """Bounds of the mean power at the input of a machine over seconds, W.

    They are beyond the maker's rating (`supply`).
    """

    machine: str
    lowest_w: float
    highest_w: float
    supply: str
    words: tuple[str, ...] = ()  # Words in the model of a board, in lower case.

    def lowest_in(self, scope: Scope) -> float:
        """Return the least mean power of a running machine in that scope, W.

        0 for parts, which may be off.
        """
        return self.lowest_w if scope in {"wall-ac", "board-input", "module"} else 0.0

    def highest_in(self, scope: Scope) -> float:
        """Return the largest mean power in that scope, W.

        An added graphics card has a supply of its own.
        """
        if scope == "gpu-board":
            return ANY_MACHINE.highest_w
        return self.highest_w * (WALL_RATIO if scope == "wall-ac" else 1)


# The most is that of a server with eight accelerators, the least that of a halted Pi Zero.
ANY_MACHINE = PowerRange("machine", 0.05, 25_000, "NVIDIA DGX H100 and B200: 10.2 and 14.3 kW")


class _PowerFile(msgspec.Struct):
    power: tuple[PowerRange, ...]


@lru_cache(maxsize=1)
def board_ranges() -> tuple[PowerRange, ...]:
    """Return the ranges of boards in the order of the file; the first that fits a model counts."""
    return msgspec.toml.decode(BOARD_LIMITS.read_bytes(), type=_PowerFile).power
