"""An energy that nobody measured: a power that the user states, times the time of an inference. It never ranks with measurements."""

from edgemeter.agent.energy.curve import NS_PER_MS
from edgemeter.agent.engine.job import Window
from edgemeter.agent.records import Energy

SENSOR = "estimate"


def energy(power_w: float, timed: Window, inferences: int) -> Energy:
    """Return the energy of an inference on a device that is said to draw `power_w` at its input; its uncertainty is not known."""
    window_ms = (timed.end_ns - timed.start_ns) / NS_PER_MS
    return Energy(
        sensor=SENSOR,
        scope="board-input",
        excludes=(),
        gross_mj=power_w * window_ms / max(1, inferences),
        gross_u_mj=None,
        net_mj=None,
        net_u_mj=None,
        net_state="no_idle",
        mean_power_w=power_w,
        idle_before_w=None,
        idle_after_w=None,
        inferences=inferences,
        window_ms=window_ms,
        samples=0,
        period_ms=0.0,
        resolution_w=None,
        longest_gap_ms=window_ms,
    )


def is_one(found: Energy) -> bool:
    """Say whether an energy is an estimate: of a power that was stated, or of a scope that was modelled from a narrower one."""
    return found.sensor == SENSOR or found.is_modelled
