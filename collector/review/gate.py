"""The gate of a review: limits that a change must keep, `slower:3%,energy:5%,ap:0.5`, and what became of each.

A limit is violated where the figure is worse by more than it and the 95% interval shows that it is worse at all. If too few runs give no
interval, a figure beyond the limit violates it too: in doubt a gate stays closed. A limit that no case has a figure for is violated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import gain
from edgemeter.collector.compare.judgement import Bounds
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.review.review import Review, ReviewPair

Outcome = Literal["kept", "broken", "not judged"]
# What differs between boards of one type.
OF_THE_BOARD = frozenset({"slower", "energy"})
EXAMPLE = "slower:3%,energy:5%,ap:0.5"


@dataclass(frozen=True, slots=True)
class GateLimit:
    """By how much a figure may be worse: a ratio, or of accuracy the difference (0..1). `text` is how it was written."""

    figure: str
    by: float
    text: str


@dataclass(frozen=True, slots=True)
class GateFinding:
    """What became of one limit for one case (None: for all of them)."""

    limit: GateLimit
    case: str | None
    outcome: Outcome
    words: str


@dataclass(frozen=True, slots=True)
class _Worse:
    """By how much a figure is worse than the baseline's: of ratios the ratio that is above 1 when it is worse."""

    value: float
    bounds: Bounds | None


def parse(text: str) -> tuple[GateLimit, ...]:
    """Return the limits in `text`.

    Raises:
        ConfigError: it is no such list.
    """
    return tuple(_limit(part.strip(), text) for part in text.split(","))


def judge(review: Review, limits: Sequence[GateLimit]) -> list[GateFinding]:
    """Return what became of each limit for each case, and the cases that the change lost.

    Raises:
        ConfigError: a speed or an energy would be judged across two boards, which differ by themselves.
    """
    _refuse_other_boards(review, limits)
    found: list[GateFinding] = []
    for limit in limits:
        of_limit = [_judged(pair, limit) for pair in review.pairs]
        found += of_limit
        if not any(one.outcome != "not judged" for one in of_limit):
            found.append(GateFinding(limit, None, "broken", f"{limit.text} applies to no case"))
        found += [GateFinding(limit, left.what, "broken", left.reason) for left in review.left_out if left.is_lost]
    return found


def _refuse_other_boards(review: Review, limits: Sequence[GateLimit]) -> None:
    """One board on each side does not tell a change from the spread of its type: at 2% one pair of seven breaks a limit of 3%."""
    limit = next((one for one in limits if one.figure in OF_THE_BOARD), None)
    other = next((pair for pair in review.pairs if _board(pair.case) != _board(pair.baseline)), None)
    if limit is not None and other is not None:
        raise ConfigError(
            f"{limit.text} cannot be judged across two boards ({other.baseline.key.device} and {other.case.key.device}), because boards of "
            "one type differ by themselves: measure both sides on one board; memory and ap can be limited across boards"
        )


def _board(case: CaseSummary) -> tuple[str, str]:
    return case.key.fleet, case.key.device


def is_broken(findings: Sequence[GateFinding]) -> bool:
    """Return whether any limit is."""
    return any(finding.outcome == "broken" for finding in findings)


def _slower(pair: ReviewPair) -> _Worse | str:
    ratios = pair.ratios
    if pair.case.key.scenario == "offline":
        inverse = None if ratios.throughput is None else 1 / ratios.throughput
        bounds = ratios.throughput_interval
        return _of_ratio(inverse, (1 / bounds[1], 1 / bounds[0]) if bounds else None, "no throughput on both sides")
    return _of_ratio(ratios.p50, ratios.p50_interval, "no p50 on both sides: too few queries")


def _energy(pair: ReviewPair) -> _Worse | str:
    if pair.case.energy is None or pair.baseline.energy is None:
        return f"no energy: {pair.case.energy_reason or pair.baseline.energy_reason}"
    return _of_ratio(pair.ratios.energy_gross, pair.ratios.energy_gross_interval, "the energies are of different scopes or provenance")


def _memory(pair: ReviewPair) -> _Worse | str:
    own, other = pair.case.spread("memory_peak_mb"), pair.baseline.spread("memory_peak_mb")
    # Peak memory hardly varies from run to run: the ranges serve as an interval.
    bounds = (own.low / other.high, own.high / other.low) if own and other and own.n > 1 and other.n > 1 else None
    return _of_ratio(pair.ratios.peak_memory, bounds, "no memory on both sides")


def _accuracy(pair: ReviewPair) -> _Worse | str:
    if pair.ratios.accuracy_difference is None:
        return (
            f"no accuracy of one metric on the same images: {pair.case.accuracy_reason or pair.baseline.accuracy_reason or 'they differ'}"
        )
    # Both are of the same images, and a model predicts the same each time: the difference is exact.
    better = pair.case.accuracy.better if pair.case.accuracy else "higher"
    lost = -gain(pair.ratios.accuracy_difference, better)
    return _Worse(lost, (lost, lost))


def _of_ratio(ratio: float | None, bounds: Bounds | None, why_none: str) -> _Worse | str:
    return why_none if ratio is None else _Worse(ratio - 1, (bounds[0] - 1, bounds[1] - 1) if bounds else None)


FIGURES: Mapping[str, Callable[[ReviewPair], _Worse | str]] = {"slower": _slower, "energy": _energy, "memory": _memory, "ap": _accuracy}


def _limit(part: str, text: str) -> GateLimit:
    figure, _, by = part.partition(":")
    try:
        value = float(by.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    is_share = by.endswith("%")
    if figure not in FIGURES or is_share == (figure == "ap") or not 0 <= value < 10:
        raise ConfigError(
            f"{part!r} in {text!r} is not a limit: write {EXAMPLE}; {', '.join(one for one in FIGURES if one != 'ap')} take a percentage, "
            "ap takes points of 100"
        )
    return GateLimit(figure, value, part)


def _judged(pair: ReviewPair, limit: GateLimit) -> GateFinding:
    found = FIGURES[limit.figure](pair)
    if isinstance(found, str):
        return GateFinding(limit, pair.name, "not judged", found)
    text = f"{-found.value * 100:+.2f} points" if limit.figure == "ap" else f"{found.value:+.1%}"
    # 0.625 - 0.620 is a little more than 0.005 to a computer.
    is_beyond = found.value > limit.by + 1e-9
    if found.bounds is None:
        words = f"{text}, without an interval: three or more runs on each side show whether that is chance"
        return GateFinding(limit, pair.name, "broken" if is_beyond else "not judged", words)
    if is_beyond and found.bounds[0] <= 0:
        return GateFinding(
            limit, pair.name, "not judged", f"{text}, but that may be chance ({_interval(found.bounds)}): more runs would settle it"
        )
    words = text if limit.figure == "ap" else f"{text} ({_interval(found.bounds)})"
    return GateFinding(limit, pair.name, "broken" if is_beyond else "kept", words)


def _interval(bounds: Bounds) -> str:
    return f"95%: {bounds[0]:+.1%} to {bounds[1]:+.1%}"
