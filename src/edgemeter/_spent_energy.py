"""`edgemeter.energy`: the energy of a block of code."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from edgemeter.agent.base import config
from edgemeter.agent.measuring.settings import SessionSettings
from edgemeter.agent.session.energy_watch import EnergyWatch

logger = logging.getLogger(__name__)


class SpentEnergy:
    """The energy of a block in joules, set when the block has ended.

    A figure that the readings do not support is None.

    `joules` is the energy at the sensor, `net_joules` the part above idle power. `*_low` and
    `*_high` are their 95% bounds, None where a part of the uncertainty is unknown. `scope` says
    what part of the machine the sensor sees, `excludes` what it does not see. `reason`,
    `net_reason` and `bounds_reason` say why a figure is None. `doubts` lists disturbances, such as
    another job at the same time.
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
    bounds_reason: str | None = None
    net_reason: str | None = None
    doubts: tuple[str, ...] = ()
    reason: str | None = "the block has not ended"

    def __str__(self) -> str:
        if self.joules is None:
            return f"no energy: {self.reason}"
        bounds = (
            f" (no interval: {self.bounds_reason})"
            if self.joules_low is None
            else f" (95% {self.joules_low:.4g} to {self.joules_high:.4g} J)"
        )
        return f"{self.joules:.4g} J{bounds}, {self.sensor}, {self.scope}"

    def __repr__(self) -> str:
        return f"<SpentEnergy: {self}>"


@contextmanager
def energy(power: str | None = None, *, idle_s: float | None = None) -> Iterator[SpentEnergy]:
    """Measure the energy of a block of code.

    The machine idles before and after the block, because net energy is the energy above idle.

    Args:
        power: power sensors by name (`NAME[,NAME]`). Default: the sensor with the widest scope.
        idle_s: seconds of idle before and after. Default: 10 s, or longer if a slow sensor needs
            it. 0: no idle, and no net energy.

    Raises:
        UnavailableError: there is no power sensor, or not the named one.
        ConfigError: a sensor's settings are wrong.

    Example:
        import edgemeter

        with edgemeter.energy() as spent:
            sum(number * number for number in range(50_000_000))
        print(spent)
        print(spent.joules, spent.net_joules)
    """
    spent = SpentEnergy()
    session = SessionSettings.of_environment(power=power)
    configuration = config.read(session.config)
    with EnergyWatch(
        session.power, idle_s=idle_s, settings=configuration, report=logger.info
    ) as watch:
        yield spent
    spent.seconds, spent.reason = watch.seen.seconds, watch.seen.energies.reason
    spent.doubts = watch.seen.other_load.doubts
    for doubt in spent.doubts:
        logger.warning("%s: measure again when the machine is quiet", doubt)
    if (measured := watch.seen.energies.energy) is None:
        return
    for name in ("mean_power_w", "sensor", "scope", "excludes"):
        setattr(spent, name, getattr(measured, name))
    spent.bounds_reason = measured.interval_reason
    spent.net_reason = measured.why_no_net(watch.seen.idle_s, "idle_s =")
    spent.joules, spent.joules_low, spent.joules_high = _with_bounds(
        measured.gross_mj, measured.gross_u_mj
    )
    if measured.net_state == "resolved" and measured.net_mj is not None:
        spent.net_joules, spent.net_joules_low, spent.net_joules_high = _with_bounds(
            measured.net_mj, measured.net_u_mj
        )


def _with_bounds(energy_mj: float, u_mj: float | None) -> tuple[float, float | None, float | None]:
    return energy_mj / 1000, *(
        (None, None) if u_mj is None else ((energy_mj - u_mj) / 1000, (energy_mj + u_mj) / 1000)
    )
