"""Ratios of a case to its reference, and the judgement of each: one word for machines, a sentence for people."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.accuracy_bounds import DifferenceBounds, difference_bounds
from edgemeter.agent.base.metrics import Better, metric_name
from edgemeter.agent.base.run_statistics import FEWEST, MATTERS_ACCURACY, MATTERS_RATIO
from edgemeter.collector.compare.pairing import is_one_class
from edgemeter.collector.compare.spread import MedianInterval, Spread, interval_of_ratio, widened_interval
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.energy_class import may_rank_together

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Case / reference. Latency, memory and energy above 1 are worse than the reference, throughput above 1 is better.

    `p50_low` and `p50_high` are the extremes that the ranges over runs allow. `accuracy_difference` is case - reference in the metric's
    own unit. Energies only have a ratio when they may be ranked together (`energy_class`).

    `*_interval` are 95%: of latency and throughput over runs, days or devices; of energy with the uncertainty of the meters, unless one
    meter measured both; of accuracy over the images. None where there are too few runs or a bound is not known: `accuracy_reason`.
    """

    p50: float | None
    p50_low: float | None
    p50_high: float | None
    p90: float | None
    throughput: float | None
    peak_memory: float | None
    energy_gross: float | None
    energy_net: float | None
    accuracy_difference: float | None
    p50_interval: Bounds | None = None
    throughput_interval: Bounds | None = None
    energy_gross_interval: Bounds | None = None
    energy_net_interval: Bounds | None = None
    accuracy_interval: Bounds | None = None
    accuracy_reason: str = ""


def ratios(case: CaseSummary, reference: CaseSummary) -> Ratios:
    """Return the ratios of `case` to `reference`; of the reference to itself they are 1."""
    is_itself = case is reference
    p50 = _of_medians(case.p50_ms, reference.p50_ms)
    low, high = (p50, p50) if is_itself else _extremes(case.p50_ms, reference.p50_ms)
    comparable = energies_rank(case, reference)
    accuracy = DifferenceBounds(None) if is_itself else _accuracy_bounds(case, reference)
    return Ratios(
        p50=p50,
        p50_low=low,
        p50_high=high,
        p90=_of_medians(case.spread("latency_p90_ms"), reference.spread("latency_p90_ms")),
        throughput=_of_medians(case.throughput_per_s, reference.throughput_per_s),
        peak_memory=_of_medians(case.spread("memory_peak_mb"), reference.spread("memory_peak_mb")),
        energy_gross=_of_medians(case.gross_mj, reference.gross_mj) if comparable else None,
        energy_net=_of_medians(case.spread("energy_net_mj"), reference.spread("energy_net_mj")) if comparable else None,
        accuracy_difference=_accuracy_difference(case, reference),
        p50_interval=None if is_itself else _bounds(case.p50_ms, reference.p50_ms),
        throughput_interval=None if is_itself else _bounds(case.throughput_per_s, reference.throughput_per_s),
        energy_gross_interval=_energy_bounds(case, reference, "gross") if comparable and not is_itself else None,
        energy_net_interval=_energy_bounds(case, reference, "net") if comparable and not is_itself else None,
        accuracy_interval=accuracy.bounds,
        accuracy_reason=accuracy.reason,
    )


def withheld(found: Ratios) -> Ratios:
    """Return the ratios of a case whose speed is not ranked: only the difference of accuracy."""
    accuracy, interval, reason = found.accuracy_difference, found.accuracy_interval, found.accuracy_reason
    return Ratios(None, None, None, None, None, None, None, None, accuracy, accuracy_interval=interval, accuracy_reason=reason)


def energies_rank(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether both have an energy, and the two may be ranked together."""
    own, other = case.energy, reference.energy
    return own is not None and other is not None and may_rank_together(own.ranks_as, other.ranks_as)


def is_one_meter(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether one meter measured both: what it is wrong by then cancels in the ratio."""
    own, other = case.energy, reference.energy
    sides = (case.key.fleet, case.key.device), (reference.key.fleet, reference.key.device)
    return own is not None and other is not None and own.sensor == other.sensor and sides[0] == sides[1]


def _ratio(own: float, other: float) -> float | None:
    return own / other if own > 0 and other > 0 else None


def _of_medians(own: Spread | None, other: Spread | None) -> float | None:
    return _ratio(own.median, other.median) if own and other else None


def _extremes(own: Spread | None, other: Spread | None) -> tuple[float | None, float | None]:
    return (_ratio(own.low, other.high), _ratio(own.high, other.low)) if own and other else (None, None)


def _accuracy_difference(case: CaseSummary, reference: CaseSummary) -> float | None:
    own, other = case.accuracy, reference.accuracy
    if own is None or other is None:
        return None
    alike = (own.metric, own.images, own.dataset_sha256) == (other.metric, other.images, other.dataset_sha256)
    return own.value.median - other.value.median if alike else None


def _bounds(own: Spread | None, other: Spread | None) -> Bounds | None:
    sides = _plain(own), _plain(other)
    if own is None or other is None or sides[0] is None or sides[1] is None:
        return None
    return interval_of_ratio(own.median, sides[0], other.median, sides[1])


def _plain(found: Spread | None) -> Bounds | None:
    return (found.interval.low, found.interval.high) if found and found.interval else None


def _energy_bounds(case: CaseSummary, reference: CaseSummary, which: str) -> Bounds | None:
    own, other = (_energy_side(side, which, with_meter=not is_one_meter(case, reference)) for side in (case, reference))
    return None if own is None or other is None else interval_of_ratio(own[0], own[1], other[0], other[1])


def _energy_side(side: CaseSummary, which: str, *, with_meter: bool) -> tuple[float, Bounds] | None:
    """Return the energy and its bounds; an uncertainty that is not known leaves none."""
    if side.energy is None:
        return None
    found, u_mj = side.spread(f"energy_{which}_mj"), side.uncertainty(f"energy_{which}_mj")
    bounds = _plain(found)
    if found is None or bounds is None or not with_meter:
        return None if found is None or bounds is None else (found.median, bounds)
    return None if u_mj is None else (found.median, widened_interval(bounds, found.median, u_mj))


def _accuracy_bounds(case: CaseSummary, reference: CaseSummary) -> DifferenceBounds:
    own, other = case.accuracy, reference.accuracy
    if own is None or other is None or _accuracy_difference(case, reference) is None:
        return DifferenceBounds(None)
    return difference_bounds(own.bounded, other.bounded)


JudgementState = Literal["lower", "higher", "alike", "perhaps lower", "perhaps higher", "not settled", "not enough runs", "other class"]

# More than this nobody measures: then nothing is foreseen.
FORESEEN = 1000


@dataclass(frozen=True, slots=True)
class RatioJudgement:
    """The state, of the case against its reference, and the same in words."""

    state: JudgementState
    words: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure that is judged: how it is called when it is lower or higher than the reference's, and how its ratio is read."""

    lower: str
    higher: str
    ratio: str


LATENCY = Quantity("faster", "slower", "times as long")
THROUGHPUT = Quantity("fewer a second", "more a second", "times as many a second")
ENERGY = Quantity("less energy", "more energy", "times the energy")


def judge_ratio(
    quantity: Quantity, ratio: float, bounds: tuple[float, float] | None, sides: Sequence[Spread], matters_ratio: float, why_none: str = ""
) -> RatioJudgement:
    """Return the judgement on a ratio; `sides` are the two figures that it is made of, `why_none` is why it has no bounds."""
    text = f"{_rounded(ratio)} {quantity.ratio}"
    if bounds is None:
        return RatioJudgement("not enough runs", f"{why_none or _too_few(sides)}: {text}, without an interval")
    low, high = bounds
    shown = f"{text} (95%: {_rounded(low)} to {_rounded(high)}, {_basis(sides)})"
    limit = math.log1p(matters_ratio)
    state = _state(math.log(low), math.log(high), limit)
    if state == "alike":
        return RatioJudgement(state, f"no difference that matters: {shown}")
    if state == "not settled":
        return RatioJudgement(state, f"not settled: {shown}{_foresight(ratio, bounds, sides, limit)}")
    way = quantity.lower if state.endswith("lower") else quantity.higher
    doubt = f", perhaps by less than the {matters_ratio:.0%} that matter" if state.startswith("perhaps") else ""
    return RatioJudgement(state, f"{way}{doubt}: {shown}")


def judge_accuracy(
    name: str, own: float, other: float, found: DifferenceBounds, images: int, matters: float, better: Better = "higher"
) -> RatioJudgement:
    """Return the judgement on a difference of accuracies (0..1) over the same images; `found` are the bounds of the difference."""
    text = f"{name} {own:.3f} against {other:.3f}"
    if found.bounds is None:
        if own == other:
            return RatioJudgement("alike", f"the same {text}")
        return RatioJudgement("not enough runs", f"not judged, {found.reason or 'no bounds recorded'}: {text}, {own - other:+.3f}")
    low, high = found.bounds
    shown = f"{text}, {own - other:+.3f} (95%: {low:+.3f} to {high:+.3f} over {images} images)"
    state = _state(low, high, matters)
    ways = {"lower": "less accurate", "higher": "more accurate", "alike": "no difference that matters", "not settled": "indistinguishable"}
    if better == "lower":
        ways |= {"lower": ways["higher"], "higher": ways["lower"]}
    way = ways[state.removeprefix("perhaps ")]
    doubt = ", perhaps by less than matters" if state.startswith("perhaps") else ""
    return RatioJudgement(state, f"{way}{doubt}: {shown}")


def other_class_judgement(quantity: Quantity, ratio: float, bounds: tuple[float, float] | None, own: str, other: str) -> RatioJudgement:
    """Return that a ratio of two classes of precision is no verdict: like is not compared with like."""
    shown = f" (95%: {_rounded(bounds[0])} to {_rounded(bounds[1])})" if bounds else ""
    return RatioJudgement("other class", f"no verdict, {own} against {other}: {_rounded(ratio)} {quantity.ratio}{shown}")


def _state(low: float, high: float, limit: float) -> JudgementState:
    """Judge an interval around 0 by how it lies to -limit, 0 and +limit."""
    if -limit <= low and high <= limit:
        return "alike"
    if low > 0:
        return "higher" if low > limit else "perhaps higher"
    if high < 0:
        return "lower" if high < -limit else "perhaps lower"
    return "not settled"


def _rounded(ratio: float) -> str:
    # Near 1 the third decimal distinguishes 2% from 3%.
    return f"{ratio:.3f}" if 0.5 < ratio < 2 else f"{ratio:.3g}"


def _intervals(sides: Sequence[Spread]) -> list[MedianInterval]:
    return [side.interval for side in sides if side.interval]


def _basis(sides: Sequence[Spread]) -> str:
    """Return what the interval rests on, and what therefore is not in it."""
    found = _intervals(sides)
    over, within = " against ".join(one.over for one in found), within_of(sides)
    return f"{over}; within {within}" if within else over


def within_of(sides: Sequence[Spread | None]) -> str:
    """Return what neither side sampled, in words: `this day, this board`; two that differ stand against each other, equal ones once."""
    return " against ".join(dict.fromkeys(one.interval.within for one in sides if one and one.interval and one.interval.within))


def _too_few(sides: Sequence[Spread]) -> str:
    runs = " against ".join(f"{side.n}" for side in sides)
    return f"not enough runs ({runs}; an interval takes {FEWEST} each)"


def _foresight(ratio: float, bounds: tuple[float, float], sides: Sequence[Spread], limit: float) -> str:
    """Return about how many more members would settle it, if the ratio and the spread are what they seem."""
    reach = max(math.log(bounds[1] / ratio), math.log(ratio / bounds[0]))
    room = abs(abs(math.log(ratio)) - limit)
    least = min(_intervals(sides), key=lambda one: one.members)
    wanted = least.members * (reach / room) ** 2 if room > 0 else math.inf
    if wanted > FORESEEN:
        return "; with this spread, so close to the limit, no reasonable number of runs would settle it"
    more = max(1, math.ceil(wanted) - least.members)
    return f"; about {more} more {least.level}{'s' * (more > 1)} on each side would settle it"


@dataclass(frozen=True, slots=True)
class SmallestDifferences:
    """The smallest differences that matter: of latency, throughput and energy as a ratio, of accuracy in its own unit (0..1)."""

    ratio: float = MATTERS_RATIO
    accuracy: float = MATTERS_ACCURACY


@dataclass(frozen=True, slots=True)
class CaseJudgements:
    """The judgements of a case against its reference; None where there is no ratio to judge."""

    latency: RatioJudgement | None = None
    throughput: RatioJudgement | None = None
    energy: RatioJudgement | None = None
    accuracy: RatioJudgement | None = None


def judge_case(case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: SmallestDifferences) -> CaseJudgements:
    """Return the judgements on `case`; of the reference against itself there are none."""
    if case is reference:
        return CaseJudgements()

    def of(
        quantity: Quantity, ratio: float | None, bounds: Bounds | None, own: Spread | None, other: Spread | None
    ) -> RatioJudgement | None:
        if ratio is None or own is None or other is None:
            return None
        if not is_one_class(case, reference):
            return other_class_judgement(quantity, ratio, bounds, case.key.precision, reference.key.precision)
        has_runs = own.interval is not None and other.interval is not None
        why_none = "the uncertainty of the meters is unknown" if has_runs and bounds is None else ""
        return judge_ratio(quantity, ratio, bounds, (own, other), matters.ratio, why_none)

    gross = of(ENERGY, ratios.energy_gross, ratios.energy_gross_interval, case.gross_mj, reference.gross_mj)
    return CaseJudgements(
        latency=of(LATENCY, ratios.p50, ratios.p50_interval, case.p50_ms, reference.p50_ms),
        throughput=of(THROUGHPUT, ratios.throughput, ratios.throughput_interval, case.throughput_per_s, reference.throughput_per_s),
        energy=_with_meter(gross, case, reference) if gross else None,
        accuracy=_of_accuracy(case, reference, ratios, matters),
    )


def _with_meter(found: RatioJudgement, case: CaseSummary, reference: CaseSummary) -> RatioJudgement:
    meter = "one meter measured both" if is_one_meter(case, reference) else "including the uncertainty of the meters"
    return found if found.state in ("not enough runs", "other class") else RatioJudgement(found.state, f"{found.words}; {meter}")


def _of_accuracy(case: CaseSummary, reference: CaseSummary, ratios: Ratios, matters: SmallestDifferences) -> RatioJudgement | None:
    own, other = case.accuracy, reference.accuracy
    if own is None or other is None or ratios.accuracy_difference is None:
        return None
    found = DifferenceBounds(ratios.accuracy_interval, ratios.accuracy_reason)
    values = own.value.median, other.value.median
    return judge_accuracy(metric_name(own.metric), *values, found, own.images, matters.accuracy, own.better)
