"""The sentence of a choice: which case to ship, what it comes to against its baseline, and what it is not told apart from."""

import math
from collections.abc import Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import ACCURACY, LATENCY, Bounds
from edgemeter.agent.base.metrics import gain, metric_name
from edgemeter.agent.base.run_statistics import MATTERS_ACCURACY
from edgemeter.agent.contract.figures import Figure
from edgemeter.collector.choose.candidate import ChoiceCandidate
from edgemeter.collector.choose.certainty import bounds_of, change, confidence_of, figure_text, value_of
from edgemeter.collector.choose.limits import ChoiceLimits
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import change_text, interval_text, speed_of
from edgemeter.collector.compare.pairing import PRECISION_BITS, References
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import named


def sentence_of(
    pick: ChoiceCandidate | None,
    rivals: Sequence[ChoiceCandidate],
    candidates: Sequence[ChoiceCandidate],
    references: Sequence[CaseSummary] | None,
    limits: ChoiceLimits,
    entry: Figure,
) -> str:
    """Return in a sentence what to ship and why, or what stands in the way."""
    if pick is not None:
        text = f"Ship {pick.name}: {_claims(pick, candidates, references, limits, entry)}"
        return f"{text}{_not_told_apart(rivals, entry)}"
    if not any(candidate.state == "may meet" for candidate in candidates):
        nearest = max(candidates, key=lambda candidate: (not candidate.gate, candidate.deciding.share if candidate.deciding else -math.inf))
        why = f"none meets every limit; the nearest is {nearest.name} ({nearest.reason})"
        return f"Ship none of {figures.count(len(candidates), 'case')}: {why}"
    if any(candidate.state == "meets" for candidate in candidates):
        return f"Nothing to choose by: no case that meets every limit has a value of {entry.title}; choose by another figure"
    open_cases = [candidate for candidate in candidates if candidate.state == "may meet"]
    promising = [candidate for candidate in open_cases if all(finding.share >= 0 for finding in candidate.findings)]
    nearest = (promising or open_cases)[0]
    return f"Ship none yet: no case meets every limit with certainty; the nearest is {nearest.name} ({nearest.reason})"


def _not_told_apart(rivals: Sequence[ChoiceCandidate], entry: Figure) -> str:
    if not rivals:
        return ""
    nearest = rivals[0]
    names = nearest.name + (f" and {figures.count(len(rivals) - 1, 'more case')}" if rivals[1:] else "")
    return f"; in {entry.title} not told apart from {names}"


def _claims(
    pick: ChoiceCandidate,
    candidates: Sequence[ChoiceCandidate],
    references: Sequence[CaseSummary] | None,
    limits: ChoiceLimits,
    entry: Figure,
) -> str:
    """Return what the pick comes to against the baseline: the figure it was chosen by first, then speed, then accuracy.

    Of as many cases as it was chosen from each might have been the pick: so many are the intervals of each figure.
    """
    confidence = confidence_of(len(candidates))
    baseline = baseline_of(pick.case, [candidate.case for candidate in candidates], references)
    named_figures = list(dict.fromkeys((entry, JUDGED[speed_of(pick.case)], JUDGED[ACCURACY])))
    if baseline is None:
        texts = [
            f"{called(figure, pick.case)} {figure_text(figure, value, bounds_of(pick.case, figure, confidence))}"
            for figure in named_figures
            if (value := value_of(pick.case, figure)) is not None
        ]
        return ", ".join(texts) or "no figure of it is known"
    texts = [text for figure in named_figures if (text := _claim(figure, pick.case, baseline, limits, confidence))]
    names = {id(candidate.case): candidate.name for candidate in candidates}
    against = f"against {names.get(id(baseline)) or named(baseline.key)}"
    return f"{', '.join(texts)}, {against}" if texts else f"nothing of it could be compared {against}"


def called(entry: Figure, case: CaseSummary) -> str:
    """Return what people call a figure in a sentence: of an accuracy its metric."""
    return metric_name(case.accuracy.metric) if entry.name == ACCURACY and case.accuracy else entry.title


def baseline_of(case: CaseSummary, cases: Sequence[CaseSummary], references: Sequence[CaseSummary] | None) -> CaseSummary | None:
    """Return what a pick is held against: of the references its match, else the most precise case of its model, on its device if there.

    None where there is no such case, or the pick is it.
    """
    if references is None:
        alike = [other for other in cases if other.key.model == case.key.model and _bits(other) > _bits(case)]
        board = case.around.environment["board"]
        on_board = [other for other in alike if board and other.around.environment["board"] == board]
        nearest = [other for other in alike if other.device == case.device] or on_board or alike
        references = [other for other in nearest if _bits(other) == max(map(_bits, nearest))]
    paired = References([reference for reference in references if reference is not case]).pair(case)
    return None if isinstance(paired, str) else paired[0]


def _bits(case: CaseSummary) -> int:
    return PRECISION_BITS.get(case.key.precision, 0)


def _claim(entry: Figure, case: CaseSummary, baseline: CaseSummary, limits: ChoiceLimits, confidence: float) -> str:
    changed = change(entry, case, baseline, confidence)
    if changed is None:
        return ""
    value, bounds = changed
    if entry.name == ACCURACY:
        return _accuracy_claim(case, baseline, value, bounds, limits)
    if entry.is_share:
        within = interval_text(entry.name, bounds) if bounds else "no interval"
        return f"{change_text(entry.name, value)} of {entry.title} ({within})"
    words, span = f"times the {entry.title}", figures.span(*bounds) if bounds else "no interval"
    if entry.name == LATENCY:
        value, words = 1 / value, "times as fast"
        span = figures.span(1 / bounds[1], 1 / bounds[0]) if bounds else span
    return f"{figures.significant(value, 2)} {words} ({span})"


def _accuracy_claim(case: CaseSummary, baseline: CaseSummary, value: float, bounds: Bounds | None, limits: ChoiceLimits) -> str:
    span = " to ".join(map(figures.difference, bounds)) if bounds else "no interval"
    text = f"{called(JUDGED[ACCURACY], case)} {figures.difference(value)} ({span})"
    accuracy, base = case.accuracy, baseline.accuracy
    if accuracy is None or base is None:
        return text
    # What the limit allows to lose against the baseline; without a limit as much as it may be.
    allowed = next((limit.value - base.value.median for limit in limits.figures if limit.figure.name == ACCURACY), None)
    worst = value if bounds is None else bounds[0] if accuracy.better == "higher" else bounds[1]
    loses = gain(worst, accuracy.better) < -MATTERS_ACCURACY
    given_up = worst if allowed is None else allowed
    return f"{text}, if {figures.difference(given_up)} is allowed" if loses and gain(given_up, accuracy.better) < 0 else text
