"""The uncertainty budget of an energy: every term by itself, as a standard uncertainty (k = 1) in mJ per inference.

After the GUM: independent terms add in squares, and the expanded uncertainty is their root times k. k is 2 where the terms are well
known, and larger where the greatest of them was estimated from little scatter (Student's t with the effective degrees of freedom of
Welch and Satterthwaite, GUM G.4), so that the interval always holds the truth in 95 of 100 runs. An unknown term makes the
whole unknown: an unknown uncertainty is not zero.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.energy.curve import CounterCurve, Curve, PowerScatter, held_values, mean_w, stretch_means
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.energy.renewal import Renewal
from edgemeter.agent.energy.sensor_run import SensorRun
from edgemeter.agent.energy.settling import Settling
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import Description
from edgemeter.agent.power.values import Averaging

# What k = 2 covers of a normal distribution.
CONFIDENCE = math.erf(math.sqrt(2))
# Renewals whose intervals scatter by more than this do not fall one into each block of their mean length, and blocks mix neighbours.
REGULAR_RATIO = 0.1
# From here on k is 2.00.
ENOUGH_FREEDOM = 1e4

_NO_STEP = "the sensor states no resolution: use one that does"
# Why a term is not known, in the order of importance.
UNKNOWN = {
    "gain": "the sensor states no gain uncertainty: compare it with a better meter, and set gain and gain_u_ratio in [sensors.NAME]",
    "offset": _NO_STEP,
    "quantisation": _NO_STEP,
    "idle_quantisation": _NO_STEP,
    "idle_drift": "idle power is known on one side of the work only, for net energy: idle before and after it",
}

# A standard uncertainty (None: unknown) and its degrees of freedom (None: more than matter).
Term = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertaintyTerm:
    """One line of a budget: a standard uncertainty, mJ; None where it is unknown, and where it does not come from scatter."""

    term: str
    u_mj: float | None
    degrees_of_freedom: float | None = None


@dataclass(frozen=True, slots=True)
class IdlePower:
    """Idle power: the mean of the stretches before and after, each None where there was none, and its standard uncertainties, W.

    `drift_u_w` is None when only one side is known: how far the power moved during the run is then not known. `wander_u_w` is how far
    the mean over the timed part may lie off because idle power wanders.
    """

    before_w: float | None
    after_w: float | None
    mean_w: float
    sampling: PowerScatter
    quantisation_u_w: float | None
    drift_u_w: float | None
    wander_u_w: float

    @property
    def u_w(self) -> float:
        """Return the standard uncertainty of the mean from all terms that are known."""
        return math.hypot(self.sampling.u_w, self.wander_u_w, self.quantisation_u_w or 0.0, self.drift_u_w or 0.0)


def idle(curve: Curve, timed: Window, before: Window | None, after: Window | None) -> IdlePower | None:
    """Return the idle power out of the stretches around the timed part; None without any."""
    stretches = [window for window in (before, after) if window is not None]
    if not stretches:
        return None
    means = [mean_w(curve, window) for window in stretches]
    steps = [curve.quantisation_u_w(window) for window in stretches]
    known_steps = [step for step in steps if step is not None]
    idle_means = stretch_means(curve, stretches)
    # How far idle power moved, beyond what chance moves two means apart: a value anywhere between them. Source: GUM 4.3.7 (rectangular).
    moved_w2 = max(0.0, (means[-1] - means[0]) ** 2 - sum(scatter.u_w**2 for scatter in idle_means.each))
    return IdlePower(
        before_w=means[0] if before else None,
        after_w=means[-1] if after else None,
        mean_w=statistics.fmean(means),
        sampling=PowerScatter(idle_means.u_w, _freedom((scatter.u_w, scatter.freedom) for scatter in idle_means.each)),
        quantisation_u_w=max(known_steps) if len(known_steps) == len(steps) else None,
        drift_u_w=math.sqrt(moved_w2 / 12) if len(means) == 2 else None,
        wander_u_w=idle_means.wander_u_w(timed.length_ns),
    )


def terms(
    case: SensorRun, idling: IdlePower | None, settling: Settling | None, block_terms: Mapping[str, Term]
) -> tuple[UncertaintyTerm, ...]:
    """Return the budget of the gross energy per inference; the terms named `idle_*` enter the net energy only.

    `block_terms`, W, replace those of their names.
    """
    curve, description, timed, queries = case.curve, case.description, case.run.timed, case.run.queries
    per_w = timed.length_ns / NS_PER_MS / case.run.inferences
    gain = description.gain_u_ratio
    late_w = 0.0 if settling is None else settling.late_mj * NS_PER_MS / timed.length_ns
    seen_w = (0.0, 0.0) if settling is None else settling.steps_w
    # A slow sensor shows a step long after it.
    steps = [max(abs(slow_w), curve.step_w(edge_ns)) for slow_w, edge_ns in zip(seen_w, (timed.start_ns, timed.end_ns), strict=True)]
    # After a random pause a sensor that looks by a clock of its own sees another part of each query.
    breaks_ns = None if queries is None else queries.pauses_ns[:, 0]
    sampling = _sampling(curve, timed, settling, case.renewal, breaks_ns)
    is_read = settling is not None and settling.is_reached
    watts: dict[str, Term] = {
        "gain": (None if gain is None else gain * abs(mean_w(curve, timed) + late_w), None),
        "offset": (offset_u_w(description), None),
        "quantisation": (curve.quantisation_u_w(timed), None),
        "sampling": (sampling.u_w, sampling.freedom),
        # When the power stepped is known to a period only, as a reading may be late by as much, unless the readings show how late they are.
        "edges": (0.0 if is_read else math.hypot(*steps) * curve.spacing_ns / math.sqrt(12) / timed.length_ns, None),
    }
    # The largest known delay of the sensor that its readings do not show.
    averaging = description.averaging or Averaging()
    unseen_s = (averaging.window_s or 0.0) / 2 + (averaging.lag_s or 0.0) + (averaging.update_interval_s or 0.0)
    unseen_w = math.hypot(*steps) * unseen_s * 1e9 / math.sqrt(3) / timed.length_ns
    watts["averaging"] = (unseen_w if settling is None else settling.u_mj * NS_PER_MS / timed.length_ns, None)
    if idling is not None:
        watts["idle_sampling"] = (idling.sampling.u_w, idling.sampling.freedom)
        watts["idle_quantisation"] = (idling.quantisation_u_w, None)
        watts["idle_drift"] = (idling.drift_u_w, None)
        watts["idle_wander"] = (idling.wander_u_w, idling.sampling.freedom)
    return tuple(
        UncertaintyTerm(term=term, u_mj=None if u is None else u * per_w, degrees_of_freedom=freedom)
        for term, (u, freedom) in (watts | dict(block_terms)).items()
    )


def gross(budget: Iterable[UncertaintyTerm]) -> float | None:
    """Return the expanded uncertainty of the gross energy."""
    return expanded((term.u_mj, term.degrees_of_freedom) for term in budget if not term.term.startswith("idle_"))


def unknown_reason(budget: Iterable[UncertaintyTerm]) -> str | None:
    """Return why the budget gives no expanded uncertainty, with the remedy; None where it gives one."""
    unknown = {term.term for term in budget if term.u_mj is None}
    return "; ".join(dict.fromkeys(why for name, why in UNKNOWN.items() if name in unknown)) or None


def net(budget: Iterable[UncertaintyTerm], gross_mj: float, net_mj: float) -> float | None:
    """Return the expanded uncertainty of the net energy: the gain acts on the difference only, and the offset cancels."""
    share = abs(net_mj / gross_mj) if gross_mj else 0.0
    terms_by_name = {term.term: (term.u_mj, term.degrees_of_freedom) for term in budget if term.term != "offset"}
    gain, _ = terms_by_name.pop("gain")
    return expanded([(None if gain is None else gain * share, None), *terms_by_name.values()])


def _sampling(curve: Curve, timed: Window, settling: Settling | None, renewal: Renewal | None, breaks_ns: Times | None) -> PowerScatter:
    """Return what the choice of moments leaves open; of a sensor by its own clock only its renewals count, and not as independent ones."""
    settled_ns = 0.0 if settling is None else min(settling.settles_s * 1e9, timed.length_ns / 2)
    by_breaks = curve.sampling(timed, settled_ns, breaks_ns)
    if renewal is None:
        return by_breaks
    settled = Window(timed.start_ns + round(settled_ns), timed.end_ns)
    scatter = stretch_means(curve, [settled], renewal.interval_ns).each[0]
    if breaks_ns is not None and breaks_ns.size:
        scatter = max(scatter, by_breaks, key=lambda scatter: scatter.u_w)
    if isinstance(curve, CounterCurve) or renewal.scatter_ratio <= REGULAR_RATIO:
        return scatter
    times_ns, powers_w = curve.readings(settled)
    return max(scatter, held_values(powers_w, times_ns), key=lambda scatter: scatter.u_w)


def offset_u_w(description: Description) -> float | None:
    """Return the uncertainty of the sensor's zero: as its driver knows it, else a constant step of the converter either way."""
    if description.offset_u_w is not None:
        return description.offset_u_w
    return None if description.resolution_w is None else description.resolution_w / math.sqrt(3)


def expanded(parts: Iterable[Term]) -> float | None:
    """Return the root of the sum of the squares of independent terms times k; None where a term is not known."""
    pairs = list(parts)
    known_terms = [(u, freedom) for u, freedom in pairs if u is not None]
    if len(known_terms) < len(pairs):
        return None
    freedom = _freedom(known_terms)
    k = 2.0 if freedom is None else student_quantile(CONFIDENCE, freedom)
    return k * math.hypot(*(u for u, _ in known_terms))


def _freedom(parts: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the effective degrees of freedom of a sum; None where there are too many to matter. Source: GUM G.4.1."""
    terms = list(parts)
    total = math.fsum(u**2 for u, _ in terms) ** 2
    each = math.fsum(u**4 / freedom for u, freedom in terms if freedom is not None)
    return total / each if each > 0 and total / each < ENOUGH_FREEDOM else None
