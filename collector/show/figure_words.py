"""Compared figures in words: a value with its interval, a change with the interval that decides it, and the outcome."""

from collections.abc import Callable, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import Decision
from edgemeter.agent.contract.figures import Figure
from edgemeter.collector.compare.case_figure import CaseFigure

# From this factor on a change is written as a factor: 4.88x, not +388%.
LARGEST_IN_PER_CENT = 2.0
MOST_DIGITS = 6


def figure_text(entry: Figure, figure: CaseFigure | None, unit: str = "") -> str:
    """Return a figure as `140 ms ± 4%` or `0.404 (0.331 to 0.480)`, without the unit where none is given; "-" where there is no value."""
    if figure is None:
        return figures.ABSENT
    value, interval = f"{entry.shown(figure.value)} {unit}".rstrip(), interval_text(entry, figure)
    return f"{value} {interval}" if interval.startswith("±") else f"{value} ({interval})" if interval else value


def interval_text(entry: Figure, figure: CaseFigure) -> str:
    """Return the 95% interval as `± 4%`, or of shares and accuracies, and where it is wider than the value, as its bounds."""
    if figure.low is None or figure.high is None:
        return ""
    if figure.scale == "points" or figure.half_width_ratio is None or figure.half_width_ratio > 1:
        text = entry.range_text(figure.low, figure.high)
        # An interval of no width is that of a figure that every run has alike.
        return text if " to " in text else ""
    return f"± {figures.percentage(figure.half_width_ratio)}"


def change_text(decision: Decision) -> str:
    """Return a change as `-14%`, a large one as `4.88x`, of shares and accuracies as `-9.9 points`."""
    return f"{_change(decision, decision.value)}{' points' if decision.scale == 'points' else ''}"


def change_with_interval(decision: Decision) -> str:
    """Return a change with the interval that decides it, if it has one: `-14% (-19% to -9%)`."""
    if decision.low is None or decision.high is None:
        return change_text(decision)
    return f"{change_text(decision)} ({_change(decision, decision.low)} to {_change(decision, decision.high)})"


def outcome_text(decision: Decision) -> str:
    """Return the outcome with what belongs to it: `no difference above 3%`, `inconclusive; about 4 more runs would decide: --repeats 7`."""
    if decision.outcome == "no difference":
        return f"no difference above {margin_text(decision)}"
    return "; ".join(filter(None, (decision.outcome, what_decides(decision))))


def margin_text(decision: Decision) -> str:
    """Return the smallest difference that matters: `3%`, `0.5 points`."""
    return f"{100 * decision.margin:g}{' points' if decision.scale == 'points' else '%'}"


def what_decides(decision: Decision) -> str:
    """Return how many more runs would decide: `about 6 more runs would decide: --repeats 9`; empty where none would, or nothing is open."""
    evidence, further = decision.evidence, decision.further
    if not further or further < 0 or evidence.unit == "image":
        return ""
    # A further pair is a further run of each.
    option = f": --repeats {evidence.units + further}" if evidence.unit in ("run", "pair") else ""
    further_text = figures.count(further, "more run" if option else f"more {evidence.unit}")
    return f"about {further_text} would decide{option}"


def rounded(value: float, digits: int, *limits: float, write: Callable[[float, int], str] = figures.plain_digits) -> str:
    """Return a value in so many digits, in more where these would not show on which side of the limits it lies."""
    texts = [write(value, precision) for precision in range(digits, MOST_DIGITS)]
    return next((text for text in texts if _shows(text, value, limits)), texts[0])


def with_decimals(value: float, decimals: int) -> str:
    """Return a value with so many decimals."""
    return f"{value:.{decimals}f}"


def _shows(text: str, value: float, limits: Sequence[float]) -> bool:
    as_written = float(text.replace(",", ""))
    return all((as_written > limit, as_written < limit) == (value > limit, value < limit) for limit in limits)


def _change(decision: Decision, value: float) -> str:
    margin = 100 * decision.margin
    if decision.scale == "points":
        return rounded(100 * value, 1, -margin, 0, margin, write=_signed)
    if max(end for end in (decision.low, decision.value, decision.high) if end is not None) >= LARGEST_IN_PER_CENT:
        return f"{rounded(value, 3, 1, write=figures.significant)}x"
    per_cent = 100 * (value - 1)
    decimals = 0 if abs(per_cent) >= 9.95 else 1
    return f"{rounded(per_cent, decimals, -100, -margin / (1 + decision.margin), 0, margin, write=_signed)}%"


def _signed(value: float, decimals: int) -> str:
    return f"{value:+.{decimals}f}"
