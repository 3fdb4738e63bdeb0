"""Rules on energy and power: what power and time give, and what a board can draw."""

import math
import re
from typing import NamedTuple

from edgemeter.agent.machine.board_limits import plain_name
from edgemeter.agent.machine.power_range import BOARDS, READING_RATIO, WALL_RATIO, PowerRange
from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rule import JudgedRow, PublishedRules, finding, largest, number, result, smallest

_WHOLE = ("energy",)
_OUTPUT = ("energy-output-token", "energy-decode-token")
_PREFILL = ("energy-prefill-token",)
# A power of these words is no mean, or lacks what the machine draws at rest.
_EXTREME = ("peak", "maximum", "max power", "max. power")
_NET = re.compile(r"\bnet\b|\bidle\b|dynamic|baseline|incremental|marginal|differential|active energy", re.IGNORECASE)
# An energy may hold more than a latency that stands beside it, such as a request over HTTP; not more than so many times as much.
OVERHEAD_TIMES = 20.0

ENERGY_RULES = PublishedRules()


class UnitTime(NamedTuple):
    """The time of one inference, request or token: as stated, at least and at most by rounding, s, and in words.

    `is_whole`: it is the time from one to the next, however many are on their way at once.
    """

    stated_s: float
    least_s: float
    most_s: float
    words: str
    is_whole: bool


@ENERGY_RULES.rule(
    "energy is not below the stated mean power x the time of one inference or token",
    "energy is power x time: less means that the two were not measured together, or not on the same parts",
)
def _energy_below_power(judged: JudgedRow) -> Evidence | None:
    row, power, time = judged.row, judged.companion("power"), _time(judged)
    if row.figure not in (*_WHOLE, *_OUTPUT, *_PREFILL) or power is None or time is None or _is_extreme(power):
        return None
    if row.scope != power.scope and row.scope is not None and power.scope is not None:
        return None
    stated_mj, power_w = row.canonical[0], power.canonical[0]
    needed_mj, least_mj = power_w * time.stated_s * 1000, smallest(power) * time.least_s * 1000
    sums = f"{number(power_w)} W x {time.words} = {result(needed_mj)} mJ, and {number(stated_mj)} mJ are stated"
    values = (stated_mj, needed_mj, "mJ")
    if largest(row) >= least_mj:
        return finding("plausible", f"{sums}: not below what power and time give", *values)
    if row.scope != power.scope or _NET.search(judged.text):
        return finding("unclear", f"{sums}: possible only if the two have different scopes, which are not both stated", *values)
    if not time.is_whole and judged.is_on_cpu is not True:
        return finding("unclear", f"{sums}: possible only if several inferences ran at once, and their number is not stated", *values)
    return finding("impossible", f"{sums}: energy below what the stated power and time give{_one_user(judged)}", *values)


@ENERGY_RULES.rule(
    "mean power, stated or as energy / time, lies within what the board can draw",
    "a shunt wrong by 10 times or a unit by 1000 times leaves the range of the supply; a gross energy includes idle power",
)
def _power_outside_board(judged: JudgedRow) -> Evidence | None:
    row = judged.row
    power = _drawn(judged)
    if power is None:
        return None
    stated_w, least_w, most_w, words, is_whole = power
    limits = power_limits(judged)
    if limits is None:
        return finding(
            "unclear", f"{words} cannot be checked against what the board can draw: no bound of this board is on record ({row.device})"
        )
    devices = judged.limits.devices or 1
    highest_w, factors = _highest(row, limits, devices)
    lowest_w = limits.lowest_in(row.scope) * devices if row.scope and row.figure != "energy-net" else 0.0
    several = f"{devices} x " if devices > 1 else ""
    at_most = f"{words}, and {several}{limits.machine} draws at most {factors} W (what its supply gives, attached devices included)"
    if least_w > highest_w and not is_whole and least_w <= OVERHEAD_TIMES * highest_w:
        return finding("unclear", f"{at_most}: possible only if the energy covers more than the inference", stated_w, highest_w, "W")
    if least_w > highest_w:
        return finding("impossible", f"{at_most}: impossible", stated_w, highest_w, "W")
    is_gross = _NET.search(judged.text) is None
    if most_w < lowest_w and is_gross:
        at_least = (
            f"{words}, and {several}{limits.machine} draws at least {number(lowest_w)} W while it runs (about half of its idle power)"
        )
        return finding("impossible", f"{at_least}: impossible with the scope {row.scope}{_one_user(judged)}", stated_w, lowest_w, "W")
    return finding("plausible", f"{at_most}: possible", stated_w, highest_w, "W")


def _highest(row: PublishedRow, limits: PowerRange, devices: int) -> tuple[float, str]:
    """Return the most that the board draws in the scope of a row, W, and its factors."""
    board_w = (limits.highest_w if row.scope in {None, "wall-ac"} else limits.highest_in(row.scope)) * devices
    ratios = [
        *([(WALL_RATIO, "supply losses, in case it was measured at the wall")] if row.scope is None else []),
        *([(WALL_RATIO, "supply losses")] if row.scope == "wall-ac" else []),
        *([(READING_RATIO, "allowance for a peak")] if _is_extreme(row) else []),
    ]
    highest_w = board_w * math.prod(ratio for ratio, _ in ratios)
    factors = "".join(f" x {ratio:g} ({why})" for ratio, why in ratios)
    return highest_w, f"{number(board_w)}{f' W{factors} = {number(highest_w)}' if factors else ''}"


def power_limits(judged: JudgedRow) -> PowerRange | None:
    """Return what the board may draw; None where it is not on record, or has a part with a supply of its own."""
    limits = judged.limits
    if limits.devices is None or not limits.is_complete or any(limits.board is None or part.kind == "card" for part in limits.added):
        return None
    name = plain_name(judged.row.device)
    return next((board_range for word, board_range in BOARDS if word.replace("-", " ") in name), None)


def _drawn(judged: JudgedRow) -> tuple[float, float, float, str, bool] | None:
    """Return the power that a row states, or that energy / time is, W: as stated, at least and at most, in words; whether it is whole."""
    row, value = judged.row, judged.row.canonical[0]
    if row.figure == "power":
        return value, smallest(row), largest(row), f"{number(value)} W", True
    time = _time(judged)
    if time is None or row.figure not in (*_WHOLE, *_OUTPUT, *_PREFILL):
        return None
    # A latency may be that of one of several on their way: only what is too much is sure.
    most_w = largest(row) / time.least_s / 1000 if time.is_whole else float("inf")
    stated_w = value / time.stated_s / 1000
    divisor = f"({time.words})" if " / " in time.words else time.words
    return stated_w, smallest(row) / time.most_s / 1000, most_w, f"{number(value)} mJ / {divisor} = {result(stated_w)} W", time.is_whole


def _time(judged: JudgedRow) -> UnitTime | None:
    """Return the time of one inference or token by the companions; a request of a language model has a time of its own."""
    figure = judged.row.figure
    answers = judged.users or 1
    if figure in _OUTPUT:
        if rate := judged.companion("output-tokens", "tokens"):
            return _of_rate(rate, "tokens/s", answers if rate.figure == "tokens" else 1)
        return _of_time(judged.companion("tpot"), answers, is_whole=True)
    if figure in _PREFILL:
        rate = judged.companion("prefill-tokens")
        return _of_rate(rate, "prompt tokens/s", 1) if rate else None
    if rate := judged.companion("throughput"):
        return _of_rate(rate, "inferences/s", 1)
    return _of_time(judged.companion("latency-mean", "latency"), answers, is_whole=False)


def _of_rate(rate: PublishedRow, unit: str, answers: int) -> UnitTime:
    """Return the time between two tokens or inferences; a rate of one of several users is that of all times their number at most."""
    value = rate.canonical[0]
    several = f" / {answers}" if answers > 1 else ""
    return UnitTime(1 / value / answers, 1 / largest(rate) / answers, 1 / smallest(rate), f"1 / {number(value)} {unit}{several}", True)


def _of_time(time: PublishedRow | None, answers: int, *, is_whole: bool) -> UnitTime | None:
    if time is None:
        return None
    value, several = time.canonical[0], f" / {answers}" if answers > 1 else ""
    least_s, most_s = smallest(time) / 1000 / answers, largest(time) / 1000
    return UnitTime(value / 1000 / answers, least_s, most_s, f"{number(value)} ms{several}", is_whole and answers == 1)


def _is_extreme(power: PublishedRow) -> bool:
    words = power.conditions.casefold()
    return power.statistic not in {None, "mean", "median"} or any(word in words for word in _EXTREME)


def _one_user(judged: JudgedRow) -> str:
    return "" if judged.users else " (one at a time: no batch is stated)"
