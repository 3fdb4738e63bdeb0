"""One sensor through a run: its measured windows, their minimum lengths, and the sensor's properties that its readings reveal."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy.accelerators import Link
from edgemeter.agent.energy.curve import CounterCurve, Curve, PowerCurve
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.renewal import Renewal, renewal_of, unseen_renewal
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.settling import Settling, settling_after
from edgemeter.agent.energy.window import Window
from edgemeter.agent.machine.power_range import ANY_MACHINE, PowerRange
from edgemeter.agent.power import Description

# Source: MLPerf Tiny (10 s); 50 periods keep the edges below 2% of the window.
SHORTEST_S = 10.0
FEWEST_PERIODS = 50
# Of a sensor that renews its value less often than it is read; the budget knows how few they are.
FEWEST_RENEWALS = 10
FEWEST_INFERENCES = 100
GAP_PERIODS = 3
LARGEST_GAP_RATIO = 0.05
FEWEST_IDLE_PERIODS = 10
IDLE_MARGIN_PERIODS = 2


def shortest_window_s(description: Description, inference_s: float = 0.0) -> float:
    """Return the shortest timed part that a sensor's energy is given for, where an inference takes so long."""
    return max(SHORTEST_S, FEWEST_PERIODS * description.period_ms / 1000, FEWEST_INFERENCES * inference_s)


def shortest_idle_s(description: Description) -> float:
    """Return the shortest idle stretch that gives an idle power, where the sensor shows what it measures without delay."""
    return (FEWEST_IDLE_PERIODS + 2 * IDLE_MARGIN_PERIODS) * description.period_ms / 1000


@dataclass(frozen=True, slots=True)
class EnergyRun:
    """When and what was measured: the timed part, the idle stretches, the inferences; `queries` where their times are known.

    `accelerator` is how the device that it runs on is attached, `attached` all that is, as in the environment.
    What is watched besides runs counts no inferences: then `inferences` is the number of work units, 1 for the whole.
    `draws` is what the machine can draw. `frames_per_s` is the fixed rate at which queries arrived, if one was.
    """

    timed: Window
    idle_before: Window | None
    idle_after: Window | None
    inferences: int
    queries: Queries | None = None
    accelerator: Link | None = None
    attached: Sequence[str] = ()
    counts_inferences: bool = True
    draws: PowerRange = ANY_MACHINE
    frames_per_s: float | None = None

    @property
    def long_queries(self) -> Queries | None:
        """Return the queries where each is many steps, of which only their own time counts: those of a language model, one by one."""
        return None if self.counts_inferences else self.queries


@dataclass(frozen=True, slots=True)
class SensorRun:
    """The readings of one sensor through a run, their curve, and the sensor's own clock where it has one."""

    trace: SensorTrace
    description: Description
    curve: Curve
    run: EnergyRun
    renewal: Renewal | None = None


def sensor_renewal(curve: PowerCurve, run: EnergyRun) -> Renewal | None:
    """Return the sensor's own clock, from the readings of the timed part; where these are too few, from those of idle too."""
    renewal = renewal_of(*curve.readings(run.timed), curve.spacing_ns, cycle_ns(run))
    if renewal is not None:
        return renewal
    stretches = [window for window in (run.idle_before, run.timed, run.idle_after) if window is not None]
    whole_run = Window(min(stretch.start_ns for stretch in stretches), max(stretch.end_ns for stretch in stretches))
    # Coarse values repeat while the machine idles and while it works, whatever the sensor's clock: without queries only fine ones count.
    renewal = renewal_of(*curve.readings(whole_run), curve.spacing_ns, None)
    if renewal is not None or run.queries is None:
        return renewal
    return unseen_renewal(*curve.readings(run.timed), curve.spacing_ns, run.queries)


def cycle_ns(run: EnergyRun) -> float | None:
    """Return the mean time from one query to the next; None where their times are unknown."""
    queries = run.queries
    return None if queries is None else float(queries.end_ns - queries.starts_ns[0]) / queries.starts_ns.size


def settling_of(case: SensorRun) -> Settling | None:
    """Return how the readings fall after the timed part, where there is an idle stretch whose readings show it."""
    after, curve = case.run.idle_after, case.curve
    if isinstance(curve, CounterCurve) or after is None or misses_readings(case, after):
        return None
    margin_ns = round(IDLE_MARGIN_PERIODS * case.description.period_ms * NS_PER_MS)
    idle = Window(after.start_ns, after.end_ns - margin_ns)
    if case.run.long_queries is None:
        return settling_after(curve, case.run.timed, idle)
    # A language model begins with a prefill and ends with a token: two levels, which a curve without the queries' rhythm does not have.
    return settling_after(PowerCurve(case.trace.readings, case.description), case.run.timed, idle, has_rise=False)


def quiet(case: SensorRun, window: Window, settles_s: float = 0.0) -> Window:
    """Return an idle stretch without its edges; its length may be negative."""
    # Beside its edges a line leads up to the power of the load, and a slow sensor still shows the load that has ended.
    margin_ns = IDLE_MARGIN_PERIODS * round(case.description.period_ms * NS_PER_MS)
    return Window(window.start_ns + max(margin_ns, round(settles_s * 1e9)), window.end_ns - margin_ns)


def needed_s(description: Description, run: EnergyRun, renewal: Renewal | None) -> float:
    """Return the shortest timed part that an energy is given for."""
    inference_s = seconds(run.timed) / max(run.inferences, 1) if run.counts_inferences else 0.0
    for_renewals_s = 0.0 if renewal is None else FEWEST_RENEWALS * renewal.interval_ns / 1e9
    return max(shortest_window_s(description, inference_s), for_renewals_s)


def gaps_ns(case: SensorRun, window: Window) -> tuple[float, float]:
    """Return the longest stretch without a reading within a window, and the sum of those that are too long."""
    return case.curve.gaps_ns(window, GAP_PERIODS * case.description.period_ms * NS_PER_MS)


def seconds(window: Window) -> float:
    """Return the length of a window."""
    return window.length_ns / 1e9


def misses_readings(case: SensorRun, window: Window) -> bool:
    """Return whether more readings are missing in a window than may be."""
    return gaps_ns(case, window)[1] > LARGEST_GAP_RATIO * window.length_ns
