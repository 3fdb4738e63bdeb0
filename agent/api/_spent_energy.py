"""`edgemeter.energy`: the energy of a block of code."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from edgemeter._environment import config_file, unset_options
from edgemeter.agent.base import config
from edgemeter.agent.energy.watch import EnergyWatch

logger = logging.getLogger(__name__)


class SpentEnergy:
    """The energy of a block in joules; set when the block has ended. A figure that the readings do not support is None.

    `joules` is everything that the sensor saw, `net_joules` what is above idle power; `*_low` and `*_high` are their 95% bounds, None
    where a part of the uncertainty is unknown. `sensor` read it at `scope`, which leaves out `excludes`. `reason` is why there is none.
    """

    seconds: float | None = None
    joules: float | None = None
    joules_low: float | None = None
    joules_high: float | None = None
    net_joules: float | None = None
    net_joules_low: float | None = None
    net_joules_high: float | None = None
    mean_power_w: float | None = None
    sensor: str | None = None
    scope: str | None = None
    excludes: tuple[str, ...] = ()
    reason: str | None = "the block has not ended"

    def __str__(self) -> str:
        if self.joules is None:
            return f"no energy: {self.reason}"
        bounds = "" if self.joules_low is None else f" (95% {self.joules_low:.4g} to {self.joules_high:.4g} J)"
        return f"{self.joules:.4g} J{bounds}, {self.sensor}, {self.scope}"


@contextmanager
def energy(power: str | None = None, *, idle_s: float | None = None) -> Iterator[SpentEnergy]:
    """Measure the energy of a block of code: `with edgemeter.energy() as spent: ...`, then `spent.joules`.

    The machine idles before and after the block, because net energy needs idle power.

    Args:
        power: power sensors by name (`NAME[,NAME]`); without it the one of the widest scope.
        idle_s: seconds of idle before and after; without it 10 s, or what the slowest sensor needs. 0: no idle, and no net energy.

    Raises:
        UnavailableError: there is no power sensor, or not the one that was named.
        ConfigError: a sensor's settings are wrong.
    """
    spent = SpentEnergy()
    chosen = power or unset_options()["power"]
    with EnergyWatch(chosen, idle_s=idle_s, settings=config.read(config_file()), report=logger.info) as watch:
        yield spent
    _fill(spent, watch)


def _fill(spent: SpentEnergy, watch: EnergyWatch) -> None:
    spent.seconds = watch.seen.seconds
    found, spent.reason = watch.seen.energies.energy, watch.seen.energies.reason
    if found is None:
        return
    spent.joules, spent.joules_low, spent.joules_high = _with_bounds(found.gross_mj, found.gross_u_mj)
    if found.net_state == "resolved":
        spent.net_joules, spent.net_joules_low, spent.net_joules_high = _with_bounds(found.net_mj, found.net_u_mj)
    spent.mean_power_w, spent.sensor, spent.scope, spent.excludes = found.mean_power_w, found.sensor, found.scope, found.excludes


def _with_bounds(energy_mj: float | None, u_mj: float | None) -> tuple[float | None, float | None, float | None]:
    """Return an energy in J with its bounds."""
    if energy_mj is None:
        return None, None, None
    return energy_mj / 1000, *((None, None) if u_mj is None else ((energy_mj - u_mj) / 1000, (energy_mj + u_mj) / 1000))
