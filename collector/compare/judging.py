"""The judgements on a row: latency, throughput, energy and accuracy of a case against its reference."""

from dataclasses import dataclass

from edgemeter.collector.compare import judgement
from edgemeter.collector.compare.judgement import ENERGY, LATENCY, MATTERS_ACCURACY, MATTERS_RATIO, THROUGHPUT, Judgement, Quantity
from edgemeter.collector.compare.pairing import is_one_class
from edgemeter.collector.compare.ratios import Bounds, Ratios, is_one_meter
from edgemeter.collector.compare.spread import Spread
from edgemeter.collector.compare.summary import Summary

METRICS = {"coco_ap": "AP", "top1": "top-1", "top5": "top-5"}


@dataclass(frozen=True, slots=True)
class Matters:
    """The smallest differences that matter: of latency, throughput and energy as a ratio, of accuracy in its own unit (0..1)."""

    ratio: float = MATTERS_RATIO
    accuracy: float = MATTERS_ACCURACY


@dataclass(frozen=True, slots=True)
class Judgements:
    """What is said of a case against its reference; None where there is no ratio to judge."""

    latency: Judgement | None = None
    throughput: Judgement | None = None
    energy: Judgement | None = None
    accuracy: Judgement | None = None


def judge(case: Summary, reference: Summary, ratios: Ratios, matters: Matters) -> Judgements:
    """Return the judgements on `case`; of the reference against itself there are none."""
    if case is reference:
        return Judgements()

    def of(quantity: Quantity, ratio: float | None, bounds: Bounds | None, own: Spread | None, other: Spread | None) -> Judgement | None:
        if ratio is None or own is None or other is None:
            return None
        if not is_one_class(case, reference):
            return judgement.other_class(quantity, ratio, bounds, case.key.precision, reference.key.precision)
        has_runs = own.interval is not None and other.interval is not None
        why_none = "the meters' uncertainty is not known" if has_runs and bounds is None else ""
        return judgement.of_ratio(quantity, ratio, bounds, (own, other), matters.ratio, why_none)

    gross = of(ENERGY, ratios.energy_gross, ratios.energy_gross_interval, case.gross_mj, reference.gross_mj)
    return Judgements(
        latency=of(LATENCY, ratios.p50, ratios.p50_interval, case.p50_ms, reference.p50_ms),
        throughput=of(THROUGHPUT, ratios.throughput, ratios.throughput_interval, case.throughput_per_s, reference.throughput_per_s),
        energy=_with_meter(gross, case, reference) if gross else None,
        accuracy=_of_accuracy(case, reference, ratios, matters),
    )


def _with_meter(found: Judgement, case: Summary, reference: Summary) -> Judgement:
    meter = "one meter measured both" if is_one_meter(case, reference) else "with what the meters may be wrong by"
    return found if found.state in ("not enough runs", "other class") else Judgement(found.state, f"{found.words}; {meter}")


def _of_accuracy(case: Summary, reference: Summary, ratios: Ratios, matters: Matters) -> Judgement | None:
    own, other = case.accuracy, reference.accuracy
    if own is None or other is None or ratios.accuracy_difference is None:
        return None
    name = METRICS.get(own.metric, own.metric)
    return judgement.of_accuracy(name, own.value.median, other.value.median, ratios.accuracy_interval, own.images, matters.accuracy)
