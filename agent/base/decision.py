"""The decision whether a figure of B differs from A's, by the 95% interval of the change; and all figures in one sentence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from edgemeter.agent.base.accuracy_bounds import SAME, DifferenceBounds
from edgemeter.agent.base.figures import share, significant, span
from edgemeter.agent.base.metrics import Better, gain, is_reached, needed_value

Outcome = Literal["lower", "higher", "alike", "not settled", "not judged"]
# A ratio is decided on the log scale: exchanging A and B mirrors it.
Scale = Literal["ratio", "difference"]
Bounds = tuple[float, float]
ONE_DAY = "one day"  # Why nothing is settled by runs of one day: the next day's level may be another.
# The names of figures.
LATENCY, THROUGHPUT, MISSED = "latency_p50_ms", "throughput_per_s", "steady_missed_ratio"
MEMORY, ACCURACY, ENERGY = "memory_peak_mb", "accuracy_value", "energy_gross_mj"
TTFT, TPOT = "generation_ttft_p50_ms", "generation_tpot_p50_ms"
TOKEN_ENERGY, CORRECT_ENERGY = "generation_energy_output_token_gross_mj", "energy_correct_answer_gross_mj"
# What they are called in a sentence.
_TITLES = {
    LATENCY: "latency", THROUGHPUT: "throughput", MISSED: "missed frames", ACCURACY: "accuracy", ENERGY: "energy", TTFT: "TTFT",
    TPOT: "TPOT", TOKEN_ENERGY: "energy per token", CORRECT_ENERGY: "energy per correct answer",
}  # fmt: skip
# The two answers of a language model; what its quality is called, stated with both values.
_RATES = {TTFT: "prefills", TPOT: "decodes"}
_TEXT_QUALITY = ("perplexity", "bits per byte")
_ROUNDING = 1e-9  # 0.625 - 0.620 is a little more than 0.005 to a computer.


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
    """One figure of B against A, in `unit`: `change` is B / A, of an accuracy or of missed frames (0..1) B - A, with its 95% bounds.

    Of bits per byte it is the ratio of the perplexities of as much text as a token of A is.
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

    `doubts` is what speaks against believing it, such as runs that are disturbed.
    """
    compared = [(diff, diff.change) for diff in differences if diff.change is not None and diff.figure not in _TEXT_QUALITY]
    claims = [_claim(diff, change, other) for diff, change in compared if diff.state in ("lower", "higher", "alike")]
    parts = [f"{name} {' and '.join(filter(None, (', '.join(claims[:-1]), claims[-1])))}"] if claims else []
    parts += [_text_quality(diff) for diff in differences if diff.change is not None and diff.figure in _TEXT_QUALITY]
    for state in ("not settled", "not judged"):
        texts = [_open(diff, change, other) for diff, change in compared if diff.state == state]
        parts += [f"{state}: {'; '.join(texts)}"] if texts else []
    return "; ".join([*(parts or [f"nothing of {name} and {other} could be compared"]), *doubts])


def figure_name(figure: str) -> str:
    """Return what people call a figure: TTFT, TPOT, latency."""
    return _TITLES.get(figure, figure)


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """The one to take, by name, null where all are out; `rivals` are not clearly slower, `refused` are out, by name with the reason."""

    name: str | None
    rivals: tuple[str, ...]
    refused: dict[str, str]


def pick(
    first: str,
    changes: Mapping[str, Sequence[Difference]],
    kept_accuracy: float,
    refused: Mapping[str, str],
    most_perplexity: float = math.inf,
) -> Pick:
    """Return which one to take: of those that keep so much (a ratio) of the first's accuracy, the fastest.

    Of several that are as fast, as far as their intervals show, it is one with the best accuracy (within what matters), of these the one
    with the least energy where all have one (per correct answer before per token), else the fastest. Language models are ranked by
    decoding, by prefill where no decoding compares. `changes` are those of each other one against the first; `refused` are out for
    another reason, by name; so is a perplexity above `most_perplexity` times the first's.
    """
    figures = {name: {diff.figure: diff for diff in differences} for name, differences in changes.items()}
    reasons = {name: _why_refused(of.get(ACCURACY), kept_accuracy) or _why_perplexed(of, most_perplexity) for name, of in figures.items()}
    refused = {**{name: reason for name, reason in reasons.items() if reason}, **refused}
    speeds = [speed for speed in (TPOT, TTFT) if any(_ratio(of, speed) is not None for of in figures.values())]
    speed = next(iter(speeds), LATENCY)
    unlike = {name: of[speed].note for name, of in figures.items() if speed in of and _ratio(of, speed) is None}
    refused = {**{name: f"its {figure_name(speed)} does not compare: {note}" for name, note in unlike.items()}, **refused}
    eligible = {name: of for name, of in {first: {}, **figures}.items() if name not in refused and (name == first or speed in of)}
    if not eligible:
        return Pick(name=None, rivals=(), refused=refused)
    matters = max((of[ACCURACY].matters for of in figures.values() if ACCURACY in of), default=0.0)
    fastest = min(eligible, key=lambda name: _ratio(eligible[name], speed) or 1.0)
    reach = _bounds(eligible[fastest], speed)[1]
    rivals = [name for name, of in eligible.items() if name == fastest or _bounds(of, speed)[0] <= reach]
    best_gain = max(_accuracy_gain(eligible[name]) for name in rivals)
    accurate = [name for name in rivals if _accuracy_gain(eligible[name]) >= best_gain - matters]
    costs = (CORRECT_ENERGY, TOKEN_ENERGY, ENERGY, speed)
    cost = next((cost for cost in costs if all(name == first or _ratio(eligible[name], cost) is not None for name in accurate)), speed)
    name = min(accurate, key=lambda name: _ratio(eligible[name], cost) or 1.0)
    return Pick(name=name, rivals=tuple(rival for rival in rivals if rival != name), refused=refused)


def _why_perplexed(of: Mapping[str, Difference], most_ratio: float) -> str:
    """Return why a perplexity (by the byte where tokens differ) rules its model out; empty where it does not, or there is none."""
    diff = next((of[figure] for figure in _TEXT_QUALITY if figure in of), None)
    if diff is None or diff.change is None or diff.change <= most_ratio:
        return ""
    figure, a, b, ratio = diff.figure, significant(diff.a, 4), significant(diff.b, 4), significant(diff.change)
    compared = f"is {ratio} times {a}" if figure == "perplexity" else f"against {a} are {ratio} times the perplexity"
    return f"{figure} {b} {compared}, above {most_ratio:g}"


def _why_refused(accuracy: Difference | None, kept_accuracy: float) -> str:
    """Return why an accuracy rules its model out; empty where it does not, or there is none to compare with."""
    if accuracy is None or accuracy.a is None:
        return ""
    if accuracy.change is None or accuracy.b is None:
        return f"its accuracy is unknown: {accuracy.note}"
    least = needed_value(accuracy.a, kept_accuracy, accuracy.better)
    if is_reached(accuracy.b, least, accuracy.better):
        return ""
    return f"{accuracy.unit} {accuracy.b:.4f} against {accuracy.a:.4f} keeps less than {percent(kept_accuracy)}"


def _ratio(of: Mapping[str, Difference], figure: str) -> float | None:
    return of[figure].change if figure in of else None


def _bounds(of: Mapping[str, Difference], speed: str) -> Bounds:
    """Return the interval of the ratio of latency or TPOT: 1 for the first, without end where it is not judged."""
    if speed not in of:
        return 1.0, 1.0
    low, high = of[speed].low, of[speed].high
    return (0.0, math.inf) if low is None or high is None else (low, high)


def _accuracy_gain(of: Mapping[str, Difference]) -> float:
    accuracy = of.get(ACCURACY)
    return 0.0 if accuracy is None or accuracy.change is None else gain(accuracy.change, accuracy.better)


def change_text(diff: Difference) -> str:
    """Return the change alone, for a table: a ratio as `0.714x`, an accuracy in points."""
    if diff.change is None:
        return "-"
    return f"{diff.change * 100:+.1f} points" if diff.figure in (ACCURACY, MISSED) else f"{significant(diff.change)}x"


def _claim(diff: Difference, change: float, other: str) -> str:
    # Only an accuracy can be alike without bounds.
    low, high = (change, change) if diff.low is None or diff.high is None else (diff.low, diff.high)
    if diff.figure == ACCURACY:
        return _accuracy_claim(diff, change, (low, high), other)
    if diff.figure == MISSED:
        return _missed_claim(diff, change, (low, high), other)
    doubt = _perhaps(diff, (low, high), "ratio", percent(diff.matters))
    if diff.figure in (ENERGY, TOKEN_ENERGY, CORRECT_ENERGY):
        return _energy_claim(diff, change, (low, high), other, doubt)
    if verb := _RATES.get(diff.figure):
        fast = f"as fast as {other} within {percent(diff.matters)}" if diff.state == "alike" else f"{significant(1 / change)} times as fast"
        bounds = f" ({diff.note})" * bool(diff.note) if diff.state == "alike" else f" (95% {span(1 / high, 1 / low)}{doubt})"
        return f"{verb} {fast}{bounds}"
    # A rate is high where a time is low.
    is_faster = (diff.state == "lower") == (diff.figure == LATENCY)
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


def _missed_claim(diff: Difference, change: float, bounds: Bounds, other: str) -> str:
    values = f"{share(diff.b)} against {share(diff.a)}"
    if diff.state == "alike":
        return f"misses as many frames as {other} within {points_text(diff.matters)} ({values})"
    low, high = bounds if change > 0 else (-bounds[1], -bounds[0])
    doubt = _perhaps(diff, bounds, "difference", points_text(diff.matters))
    difference_text = f"{abs(change) * 100:.1f} points {'more' if change > 0 else 'fewer'}"
    return f"misses {values} of the frames, {difference_text} (95% {low * 100:.1f} to {high * 100:.1f}{doubt})"


def _energy_claim(diff: Difference, change: float, bounds: Bounds, other: str, doubt: str) -> str:
    low, high = bounds
    energy = figure_name(diff.figure)
    if diff.state == "alike":
        return f"costs as much {energy} as {other} within {percent(diff.matters)}{f' ({diff.note})' if diff.note else ''}"
    if change >= 2:
        return f"costs {significant(change)} times the {energy} (95% {span(low, high)}{doubt})"
    changed = f"{significant(abs(change - 1) * 100)}% {'more' if change > 1 else 'less'}"
    low, high = (low - 1, high - 1) if change > 1 else (1 - high, 1 - low)
    return f"costs {changed} {energy} (95% {span(low * 100, high * 100)}%{doubt})"


def _text_quality(diff: Difference) -> str:
    """Return both values, and how sure their ratio is; by the byte where tokens are not the same."""
    values = f"{significant(diff.b, 4)} against {significant(diff.a, 4)}"
    if diff.figure != "perplexity":
        return f"{values} {diff.figure} ({diff.note})"
    bounds = "" if diff.low is None or diff.high is None else f" (95% of their ratio {span(diff.low, diff.high)})"
    return f"perplexity {values}{bounds}"


def _open(diff: Difference, change: float, other: str) -> str:
    note = f"; {diff.note}" if diff.note else ""
    if diff.figure in (ACCURACY, MISSED):
        bounds = "" if diff.low is None or diff.high is None else f", 95% {diff.low * 100:+.1f} to {diff.high * 100:+.1f}"
        return f"{diff.unit or figure_name(diff.figure)} ({change * 100:+.1f} points{bounds}{note})"
    bounds = "" if diff.low is None or diff.high is None else f", 95% {span(diff.low, diff.high)}"
    return f"{figure_name(diff.figure)} ({significant(change)} times {other}'s{bounds}{note})"


def _perhaps(diff: Difference, bounds: Bounds, scale: Scale, least: str) -> str:
    is_certain = decide(diff.change, bounds, diff.matters, scale).is_beyond_margin
    return ("" if is_certain else f", perhaps less than the {least} that matter") + (f"; {diff.note}" if diff.note else "")


def points_text(difference: float) -> str:
    """Return a difference of shares in points of 100: `1 point`, `0.5 points`."""
    return f"{difference * 100:g} point{'s' * (difference != 0.01)}"


def percent(ratio: float) -> str:
    """Return a margin as a percentage: `3%`, `0.5%`."""
    return f"{ratio * 100:.3g}%"
