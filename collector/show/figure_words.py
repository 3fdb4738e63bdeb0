"""Compared figures in words: a value with its interval, a change with the interval that decides it, and the outcome."""

from collections.abc import Callable, Iterable, Iterator

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import MOST_FURTHER, Decision
from edgemeter.agent.base.evidence import CONFIDENCE, FEWEST
from edgemeter.agent.contract.figures import ACCURACY, LATENCY, Figure
from edgemeter.collector.compare.case_figure import CaseFigure
from edgemeter.collector.runs.cases import grouped

# From this factor on a change is said in times, not in per cent.
TIMES = 2.0
# Changes of this size have no decimals, and intervals of this width, unless these tell something.
COARSE = 9.95
WIDE = 4.0
SMALLEST = 1e-9  # A ratio next to 0 has no inverse.


def figure_text(entry: Figure, figure: CaseFigure | None, unit: str = "") -> str:
    """Return a figure as `140 ms ± 4%` or `0.404 (0.331 to 0.480)`, without the unit where none is given; "-" where there is no value."""
    if figure is None:
        return figures.ABSENT
    value = f"{entry.shown(figure.value)} {unit}".rstrip()
    if figure.low is None or figure.high is None:
        return value
    if figure.scale == "ratio":
        return figures.with_interval(value, figure.value, figure.low, figure.high)
    ends = entry.range_text(figure.low, figure.high)
    # An interval of no width is that of a figure that every run has alike.
    return f"{value} ({ends})" if " to " in ends else value


def short_figure_text(entry: Figure, figure: CaseFigure | None, unit: str = "") -> str:
    """Return a figure as `figure_text` does, but shares and accuracies without their intervals."""
    return entry.shown(figure.value) if figure is not None and figure.scale == "points" else figure_text(entry, figure, unit)


def change_parts(name: str, change: Decision, *limits: float) -> tuple[str, str]:
    """Return a change and the interval that decides it, empty without one: `-14%` and `-19 to -9%`.

    It is in per cent, from a factor of two on in times, of shares and accuracies in points; with as many decimals as tell its interval
    from no change, from what matters and from the `limits`. Ends that are written alike are left out.
    """
    # A metric that is no share, such as a perplexity, has no points.
    per = 1 if name == ACCURACY and change.better == "lower" else 100
    margin = per * change.margin
    convert: Callable[[float], float]
    told_apart: tuple[float, ...]
    if change.scale == "points":
        convert, unit, told_apart = (lambda value: per * value), " points" if per == 100 else "", (-margin, 0, margin)
    elif change.value >= TIMES:
        convert, unit, told_apart = (lambda ratio: ratio), " times as long" if name == LATENCY else " times", (1,)
    elif name == LATENCY and change.value <= 1 / TIMES:
        convert, unit, told_apart = (lambda ratio: 1 / max(ratio, SMALLEST)), " times as fast", (1,)
    else:
        convert, unit, told_apart = (lambda ratio: 100 * (ratio - 1)), "%", (-100, -margin / (1 + change.margin), 0, margin)
    value, *ends = (convert(end) for end in (change.value, change.low, change.high) if end is not None)
    width = max(ends, default=value) - min(ends, default=value)
    decimals = 0 if change.scale == "ratio" and (abs(value) >= COARSE or width >= WIDE) else 1
    if ends:
        decimals = figures.telling_decimals(ends, decimals, *told_apart, *map(convert, limits))
    amount, *texts = (figures.with_decimals(number, decimals, "" if "times" in unit else "+") for number in (value, *sorted(ends)))
    return f"{amount}{unit}", f"{' to '.join(texts)}{'%' * (unit == '%')}" if len(set(texts)) > 1 else ""


def change_text(name: str, change: Decision) -> str:
    """Return a change as `-14%`, a large one as `4.9 times as long`, of shares and accuracies as `-9.9 points`."""
    return change_parts(name, change)[0]


def change_with_interval(name: str, change: Decision, *limits: float) -> str:
    """Return a change with the interval that decides it, if it has one: `-14% (-19 to -9%)`."""
    text, interval = change_parts(name, change, *limits)
    return f"{text} ({interval})" if interval else text


def is_identical(change: Decision) -> bool:
    """Return whether two accuracies are the same in every part of the images."""
    return change.evidence.unit == "image" and change.evidence.error == 0 == change.value


def outcome_text(decision: Decision) -> str:
    """Return the outcome with what belongs to it: `no difference above 3%`, `inconclusive; about 4 more runs would decide`."""
    if decision.outcome == "no difference":
        return f"no difference above {margin_text(decision)}"
    return "; ".join(filter(None, (decision.outcome, what_decides(decision))))


def margin_text(decision: Decision) -> str:
    """Return the smallest difference that matters: `3%`, `0.5 points`."""
    return f"{100 * decision.margin:g}{' points' if decision.scale == 'points' else '%'}"


def what_decides(decision: Decision) -> str:
    """Return how many more runs would decide: `about 6 more runs would decide: measure with --repeats 9`; empty where nothing is open.

    Without an interval nothing shows how many would: `3 runs give an interval: measure with --repeats 3`.
    """
    unit, further = decision.evidence.unit, decision.further
    if decision.outcome == "inconclusive" and decision.low is not None and unit == "image":
        return "more images would narrow it"
    if decision.outcome == "inconclusive" and decision.limit is None and further is None and decision.low is not None:
        return f"not even {MOST_FURTHER} more {unit}s would decide"
    if not further or further < 0:
        return ""
    # A further pair is a further run of each.
    option = f": measure with --repeats {decision.repeats}" if unit in ("run", "pair") else ""
    if decision.low is None:
        return f"{figures.count(FEWEST, 'run' if option else unit)} give an interval{option}"
    further_text = figures.count(further, "more run" if option else f"more {unit}")
    return f"about {further_text} would decide{option}"


def assumed_in_changes(decisions: Iterable[Decision]) -> Iterator[str]:
    """Yield what the intervals of changes between sessions and between days include: a scatter that the runs are too few to show."""
    assumed = [(decision.evidence.assumed.between, decision.evidence.assumed.sd) for decision in decisions if decision.evidence.assumed]
    for between, sds in grouped(assumed).items():
        yield f"changes between {between} include an assumed scatter of {100 * max(sds):.2g}% between {between}"


def confidence_text(*confidences: float) -> str:
    """Return the confidence of intervals as `97.5%`, of several as `95% to 98.3%`; never as 100%."""
    ends = sorted({100 * confidence for confidence in (min(confidences), max(confidences))})
    decimals = figures.telling_decimals(ends, 1, 100)
    return " to ".join(f"{round(end, decimals):g}%" for end in ends)


def decided_together(changes: Iterable[Decision]) -> str:
    """Return how sure the intervals of an answer are; empty where each is one of 95%, or there is none."""
    confidences = [change.confidence for change in changes if change.low is not None and change.low != change.high]
    if not confidences or confidence_text(*confidences) == confidence_text(CONFIDENCE):
        return ""
    return f"the intervals of changes have {confidence_text(*confidences)} confidence, so that all decisions together have 95%"
