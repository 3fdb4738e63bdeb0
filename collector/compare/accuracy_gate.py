"""The accuracy gate, by which the speed of a case that lost too much accuracy is not ranked.

The accuracy is compared with that of the most precise case of its model.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter

from edgemeter.agent.base.metrics import is_reached, metric_name, needed_value
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.record_accuracy import GATE_RATIO
from edgemeter.collector.compare.pairing import PRECISION_BITS
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import grouped, named
from edgemeter.collector.runs.relation import are_alike

# The fields that a case shares with its accuracy reference: the same model on inputs of one size,
# whatever the load.
_gated: Callable[[CaseKey], tuple[object, ...]] = attrgetter(
    "model", "served_model", "provenance", "task", "input_values"
)


def not_ranked(case: CaseSummary, references: Sequence[CaseSummary]) -> str | None:
    """Return why the speed of `case` is not ranked.

    It is None if it is, or if its accuracy cannot be compared with any reference's.
    """
    alike = [
        reference
        for reference in references
        if reference is not case and _is_alike(case, reference)
    ]
    if not alike or case.accuracy is None:
        return None
    best = max(alike, key=_precision)
    if best.accuracy is None or _bits(best) < _bits(case):
        return None
    accuracy, other = case.accuracy.value, best.accuracy.value
    threshold = needed_value(other, GATE_RATIO, case.accuracy.better)
    if is_reached(accuracy, threshold, case.accuracy.better):
        return None
    metric = metric_name(case.accuracy.metric)
    return (
        f"{named(case.key)}: {metric} {accuracy:.3f} of the {other:.3f} that {named(best.key)} "
        f"has, needed {threshold:.3f} "
        f"({GATE_RATIO:.0%} of it): its speed is not ranked"
    )


def most_precise(summaries: Sequence[CaseSummary]) -> dict[str, list[CaseSummary]]:
    """Return the candidate baselines of a gate by model.

    They are the two best of each kind, so that no case is compared with itself. `not_ranked` gives
    the same result for them as for all cases, but faster with thousands of cases.
    """
    kinds = grouped(
        ((_gated(case.key), *case.accuracy.measure), case)
        for case in summaries
        if case.accuracy is not None
    )
    candidates: dict[str, list[CaseSummary]] = {case.key.model: [] for case in summaries}
    for cases in kinds.values():
        candidates[cases[0].key.model] += sorted(cases, key=_precision, reverse=True)[:2]
    return candidates


def _is_alike(case: CaseSummary, reference: CaseSummary) -> bool:
    accuracy, other = case.accuracy, reference.accuracy
    return (
        accuracy is not None
        and other is not None
        and accuracy.measure == other.measure
        and are_alike(_gated(case.key), _gated(reference.key))
    )


def _precision(case: CaseSummary) -> tuple[int, float]:
    """Order cases by bits, then by accuracy.

    The better of two fp32 files of one model is the reference.
    """
    return _bits(case), case.accuracy.gain if case.accuracy else 0.0


def _bits(case: CaseSummary) -> int:
    return PRECISION_BITS.get(case.key.precision, 0)
