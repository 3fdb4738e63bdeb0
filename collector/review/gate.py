"""The gate of a review: limits that a change must keep, `slower:3%,energy:5%,ap:0.5`, and what became of each.

A limit is broken where the figure is worse by more than it and the 95 % interval shows that it is worse at all. Where too few runs give no
interval, a figure beyond the limit breaks it too: a gate that cannot tell does not open. A limit that no case has a figure for is broken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.compare.ratios import Bounds
from edgemeter.collector.review.review import Pair, Review

Outcome = Literal["kept", "broken", "not judged"]
EXAMPLE = "slower:3%,energy:5%,ap:0.5"


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a figure may be worse: a ratio, or of accuracy the difference (0..1). `text` is how it was written."""

    figure: str
    by: float
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one limit for one case (None: for all of them)."""

    limit: Limit
    case: str | None
    outcome: Outcome
    words: str


@dataclass(frozen=True, slots=True)
class _Worse:
    """By how much a figure is worse than the baseline's: of ratios the ratio that is above 1 when it is worse."""

    value: float
    bounds: Bounds | None


def parse(text: str) -> tuple[Limit, ...]:
    """Return the limits in `text`.

    Raises:
        ConfigError: it is no such list.
    """
    return tuple(_limit(part.strip(), text) for part in text.split(","))


def judge(review: Review, limits: Sequence[Limit]) -> list[Finding]:
    """Return what became of each limit for each case, and the cases that the change lost."""
    found: list[Finding] = []
    for limit in limits:
        of_limit = [_judged(pair, limit) for pair in review.pairs]
        found += of_limit
        if not any(one.outcome != "not judged" for one in of_limit):
            found.append(Finding(limit, None, "broken", f"no case could be judged by {limit.text}"))
        found += [Finding(limit, left.what, "broken", left.reason) for left in review.left_out if left.is_lost]
    return found


def is_broken(findings: Sequence[Finding]) -> bool:
    """Return whether any limit is."""
    return any(finding.outcome == "broken" for finding in findings)


def _slower(pair: Pair) -> _Worse | str:
    ratios = pair.ratios
    if pair.case.key.scenario == "offline":
        inverse = None if ratios.throughput is None else 1 / ratios.throughput
        bounds = ratios.throughput_interval
        return _of_ratio(inverse, (1 / bounds[1], 1 / bounds[0]) if bounds else None, "no throughput on both sides")
    return _of_ratio(ratios.p50, ratios.p50_interval, "no p50 on both sides: too few queries")


def _energy(pair: Pair) -> _Worse | str:
    if pair.case.energy is None or pair.baseline.energy is None:
        return f"no energy: {pair.case.energy_reason or pair.baseline.energy_reason}"
    return _of_ratio(pair.ratios.energy_gross, pair.ratios.energy_gross_interval, "the energies are of different scopes")


def _memory(pair: Pair) -> _Worse | str:
    own, other = pair.case.peak_mb, pair.baseline.peak_mb
    # Peak memory hardly varies from run to run: the ranges stand for an interval.
    bounds = (own.low / other.high, own.high / other.low) if own and other and own.n > 1 and other.n > 1 else None
    return _of_ratio(pair.ratios.peak_memory, bounds, "no memory on both sides")


def _accuracy(pair: Pair) -> _Worse | str:
    if pair.ratios.accuracy_difference is None:
        return (
            f"no accuracy of one metric on the same images: {pair.case.accuracy_reason or pair.baseline.accuracy_reason or 'they differ'}"
        )
    # Both are of the same images, and a model answers the same each time: the difference is what it is.
    return _Worse(-pair.ratios.accuracy_difference, (-pair.ratios.accuracy_difference,) * 2)


def _of_ratio(ratio: float | None, bounds: Bounds | None, why_none: str) -> _Worse | str:
    return why_none if ratio is None else _Worse(ratio - 1, (bounds[0] - 1, bounds[1] - 1) if bounds else None)


FIGURES: Mapping[str, Callable[[Pair], _Worse | str]] = {"slower": _slower, "energy": _energy, "memory": _memory, "ap": _accuracy}


def _limit(part: str, text: str) -> Limit:
    figure, _, by = part.partition(":")
    try:
        value = float(by.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    is_share = by.endswith("%")
    if figure not in FIGURES or is_share == (figure == "ap") or not 0 <= value < 10:
        message = (
            f"{part!r} in {text!r} is no limit: write {EXAMPLE}; {', '.join(one for one in FIGURES if one != 'ap')} take a percentage, "
            "ap takes points of 100"
        )
        raise ConfigError(message)
    return Limit(figure, value, part)


def _judged(pair: Pair, limit: Limit) -> Finding:
    found = FIGURES[limit.figure](pair)
    if isinstance(found, str):
        return Finding(limit, pair.name, "not judged", found)
    told = f"{-found.value * 100:+.2f} points" if limit.figure == "ap" else f"{found.value:+.1%}"
    # 0.625 - 0.620 is a little more than 0.005 to a computer.
    is_beyond = found.value > limit.by + 1e-9
    if found.bounds is None:
        words = f"{told}, without an interval: at least three runs on each side tell whether that is chance"
        return Finding(limit, pair.name, "broken" if is_beyond else "not judged", words)
    if is_beyond and found.bounds[0] <= 0:
        return Finding(
            limit, pair.name, "not judged", f"{told}, but that may be chance ({_interval(found.bounds)}): more runs would settle it"
        )
    words = told if limit.figure == "ap" else f"{told} ({_interval(found.bounds)})"
    return Finding(limit, pair.name, "broken" if is_beyond else "kept", words)


def _interval(bounds: Bounds) -> str:
    return f"95 %: {bounds[0]:+.1%} to {bounds[1]:+.1%}"
