"""A sensor that hangs: it goes on with the last value that it showed while the machine idled."""

from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.window import Window

# Fewer equal readings may be chance where a sensor's step is coarse.
FEWEST_READINGS = 5


def is_frozen(trace: SensorTrace, timed: Window, idle_before: Window | None, idle_after: Window | None) -> bool:
    """Return whether a sensor of power repeated one value from the end of idle through all of the timed part; a counter never does."""
    before = _powers_w(trace, idle_before)[-FEWEST_READINGS:]
    # After a load a slow sensor still shows it for a while.
    idle = before or _powers_w(trace, idle_after)
    load = _powers_w(trace, timed)
    return min(len(idle), len(load)) >= FEWEST_READINGS and len({*idle, *load}) == 1


def _powers_w(trace: SensorTrace, window: Window | None) -> list[float]:
    if window is None:
        return []
    inside = [one.power_w for one in trace.readings if one.energy_mj is None and window.start_ns <= one.taken_ns <= window.end_ns]
    return [power_w for power_w in inside if power_w is not None]
