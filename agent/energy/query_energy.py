"""Energy within the queries of a language model, or within parts of them: the readings there, and what a late sensor shows after a border.

What a sensor has not shown yet at a moment is, for any linear sensor, its mean delay times the level that it shows, if it has settled on
that level; for a first-order lag it is so at every moment. So the energy between two borders is that of the readings between them, plus
the delay times the level before the end, less the delay times the level before the beginning. Parts that follow one another add up.

Readings are pooled over all queries by their place within the part, so that a part of a few periods of the sensor has many.
Source: post-stratified mean, Cochran, Sampling Techniques, 3rd edition, section 5A.9; its variance by leaving out each query in turn
(jackknife), from how neighbouring queries differ (von Neumann), so that a slow drift is no scatter.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.energy import budget
from edgemeter.agent.energy.budget import UncertaintyTerm
from edgemeter.agent.energy.curve import CounterCurve, Curve, PowerCurve, mean_w
from edgemeter.agent.energy.queries import Array, Times
from edgemeter.agent.energy.sensor_run import SensorRun
from edgemeter.agent.energy.settling import Settling
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power.values import Averaging

FEWEST_PERIODS = 10
FEWEST_QUERIES = 5
# A sensor has settled on the level of a part that lasts for so many of its delays: a first-order lag is right at any moment, two in a row
# within 2%, a mean over a window has been there since the second.
FEWEST_DELAYS = 3.0
# Until then it counts whether it is late as a whole, or a mean over a window, where its readings do not show it.
UNSETTLED_DELAYS = 2.0
# Places within a part by which readings are pooled; the level before a border is that of the last ones.
PLACES = 10
LAST_PLACES = 2
# What ran between the queries is bounded, not measured, where that leaves so much of the energy open (k = 1) at most.
LARGEST_BETWEEN_RATIO = 0.01
# The readings cannot tell the delay from how slowly the power itself falls, some ms, and from how far off its stamps the work ends (k = 1).
POWER_FALLS_S = 0.005
WORK_EDGE_U_S = 0.008
# The borders come at one place between two readings if their phases are together by more than this many times what chance does.
TOGETHER = 2.0


@dataclass(frozen=True, slots=True)
class Stretches:
    """One part of each query: when it began and ended, monotonic ns, int64 [n]."""

    begins_ns: Times
    ends_ns: Times

    @property
    def lengths_ms(self) -> Array:
        """Return their lengths."""
        return (self.ends_ns - self.begins_ns) / NS_PER_MS


@dataclass(frozen=True, slots=True)
class PartEnergy:
    """The mean energy of a part, mJ, its length, ms, and the standard uncertainties of that energy: scatter, delay and borders."""

    gross_mj: float
    length_ms: float
    sampling: budget.Term
    borders: budget.Term
    quantisation: budget.Term


@dataclass(frozen=True, slots=True)
class Fall:
    """When the load ended, monotonic ns, from how far above idle power the readings fall then, W, and to which power."""

    start_ns: int
    step_w: float
    idle_w: float

    def after(self, curve: Curve, since_ns: int, tail_ns: int) -> tuple[float, float]:
        """Return the area of the fall until then over its height, ms, and the share of the height that is left over the last `tail_ns`."""
        if since_ns <= 0:
            return 0.0, 1.0
        end_ns = self.start_ns + since_ns
        area_mj = curve.energy_mj(Window(self.start_ns, end_ns)) - self.idle_w * since_ns / NS_PER_MS
        tail_w = mean_w(curve, Window(end_ns - min(tail_ns, since_ns), end_ns)) - self.idle_w
        # Before the step, the level was whole.
        inside_ratio = min(1.0, since_ns / tail_ns)
        return area_mj / self.step_w, tail_w / self.step_w * inside_ratio + 1 - inside_ratio


@dataclass(frozen=True, slots=True)
class QuerySensor:
    """A sensor through the queries: its readings as they were, its delay and the uncertainty of that, and how far apart its values are.

    `fall` is how its readings fall after the last query, where they show it.
    """

    curve: Curve
    delay_s: float
    delay_u_s: float
    spacing_ms: float
    renewed_ms: float = 0.0
    fall: Fall | None = None

    def needed_ms(self) -> float:
        """Return the shortest part that the sensor can cut out."""
        return max(FEWEST_PERIODS * self.spacing_ms, FEWEST_DELAYS * self.delay_s * 1000)

    def tail_ms(self, length_ms: float) -> float:
        """Return over how long before the end of such a part its level is read."""
        return max(length_ms * LAST_PLACES / PLACES, LAST_PLACES * self.spacing_ms, self.delay_s * 1000 / FEWEST_DELAYS)

    def off_ms(self, since_ms: float) -> float:
        """Return by how much the delay times the level shown is off, per W that the power stepped `since_ms` before, ms.

        Next to nothing of a first-order lag, and of a sensor that has settled since; the fall shows it of others.
        """
        delay_ms = self.delay_s * 1000
        if self.fall is None:
            return max(0.0, min(since_ms, UNSETTLED_DELAYS * delay_ms - since_ms))
        area_ms, share = self.fall.after(self.curve, round(since_ms * NS_PER_MS), round(self.tail_ms(since_ms) * NS_PER_MS))
        return abs(delay_ms - area_ms - delay_ms * share)


def query_sensor(case: SensorRun, settling: Settling | None) -> QuerySensor | None:
    """Return the sensor as its readings after the timed part, or its description, show it; None of one that shows no delay and has none."""
    averaging = case.description.averaging or Averaging()
    window_s, update_s = averaging.window_s or 0.0, averaging.update_interval_s or 0.0
    renewed_s = max(update_s, 0.0 if case.renewal is None else case.renewal.interval_ns / 1e9)
    spacing_ms = max(case.description.period_ms, case.curve.spacing_ns / NS_PER_MS, 1000 * renewed_s, 1000 * window_s)
    if isinstance(case.curve, CounterCurve):
        return QuerySensor(case.curve, 0.0, 0.0, spacing_ms, 1000 * renewed_s)
    curve = PowerCurve(case.trace.readings, case.description)
    if settling is None:
        if case.description.averaging is None:
            return None
        stated_s = window_s / 2 + (averaging.lag_s or 0.0) + update_s / 2
        return QuerySensor(curve, stated_s, max(stated_s, spacing_ms / 1000) / math.sqrt(3), spacing_ms, 1000 * renewed_s)
    falls_u_s = settling.u_mj / 1000 / abs(settling.steps_w[1])
    # The one fall shows where in its clock's interval the sensor was then.
    delay_u_s = math.hypot(falls_u_s, renewed_s / math.sqrt(12), WORK_EDGE_U_S)
    settled_ns = case.run.timed.end_ns + round(settling.settles_s * 1e9)
    fall = Fall(case.run.timed.end_ns, settling.steps_w[1], mean_w(curve, Window(settled_ns, settled_ns + round(settling.settles_s * 1e9))))
    return QuerySensor(curve, max(0.0, settling.delay_s - POWER_FALLS_S), delay_u_s, spacing_ms, 1000 * renewed_s, fall)


@dataclass(frozen=True, slots=True)
class QueriesEnergy:
    """The energy of all queries without what ran between them, mJ, their length, ms; and its budget per query."""

    energy_mj: float
    length_ms: float
    budget: tuple[UncertaintyTerm, ...]


def queries_energy(
    case: SensorRun, settling: Settling | None, energy_mj: float, idle_w: float | None, terms: Sequence[UncertaintyTerm]
) -> tuple[QueriesEnergy | None, str | None]:
    """Return the energy of long queries out of that of the whole timed part and its budget; None and why the sensor cannot tell them apart.

    What ran in short pauses drew something between idle power and the highest; from longer ones the queries are cut out.
    """
    queries = case.run.long_queries
    if queries is None:
        return None, None
    part = Stretches(queries.starts_ns, queries.starts_ns + queries.durations_ns)
    length_ms, whole_ms, count = float(part.lengths_ms.sum()), case.run.timed.length_ns / NS_PER_MS, part.begins_ns.size
    highest_w, lowest_w = case.curve.highest_w(), idle_w or 0.0
    between_u_mj = (whole_ms - length_ms) * (highest_w - lowest_w) / math.sqrt(12)
    if between_u_mj <= LARGEST_BETWEEN_RATIO * energy_mj:
        own_mj = energy_mj - (whole_ms - length_ms) * (highest_w + lowest_w) / 2
        between: dict[str, budget.Term] = {"between": (between_u_mj / count, None)}
        return QueriesEnergy(own_mj, length_ms, _scaled(terms, own_mj / energy_mj, length_ms / whole_ms, between)), None
    sensor = query_sensor(case, settling)
    if sensor is None or count < FEWEST_QUERIES or float(np.median(part.lengths_ms)) < sensor.needed_ms():
        return None, _inseparable(part, whole_ms, sensor)
    result = part_energy(sensor, part, stretches_before(part.begins_ns, part.ends_ns))
    own_mj = result.gross_mj * count
    replacing: dict[str, budget.Term] = {
        "sampling": result.sampling,
        "averaging": result.borders,
        "quantisation": result.quantisation,
        "edges": (0.0, None),
    }
    return QueriesEnergy(own_mj, length_ms, _scaled(terms, own_mj / energy_mj, length_ms / whole_ms, replacing)), None


def _scaled(
    terms: Sequence[UncertaintyTerm], energy_ratio: float, length_ratio: float, replacing: Mapping[str, budget.Term]
) -> tuple[UncertaintyTerm, ...]:
    """Return the budget of a part of the energy, over a part of the time; `replacing` are terms in the place of those, or after them."""
    ratios = {"gain": energy_ratio, **{term.term: length_ratio for term in terms if term.term == "offset" or term.term.startswith("idle_")}}
    scaled = [(term.term, None if term.u_mj is None else term.u_mj * ratios.get(term.term, 1.0), term.degrees_of_freedom) for term in terms]
    merged = {name: (u_mj, freedom) for name, u_mj, freedom in scaled} | dict(replacing)
    return tuple(UncertaintyTerm(term=name, u_mj=u_mj, degrees_of_freedom=freedom) for name, (u_mj, freedom) in merged.items())


def _inseparable(part: Stretches, whole_ms: float, sensor: QuerySensor | None) -> str:
    """Return why the energy of the queries cannot be told from that of what ran between them."""
    share = 1 - float(part.lengths_ms.sum()) / whole_ms
    if sensor is None:
        needs = "it does not show how late it is: let the machine idle after the run (idle_seconds)"
    elif part.begins_ns.size < FEWEST_QUERIES:
        needs = f"{part.begins_ns.size} queries are too few to be told from it, it needs {FEWEST_QUERIES}: use a longer mode"
    else:
        needs = (
            f"queries of {np.median(part.lengths_ms):,.4g} ms are too short to be told from it, it needs {sensor.needed_ms():,.4g} ms: "
            "ask for more output tokens or longer prompts, or use a faster sensor"
        )
    return f"{share:.1%} of the timed part lies between the queries, where a server works on what nobody timed, and {needs}"


def stretches_before(starts_ns: Times, ends_ns: Times) -> Stretches:
    """Return the pauses before queries of these starts and ends, each as long as they are at the median."""
    pauses_ns = starts_ns[1:] - ends_ns[:-1]
    usual_ns = int(np.median(pauses_ns)) if pauses_ns.size else 0
    return Stretches(starts_ns - usual_ns, starts_ns)


def part_energy(sensor: QuerySensor, part: Stretches, before: Stretches) -> PartEnergy:
    """Return the energy of a part of the queries, which `before` precedes."""
    length_ms, delay_ms = float(part.lengths_ms.mean()), sensor.delay_s * 1000
    inside = _profiles(sensor.curve, part, PLACES)
    levels = [_profiles(sensor.curve, _tail(sensor, stretches), 1) for stretches in (before, part)]
    sums, counts = (np.concatenate(columns, axis=1) for columns in zip(inside, *levels, strict=True))
    weights = np.array([*[length_ms / inside[0].shape[1]] * inside[0].shape[1], -delay_ms, delay_ms])
    means = _ratio(sums.sum(axis=0), counts.sum(axis=0))
    gross_mj = float(means @ weights)
    step_w = sensor.curve.quantisation_u_w(Window(int(part.begins_ns[0]), int(part.ends_ns[-1])))
    step_begin_w, step_end_w = (float(np.mean(means[:-2]) - level) for level in means[-2:])
    return PartEnergy(
        gross_mj,
        length_ms,
        _scatter(sums, counts, weights),
        (_borders_mj(sensor, part, before, (step_begin_w, step_end_w), float(means[-1] - means[-2])), None),
        (None if step_w is None else step_w * length_ms, None),
    )


def _borders_mj(sensor: QuerySensor, part: Stretches, before: Stretches, steps_w: tuple[float, float], rise_w: float) -> float:
    """Return what is open about the energy of a part because its borders are: the delay, where the readings fell, a stretch too short."""
    spacing_ms = max(sensor.spacing_ms, sensor.renewed_ms)
    terms = [rise_w * sensor.delay_u_s * 1000]
    # Of a stretch that is too short to settle on its level, the level at its end lies beyond the mean before it.
    terms += [_tail_rise_w(sensor, stretches) * sensor.delay_s * 1000 / math.sqrt(3) for stretches in (before, part)]
    together = (_together(sensor, moments_ns) for moments_ns in (part.begins_ns, part.ends_ns))
    terms += [step * spacing_ms / math.sqrt(12) * share for step, share in zip(steps_w, together, strict=True)]
    pause_ms = float(np.median(before.lengths_ms))
    # What a pause draws lies between nothing and the highest power.
    terms.append(sensor.off_ms(pause_ms) * max(abs(steps_w[0]), sensor.curve.highest_w() / math.sqrt(12)))
    return math.hypot(*terms)


def _together(sensor: QuerySensor, moments_ns: Times) -> float:
    """Return how far the moments fall at one place between two values of the sensor, 0..1; 0 where they do no more than chance does.

    The line between two values of a counter is drawn through every border alike.
    """
    if isinstance(sensor.curve, CounterCurve):
        return 1.0
    if sensor.renewed_ms:
        turns = moments_ns / (sensor.renewed_ms * NS_PER_MS)
    else:
        reach_ns = round(sensor.spacing_ms * FEWEST_PERIODS * NS_PER_MS)
        times = sensor.curve.readings(Window(int(moments_ns[0]) - reach_ns, int(moments_ns[-1]) + reach_ns))[0]
        turns = np.interp(moments_ns, times, np.arange(times.size))
    resultant = float(abs(np.exp(2j * np.pi * turns).mean()))
    return resultant if resultant > TOGETHER / math.sqrt(moments_ns.size) else 0.0


def _profiles(curve: Curve, part: Stretches, places: int) -> tuple[Array, Array]:
    """Return of each query and place within the part the sum of the readings and their number, float64 [n, places].

    Of a counter there is one place: energy, and time.
    """
    if isinstance(curve, CounterCurve):
        pairs = zip(part.begins_ns.tolist(), part.ends_ns.tolist(), strict=True)
        energies = np.array([curve.energy_mj(Window(begin, end)) for begin, end in pairs])
        return energies[:, np.newaxis], part.lengths_ms[:, np.newaxis]
    times, powers_w = curve.readings(Window(int(part.begins_ns[0]), int(part.ends_ns[-1])))
    query = np.clip(np.searchsorted(part.begins_ns, times, "right") - 1, 0, part.begins_ns.size - 1)
    position = (times - part.begins_ns[query]) / (part.ends_ns - part.begins_ns)[query]
    is_inside = (position >= 0) & (position < 1)
    cell = query[is_inside] * places + (position[is_inside] * places).astype(np.int64)
    shape, size = (part.begins_ns.size, places), part.begins_ns.size * places
    counts: Array = np.bincount(cell, minlength=size).astype(np.float64)
    sums: Array = np.bincount(cell, powers_w[is_inside], size).astype(np.float64)
    return sums.reshape(shape), counts.reshape(shape)


def _tail(sensor: QuerySensor, stretches: Stretches) -> Stretches:
    tail_ns = round(sensor.tail_ms(float(np.median(stretches.lengths_ms))) * NS_PER_MS)
    return Stretches(stretches.ends_ns - tail_ns, stretches.ends_ns)


def _tail_rise_w(sensor: QuerySensor, stretches: Stretches) -> float:
    """Return by how much the readings rise from one half to the other of those whose mean is the level before the end; 0 of a counter."""
    sums, counts = _profiles(sensor.curve, _tail(sensor, stretches), 2)
    means = _ratio(sums.sum(axis=0), counts.sum(axis=0))
    return float(means[-1] - means[0])


def _ratio(sums: Array, counts: Array) -> Array:
    """Return the means of cells, float64 [..., cells]; of one without a reading the mean of all in its row."""
    usual = sums.sum(axis=-1, keepdims=True) / counts.sum(axis=-1, keepdims=True)
    ratios: Array = np.where(counts > 0, sums / np.maximum(counts, np.finfo(float).tiny), usual)
    return ratios


def _scatter(sums: Array, counts: Array, weights: Array) -> budget.Term:
    """Return the standard uncertainty of the weighted sum of cell means from how it changes where a query is left out, and its freedom."""
    n = sums.shape[0]
    without = _ratio(sums.sum(axis=0) - sums, counts.sum(axis=0) - counts) @ weights
    differences = np.diff(without) * (n - 1)
    freedom = 2 * (n - 1) ** 2 / (3 * n - 4)
    return math.sqrt(float(np.mean(differences**2)) / 2 / n), freedom
