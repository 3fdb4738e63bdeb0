"""The decision whether a figure of B differs from A's, by the 95% interval of the change; and all figures in one sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from edgemeter.agent.base.accuracy_bounds import SAME, DifferenceBounds
from edgemeter.agent.base.figures import significant, span
from edgemeter.agent.base.metrics import Better

Outcome = Literal["lower", "higher", "alike", "not settled", "not judged"]
# A ratio is decided on the log scale: exchanging A and B mirrors it.
Scale = Literal["ratio", "difference"]
Bounds = tuple[float, float]

# Why nothing is settled by runs of one day: the next day's level may be another.
ONE_DAY = "one day"

# 0.625 - 0.620 is a little more than 0.005 to a computer.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for B against A: `value` is B / A or B - A, `bounds` its 95% interval, `matters` the smallest change that counts.

    `is_beyond_margin` is whether the whole interval lies beyond `matters`, on one side. `reason` is why it is not judged or not settled
    whatever the interval is, or why it is alike without bounds. `caution` is what to know of the value itself, such as a suspected step.
    """

    outcome: Outcome
    value: float | None
    bounds: Bounds | None
    matters: float
    scale: Scale = "ratio"
    is_beyond_margin: bool = False
    reason: str = ""
    caution: str = ""

    def of_one_day(self) -> "Decision":
        """Return the decision if one side was measured on one day only: its interval is within that day, so it settles nothing."""
        return replace(self, outcome="not settled", is_beyond_margin=False, reason=ONE_DAY) if self.bounds else self


def decide(value: float | None, bounds: Bounds | None, matters: float, scale: Scale = "ratio", reason: str = "") -> Decision:
    """Return the one decision that every view shows; `reason` is why there are no bounds.

    Alike: the interval lies within `matters` on both sides. Lower or higher: it lies on one side of no change. Not settled: neither.
    """
    if bounds is None:
        return Decision("not judged", value, None, matters, scale, reason=reason)
    low, high = (math.log(bound) for bound in bounds) if scale == "ratio" else bounds
    margin = (math.log1p(matters) if scale == "ratio" else matters) + _ROUNDING
    is_within = -margin <= low and high <= margin
    outcome: Outcome = "alike" if is_within else "higher" if low > 0 else "lower" if high < 0 else "not settled"
    return Decision(outcome, value, bounds, matters, scale, is_beyond_margin=low > margin or high < -margin)


def decide_accuracy(difference: float, over_items: DifferenceBounds, matters: float) -> Decision:
    """Return the decision on a difference of accuracies (0..1): alike without bounds only where every part of the images shows it."""
    if over_items.reason == SAME:
        return Decision("alike", difference, None, matters, "difference", reason=SAME)
    return decide(difference, over_items.bounds, matters, "difference", over_items.reason or "no bounds recorded")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of B against A, in `unit`: `change` is B / A, of an accuracy (0..1) B - A, with its 95% bounds.

    `matters` is the smallest change that is a reason to choose one of them: a ratio, of an accuracy a difference. `note` is why the figure
    is not judged, what would settle it, or what to know of it; one that cannot be compared has no `change`. `better` is that of an
    accuracy's metric.
    """

    figure: str
    unit: str
    state: Outcome
    matters: float
    a: float | None = None
    b: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    better: Better = "higher"


def difference(
    figure: str, unit: str, decision: Decision, values: tuple[float | None, float | None] = (None, None), better: Better = "higher"
) -> Difference:
    """Return a decided figure; `values` are A's and B's."""
    low, high = decision.bounds or (None, None)
    reason = decision.reason if decision.outcome in ("not judged", "not settled") else ""
    return Difference(
        figure=figure, unit=unit, state=decision.outcome, matters=decision.matters, a=values[0], b=values[1], change=decision.value,
        low=low, high=high, note="; ".join(filter(None, (reason, decision.caution))), better=better,
    )  # fmt: skip


def sentence(name: str, other: str, differences: Sequence[Difference], doubts: Sequence[str] = ()) -> str:
    """Return what all differences of `name` (B) against `other` (A) come to; a figure that cannot be compared is left out.

    `doubts` is what speaks against believing it, such as runs that are suspect.
    """
    compared = [(diff, diff.change) for diff in differences if diff.change is not None]
    claims = [_claim(diff, change, other) for diff, change in compared if diff.state in ("lower", "higher", "alike")]
    parts = [f"{name} {_listed(claims)}"] if claims else []
    for state in ("not settled", "not judged"):
        texts = [_open(diff, change, other) for diff, change in compared if diff.state == state]
        parts += [f"{state}: {'; '.join(texts)}"] if texts else []
    return "; ".join([*(parts or [f"nothing of {name} and {other} could be compared"]), *doubts])


def change_text(diff: Difference) -> str:
    """Return the change alone, for a table: a ratio as `0.714x`, an accuracy in points."""
    if diff.change is None:
        return "-"
    return f"{diff.change * 100:+.1f} points" if diff.figure == "accuracy" else f"{significant(diff.change)}x"


def _claim(diff: Difference, change: float, other: str) -> str:
    # Only an accuracy can be alike without bounds.
    low, high = (change, change) if diff.low is None or diff.high is None else (diff.low, diff.high)
    if diff.figure == "accuracy":
        return _accuracy_claim(diff, change, (low, high), other)
    doubt = _perhaps(diff, (low, high), "ratio", percent(diff.matters))
    if diff.figure == "energy":
        return _energy_claim(diff, change, (low, high), other, doubt)
    # A rate is high where a time is low.
    is_faster = (diff.state == "lower") == (diff.figure == "latency")
    if diff.state == "alike":
        return f"is as fast as {other} within {percent(diff.matters)}{f' ({diff.note})' if diff.note else ''}"
    times, interval_text = (1 / change, span(1 / high, 1 / low)) if diff.state == "lower" else (change, span(low, high))
    return f"is {significant(times)} times {'faster' if is_faster else 'slower'} (95% {interval_text}{doubt})"


def _accuracy_claim(diff: Difference, change: float, bounds: Bounds, other: str) -> str:
    if diff.state == "alike":
        same = "the same" if diff.low is None else f"within {diff.matters * 100:g} points the same"
        return f"has {same} {diff.unit} as {other}"
    low, high = bounds if change > 0 else (-bounds[1], -bounds[0])
    doubt = _perhaps(diff, bounds, "difference", f"{diff.matters * 100:g}")
    if diff.better == "lower":
        words = ("more", "worse") if change > 0 else ("less", "better")
        how = f"has {abs(change) * 100:.1f} {diff.unit} points {words[0]}, which is {words[1]}"
    else:
        how = f"{'gains' if change > 0 else 'loses'} {abs(change) * 100:.1f} {diff.unit} points"
    return f"{how} (95% {low * 100:.1f} to {high * 100:.1f}{doubt})"


def _energy_claim(diff: Difference, change: float, bounds: Bounds, other: str, doubt: str) -> str:
    low, high = bounds
    if diff.state == "alike":
        return f"costs as much energy as {other} within {percent(diff.matters)}{f' ({diff.note})' if diff.note else ''}"
    if change >= 2:
        return f"costs {significant(change)} times the energy (95% {span(low, high)}{doubt})"
    changed = f"{significant(abs(change - 1) * 100)}% {'more' if change > 1 else 'less'}"
    low, high = (low - 1, high - 1) if change > 1 else (1 - high, 1 - low)
    return f"costs {changed} energy (95% {span(low * 100, high * 100)}%{doubt})"


def _open(diff: Difference, change: float, other: str) -> str:
    note = f"; {diff.note}" if diff.note else ""
    if diff.figure == "accuracy":
        bounds = "" if diff.low is None or diff.high is None else f", 95% {diff.low * 100:+.1f} to {diff.high * 100:+.1f}"
        return f"{diff.unit} ({change * 100:+.1f} points{bounds}{note})"
    bounds = "" if diff.low is None or diff.high is None else f", 95% {span(diff.low, diff.high)}"
    return f"{diff.figure} ({significant(change)} times {other}'s{bounds}{note})"


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _perhaps(diff: Difference, bounds: Bounds, scale: Scale, least: str) -> str:
    is_certain = decide(diff.change, bounds, diff.matters, scale).is_beyond_margin
    return ("" if is_certain else f", perhaps less than the {least} that matter") + (f"; {diff.note}" if diff.note else "")


def percent(ratio: float) -> str:
    """Return a margin as a percentage: `3%`, `0.5%`."""
    return f"{ratio * 100:.3g}%"
