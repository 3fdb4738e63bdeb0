"""What a comparison of two comes to: for each figure the difference with its interval and what follows from it, and all in one sentence."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from edgemeter.agent.base.accuracy_bounds import DifferenceBounds
from edgemeter.agent.base.figures import significant, span
from edgemeter.agent.base.metrics import Better

Figure = Literal["latency", "throughput", "accuracy", "energy"]
# `open`: neither a difference nor its absence is sure; `absent`: not measured, or not comparable.
DifferenceState = Literal["lower", "higher", "alike", "open", "absent"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of B against A, in `unit`: `change` is B / A, of an accuracy (0..1) B - A, with its 95% bounds.

    `matters` is the smallest change that is a reason to choose one of them: a ratio, of an accuracy a difference. `note` is why the figure
    is absent, or what would settle it. `better` is that of an accuracy's metric.
    """

    figure: Figure
    unit: str
    state: DifferenceState
    matters: float
    a: float | None = None
    b: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    better: Better = "higher"


def absent(figure: Figure, unit: str, matters: float, note: str, a: float | None = None, b: float | None = None) -> Difference:
    """Return a figure that cannot be compared, and why."""
    return Difference(figure=figure, unit=unit, state="absent", matters=matters, a=a, b=b, note=note)


def state_of(low: float, high: float, limit: float, middle: float = 0.0) -> DifferenceState:
    """Return what follows from an interval: by how it lies to `middle`, and to `limit` on both sides of it."""
    if middle - limit <= low and high <= middle + limit:
        return "alike"
    if low > middle:
        return "higher"
    return "lower" if high < middle else "open"


def accuracy_difference(
    unit: str, values: tuple[float, float], found: DifferenceBounds, matters: float, better: Better = "higher"
) -> Difference:
    """Return the difference of two accuracies (0..1) on the same images; equal ones that have no bounds are the same on these images."""
    a, b = values
    low, high = found.bounds or (None, None)
    is_same = a == b and found.bounds is None
    state: DifferenceState = "alike" if is_same else "open" if found.bounds is None else state_of(*found.bounds, matters)
    note = "" if is_same or found.bounds else f"no interval, {found.reason}"
    return Difference(
        figure="accuracy", unit=unit, state=state, matters=matters, a=a, b=b, change=b - a, low=low, high=high, note=note, better=better
    )


def sentence(name: str, other: str, differences: Sequence[Difference], doubts: Sequence[str] = ()) -> str:
    """Return what all differences of `name` (B) against `other` (A) come to; a figure that is absent is left out.

    `doubts` is what speaks against believing it, such as runs that are suspect.
    """
    claims = [_claim(one, one.change, other) for one in differences if one.state in ("lower", "higher", "alike") and one.change is not None]
    unsure = [_unsure(one, other) for one in differences if one.state == "open"]
    parts = [f"{name} {_listed(claims)}"] if claims else [] if unsure else [f"nothing of {name} and {other} could be compared"]
    parts += [f"not sure: {'; '.join(unsure)}"] if unsure else []
    return "; ".join([*parts, *doubts])


def change_text(one: Difference) -> str:
    """Return the change alone, for a table: a ratio as `0.714x`, an accuracy in points."""
    if one.change is None:
        return "-"
    return f"{one.change * 100:+.1f} points" if one.figure == "accuracy" else f"{significant(one.change)}x"


def _claim(one: Difference, change: float, other: str) -> str:
    if one.figure == "accuracy":
        return _accuracy_claim(one, change, other)
    if one.figure == "energy":
        return _energy_claim(one, change, other)
    # A rate is high where a time is low.
    is_faster = (one.state == "lower") == (one.figure == "latency")
    if one.state == "alike":
        return f"is as fast as {other} within {_percent(one.matters)}"
    times = 1 / change if one.state == "lower" else change
    bounds = _inverse(one) if one.state == "lower" else (one.low, one.high)
    return f"is {significant(times)} times {'faster' if is_faster else 'slower'} ({_interval(bounds)}{_perhaps(one)})"


def _accuracy_claim(one: Difference, change: float, other: str) -> str:
    if one.state == "alike":
        same = "the same" if change == 0 else f"within {one.matters * 100:g} points the same"
        return f"has {same} {one.unit} as {other}"
    bounds = (one.low, one.high) if change > 0 else (_negative(one.high), _negative(one.low))
    points = tuple(None if bound is None else f"{bound * 100:.1f}" for bound in bounds)
    doubt = f", perhaps less than the {one.matters * 100:g} that matter" if _is_small(one) else ""
    if one.better == "lower":
        words = ("more", "worse") if change > 0 else ("less", "better")
        how = f"has {abs(change) * 100:.1f} {one.unit} points {words[0]}, which is {words[1]}"
    else:
        how = f"{'gains' if change > 0 else 'loses'} {abs(change) * 100:.1f} {one.unit} points"
    return f"{how} (95% {points[0]} to {points[1]}{doubt})"


def _energy_claim(one: Difference, change: float, other: str) -> str:
    if one.state == "alike":
        return f"costs as much energy as {other} within {_percent(one.matters)}"
    if change >= 2:
        return f"costs {significant(change)} times the energy ({_interval((one.low, one.high))})"
    percent = f"{significant(abs(change - 1) * 100)}% {'more' if change > 1 else 'less'}"
    if one.low is None or one.high is None:
        return f"costs {percent} energy ({_interval((one.low, one.high))})"
    low, high = (one.low - 1, one.high - 1) if change > 1 else (1 - one.high, 1 - one.low)
    return f"costs {percent} energy (95% {span(low * 100, high * 100)}%{_perhaps(one)})"


def _unsure(one: Difference, other: str) -> str:
    more = f"; {one.note}" if one.note else ""
    if one.change is None:
        return f"{one.figure}{more}"
    if one.figure == "accuracy":
        bounds = "" if one.low is None or one.high is None else f", 95% {one.low * 100:+.1f} to {one.high * 100:+.1f}"
        return f"{one.unit} ({one.change * 100:+.1f} points{bounds}{more})"
    bounds = "" if one.low is None else f", {_interval((one.low, one.high))}"
    return f"{one.figure} ({significant(one.change)} times {other}'s{bounds}{more})"


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _is_small(one: Difference) -> bool:
    """Return whether the interval holds changes that do not matter."""
    if one.low is None or one.high is None:
        return False
    near = one.low if one.state == "higher" else one.high
    middle = 0.0 if one.figure == "accuracy" else 1.0
    return abs(near - middle) < one.matters


def _perhaps(one: Difference) -> str:
    return f", perhaps less than the {_percent(one.matters)} that matter" if _is_small(one) else ""


def _inverse(one: Difference) -> tuple[float | None, float | None]:
    return (1 / one.high if one.high else None, 1 / one.low if one.low else None)


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


def _interval(bounds: tuple[float | None, float | None]) -> str:
    low, high = bounds
    return "too few runs for an interval" if low is None or high is None else f"95% {span(low, high)}"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.3g}%"
