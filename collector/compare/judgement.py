"""Judgements: what a ratio and its interval say, in one word for machines and in a sentence for people.

A difference counts where the whole 95 % interval lies beyond the smallest difference that matters; there is none that matters where it lies
within. Between the two stands what is known: which way it goes, but not by enough; or that it is not settled, and what would settle it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.collector.compare.interval import FEWEST, Interval
from edgemeter.collector.compare.spread import Spread

State = Literal["lower", "higher", "alike", "perhaps lower", "perhaps higher", "not settled", "not enough runs", "other class"]

# The smallest differences that matter: of ratios, and of accuracies (0..1) in their own unit.
MATTERS_RATIO = 0.03
MATTERS_ACCURACY = 0.005
# More than this nobody measures: then nothing is foreseen.
FORESEEN = 1000


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state, of the case against its reference, and the same in words."""

    state: State
    words: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure that is judged: how it is called when it is lower or higher than the reference's, and how its ratio is read."""

    lower: str
    higher: str
    ratio: str


LATENCY = Quantity("faster", "slower", "times as long")
THROUGHPUT = Quantity("fewer a second", "more a second", "times as many a second")
ENERGY = Quantity("less energy", "more energy", "times the energy")


def of_ratio(
    quantity: Quantity, ratio: float, bounds: tuple[float, float] | None, sides: Sequence[Spread], matters_ratio: float, why_none: str = ""
) -> Judgement:
    """Return the judgement on a ratio; `sides` are the two figures that it is made of, `why_none` says why it has no bounds."""
    told = f"{_rounded(ratio)} {quantity.ratio}"
    if bounds is None:
        return Judgement("not enough runs", f"{why_none or _too_few(sides)}: {told}, without an interval")
    low, high = bounds
    shown = f"{told} (95 %: {_rounded(low)} to {_rounded(high)}, {_basis(sides)})"
    limit = math.log1p(matters_ratio)
    state = _state(math.log(low), math.log(high), limit)
    if state == "alike":
        return Judgement(state, f"no difference that matters: {shown}")
    if state == "not settled":
        return Judgement(state, f"not settled: {shown}{_foresight(ratio, bounds, sides, limit)}")
    way = quantity.lower if state.endswith("lower") else quantity.higher
    doubt = f", perhaps by less than the {matters_ratio:.0%} that matter" if state.startswith("perhaps") else ""
    return Judgement(state, f"{way}{doubt}: {shown}")


def of_accuracy(name: str, own: float, other: float, bounds: tuple[float, float] | None, images: int, matters: float) -> Judgement:
    """Return the judgement on a difference of accuracies (0..1) over the same images; `bounds` are those of the difference."""
    told = f"{name} {own:.3f} against {other:.3f}"
    if own == other:
        return Judgement("alike", f"the same {told}")
    if bounds is None:
        return Judgement("not enough runs", f"no bounds are recorded: {told}, {own - other:+.3f}")
    shown = f"{told}, {own - other:+.3f} (95 %: {bounds[0]:+.3f} to {bounds[1]:+.3f} over {images} images)"
    state = _state(*bounds, matters)
    ways = {"lower": "less accurate", "higher": "more accurate", "alike": "no difference that matters", "not settled": "not told apart"}
    way = ways[state.removeprefix("perhaps ")]
    doubt = ", perhaps by less than matters" if state.startswith("perhaps") else ""
    return Judgement(state, f"{way}{doubt}: {shown}")


def other_class(quantity: Quantity, ratio: float, bounds: tuple[float, float] | None, own: str, other: str) -> Judgement:
    """Return that a ratio of two classes of precision is no verdict: like is not compared with like."""
    shown = f" (95 %: {_rounded(bounds[0])} to {_rounded(bounds[1])})" if bounds else ""
    return Judgement("other class", f"no verdict, {own} against {other}: {_rounded(ratio)} {quantity.ratio}{shown}")


def _state(low: float, high: float, limit: float) -> State:
    """Judge an interval around 0 by how it lies to -limit, 0 and +limit."""
    if -limit <= low and high <= limit:
        return "alike"
    if low > 0:
        return "higher" if low > limit else "perhaps higher"
    if high < 0:
        return "lower" if high < -limit else "perhaps lower"
    return "not settled"


def _rounded(ratio: float) -> str:
    # Near 1 the third decimal still tells 2 % from 3 %.
    return f"{ratio:.3f}" if 0.5 < ratio < 2 else f"{ratio:.3g}"


def _intervals(sides: Sequence[Spread]) -> list[Interval]:
    return [side.interval for side in sides if side.interval]


def _basis(sides: Sequence[Spread]) -> str:
    """Return what the interval rests on, and what therefore is not in it."""
    found = _intervals(sides)
    over = " against ".join(one.over for one in found)
    narrow = [one for one in found if one.level == "run"]
    if not narrow:
        return over
    days, devices = min(one.days for one in narrow), max(one.devices for one in narrow)
    where = " and ".join(["one day" if days == 1 else f"{days} days", *([f"{devices} devices"] if devices > 1 else [])])
    return f"{over}; from {where} only"


def _too_few(sides: Sequence[Spread]) -> str:
    runs = " against ".join(f"{side.n}" for side in sides)
    return f"not enough runs ({runs}; an interval takes {FEWEST} each)"


def _foresight(ratio: float, bounds: tuple[float, float], sides: Sequence[Spread], limit: float) -> str:
    """Return about how many more members would settle it, if the ratio and the spread are what they seem."""
    reach = max(math.log(bounds[1] / ratio), math.log(ratio / bounds[0]))
    room = abs(abs(math.log(ratio)) - limit)
    least = min(_intervals(sides), key=lambda one: one.members)
    wanted = least.members * (reach / room) ** 2 if room > 0 else math.inf
    if wanted > FORESEEN:
        return "; with this spread, so near the limit, no sensible number of runs would settle it"
    more = max(1, math.ceil(wanted) - least.members)
    return f"; about {more} more {least.level}{'s' * (more > 1)} on each side would settle it"
