"""One power mode of several: its figures, whether it holds a rate, and how it is set against another, in words."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from edgemeter.agent.base.decision import Decision, percent
from edgemeter.agent.base.figures import count, share, significant, span
from edgemeter.agent.base.run_statistics import MATTERS_RATIO
from edgemeter.agent.contract.pooled_misses import MOST_MISSED_RATIO, PooledMisses
from edgemeter.agent.contract.steady_facts import moment

_NO_CHANGE_RATIO = 5e-4  # Below it a change rounds to 0.0%.


class ModePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One mode: medians over its `runs` that count, null where they have none. `holds` is null where it is not clear, or nothing is held.

    `speed` is the latency in ms, of `offline` samples a second, of text tokens a second; `energy_mj` is of an inference, a frame or an
    output token, and null where the energies do not rank. `limited_by` is why a rate of queries is not held, `invalid` why the runs that
    were `left_out` do not count; for `woke_late` runs with missed frames Edgemeter itself woke up late.
    """

    name: str
    power_mode: str | None
    clocks: str
    runs: int
    left_out: int
    suspect: int
    speed: float | None
    energy_mj: float | None
    power_w: float | None
    missed: PooledMisses | None = None
    holds: bool | None = None
    limited_by: str | None = None
    invalid: str | None = None
    woke_late: int = 0


def held_text(points: Sequence[ModePoint], rate: str) -> str:
    """Return that modes hold a rate, or that they held it in their runs where these saw too few bursts to tell how often they come."""
    hold = "hold" if len(points) > 1 else "holds"
    misses = [point.missed for point in points if point.missed]
    if not misses:
        return f"{hold} {rate}"
    limit = f"with less than {percent(MOST_MISSED_RATIO)} missed" if any(missed.ratio for missed in misses) else "without a miss"
    if all(missed.is_rate_of_bursts_known for missed in misses):
        return f"{hold} {rate} {limit}"
    runs, lengths_s = {point.runs for point in points}, {missed.run_s for missed in misses}
    least = "at least " if len(runs) > 1 or len(lengths_s) > 1 else ""
    return f"held {rate} {limit} in {least}{count(min(runs), 'run')} of {moment(min(lengths_s))}"


def missing_text(point: ModePoint, hold: str = "", better: str = "") -> str:
    """Return that a mode does not hold the rate, or possibly; `hold` is the verb, where it does not stand before."""
    missed, is_open = point.missed, point.holds is not False
    verb = f"{better}possibly{hold.replace('hold', 'holds')}" if is_open else f"does not{hold}"
    if missed is None:
        return f"{point.name} {verb} ({point.limited_by})"
    limit = f", at most {share(missed.high_ratio)}" if is_open and missed.high_ratio is not None else ""
    frames = f"{missed.frames:,} frames" if is_open else "frames"
    advice = "; Edgemeter woke up late: measure again" if point.woke_late else ": measure longer" if is_open else ""
    return f"{point.name} {verb} ({share(missed.ratio)} of {frames} missed{limit}{advice})"


class RatioWords(NamedTuple):
    """The words of a ratio above 1, of one below, of one of two and more, and of none."""

    higher: str
    lower: str
    times: str
    alike: str


FASTER = RatioWords("faster", "slower", "times as fast", "as fast")
MORE = RatioWords("more", "less", "times as much", "as much")


def listed(names: Sequence[str]) -> str:
    """Return `7W, 15W and 25W`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def is_near(decision: Decision) -> bool:
    """Return whether a ratio is so near 1 that it does not matter."""
    return abs(math.log(decision.value or 1.0)) <= math.log1p(MATTERS_RATIO)


def change_text(decision: Decision, words: RatioWords, ends: tuple[str, str]) -> str:
    """Return a ratio as `38% more`: possibly where too few runs, or their interval, which is then stated, do not settle it.

    `ends` follow `as much` and `more`.
    """
    ratio, bounds, possibly = decision.value or 1.0, decision.bounds, "possibly " * (decision.outcome not in ("lower", "higher"))
    if decision.outcome == "alike":
        return f"{words.alike}{ends[0]} within {percent(MATTERS_RATIO)}"
    if abs(ratio - 1) < _NO_CHANGE_RATIO or (bounds is None and is_near(decision)):
        text = f"{possibly}{words.alike}{ends[0]}"
    elif ratio >= 2:
        text = f"{possibly}{significant(ratio)} {words.times}{ends[0]}"
    else:
        text = f"{possibly}{significant(abs(ratio - 1) * 100, 2)}% {words.higher if ratio > 1 else words.lower}{ends[1]}"
    if not possibly or bounds is None:
        return text
    low, high = (bound * 100 - 100 for bound in bounds)
    interval = span(*bounds) if ratio >= 2 else f"{span(low, high) if ratio >= 1 else span(-high, -low)}%"
    return f"{text} (95% {interval})"
