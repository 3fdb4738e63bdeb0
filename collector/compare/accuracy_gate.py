"""The accuracy gate of a comparison: a case that keeps too little of its reference's accuracy has a speed, and no rank.

The reference is the most precise form of the same model, not the case that the latency is compared with: an int8 file ruined by its
quantisation is as ruined on the server.
"""

from collections.abc import Sequence

from edgemeter.agent.records import GATE_RATIO
from edgemeter.collector.compare.judging import METRICS
from edgemeter.collector.compare.pairing import PRECISION_BITS
from edgemeter.collector.compare.summary import Summary


def not_ranked(case: Summary, references: Sequence[Summary]) -> str | None:
    """Return why the speed of `case` does not rank, None when it does or when its accuracy cannot be held against any reference's."""
    alike = [reference for reference in references if reference is not case and _is_alike(case, reference)]
    if not alike or case.accuracy is None:
        return None
    best = max(alike, key=_precision)
    if best.accuracy is None or _bits(best) < _bits(case):
        return None
    own, other, ratio = case.accuracy.value.median, best.accuracy.value.median, _ratio(case)
    if own >= ratio * other:
        return None
    metric = METRICS.get(case.accuracy.metric, case.accuracy.metric)
    return (
        f"{_named(case)}: {metric} {own:.3f} of the {other:.3f} that {_named(best)} has, needed {ratio * other:.3f} ({ratio:.0%} of it): "
        "its speed does not rank"
    )


def most_precise(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """Return by model the cases that a gate can be held against: of each kind the two best, so that none is held against itself.

    `not_ranked` says the same of them as of all; where there are thousands of cases it says it sooner.
    """
    kinds: dict[tuple[object, ...], list[Summary]] = {}
    for case in summaries:
        if (accuracy := case.accuracy) is not None:
            key = case.key
            measure = (accuracy.metric, accuracy.images, accuracy.dataset_sha256)
            kinds.setdefault((key.model, key.provenance, key.task, key.input_values, *measure), []).append(case)
    found: dict[str, list[Summary]] = {case.key.model: [] for case in summaries}
    for cases in kinds.values():
        found[cases[0].key.model] += sorted(cases, key=_precision, reverse=True)[:2]
    return found


def _is_alike(case: Summary, reference: Summary) -> bool:
    own, other = case.accuracy, reference.accuracy
    if own is None or other is None:
        return False
    sizes = {case.key.input_values, reference.key.input_values} - {None}
    keys = [(one.key.provenance, one.key.model, one.key.task) for one in (case, reference)]
    measures = [(accuracy.metric, accuracy.images, accuracy.dataset_sha256) for accuracy in (own, other)]
    return len(sizes) <= 1 and len(set(keys)) == len(set(measures)) == 1


def _precision(case: Summary) -> tuple[int, float]:
    """Order cases by bits, then by accuracy: of two fp32 files of one model the better is what it can do."""
    return _bits(case), case.accuracy.value.median if case.accuracy else 0.0


def _bits(case: Summary) -> int:
    return PRECISION_BITS.get(case.key.precision, 0)


def _ratio(case: Summary) -> float:
    """Return the share that the suite asked for in the newest run that says, else the usual one."""
    asked = case.around.gate_ratio
    return GATE_RATIO if asked is None else asked


def _named(case: Summary) -> str:
    return f"{case.key.model} {case.key.precision} on {case.key.runtime}, {case.key.device}"
