"""Rules on energy and power: what power and time give, what a board can draw, and what operations and memory take at least."""

import math
import re
from typing import NamedTuple

from edgemeter.agent.machine.board_limits import plain_name
from edgemeter.agent.machine.power_range import BOARDS, READING_RATIO, WALL_RATIO, PowerRange
from edgemeter.collector.published.judgement import Evidence, PublishedState
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rule import JudgedRow, PublishedRules, finding, largest, number, result, smallest
from edgemeter.collector.published.speed_rules import LEAST_SIDE

_WHOLE = ("energy",)
_OUTPUT = ("energy-output-token", "energy-decode-token")
_PREFILL = ("energy-prefill-token",)
# A power of these words is no mean, or lacks what the machine draws at rest.
_EXTREME = ("peak", "maximum", "max power", "max. power")
_NET = re.compile(r"\bnet\b|(?<!W )\bidle\b(?! power)|dynamic|baseline|incremental|marginal|differential|active energy", re.IGNORECASE)
# An energy may hold more than a latency that stands beside it, such as a request over HTTP; not more than so many times as much.
OVERHEAD_TIMES = 20.0
# Ten times the best accelerator: 18 x 10^15 operations/s of 4 bits, skipped zeros counted, at 1,000 W. Source: NVIDIA HGX B200 data sheet.
BEST_TOPS_PER_W, MOST_TOPS_PER_W = 18.0, 200.0
# A tenth of what a read of HBM2 takes; LPDDR and GDDR take more. Source: O'Connor et al., "Fine-Grained DRAM", MICRO 2017: 3.92 pJ/bit.
HBM_PJ_PER_BIT, LEAST_PJ_PER_BIT = 3.92, 0.39

ENERGY_RULES = PublishedRules()


class UnitTime(NamedTuple):
    """The time of one inference, request or token: as stated, at least and at most by rounding, s.

    `factor` and `divisor` are how a sum is multiplied and divided by it, in words. `is_whole`: it is the time from one to the next, however
    many are on their way at once.
    """

    stated_s: float
    least_s: float
    most_s: float
    factor: str
    divisor: str
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
    sums = f"{number(power_w)} W {time.factor} = {result(needed_mj)} mJ, and {number(stated_mj)} mJ are stated"
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
    lowest_w = limits.lowest_in(row.scope or "board-input") * devices
    board = f"{devices} x {limits.machine}" if devices > 1 else limits.machine
    at_most = f"{words}, and {board} draws at most {factors} W (a bound of ours, beyond its makers' ratings: {limits.supply})"
    if least_w > highest_w and not is_whole and least_w <= OVERHEAD_TIMES * highest_w:
        return finding("unclear", f"{at_most}: possible only if the energy covers more than the inference", stated_w, highest_w, "W")
    if least_w > highest_w:
        return finding("impossible", f"{at_most}: impossible", stated_w, highest_w, "W")
    if most_w < lowest_w and _NET.search(judged.text) is None:
        at_least = f"{words}, and {board} draws at least {number(lowest_w)} W while it runs (about half of its idle power)"
        state, why = _below_idle(judged, is_whole=is_whole)
        return finding(state, f"{at_least}: {why}", stated_w, lowest_w, "W")
    return finding("plausible", f"{at_most}: possible{_rounded(stated_w, highest_w)}", stated_w, highest_w, "W")


@ENERGY_RULES.rule(
    f"energy is not below operations / {MOST_TOPS_PER_W:g} TOPS/W",
    f"the best accelerator does {BEST_TOPS_PER_W:g} TOPS/W (NVIDIA B200, 4 bits, sparse); ten times as many are allowed for",
)
def _energy_below_operations(judged: JudgedRow) -> Evidence | None:
    row, facts = judged.row, judged.model
    if row.figure in (*_OUTPUT, *_PREFILL):
        weights = facts.prompt_parameters / 1e9 if facts and facts.prompt_parameters else 0.0
        gop = least_gop = 2 * weights
        words = f"2 operations x {number(weights)} x 10^9 weights"
    elif row.figure in (*_WHOLE, "energy-net") and not (facts and facts.read_parameters):
        gop, least_gop = _gop(judged)
        words = f"{number(gop)} Gop per inference"
    else:
        return None
    stated_mj, needed_mj = row.canonical[0], gop / MOST_TOPS_PER_W
    if largest(row) >= needed_mj:
        return None
    best = f"ten times better than the best accelerator, NVIDIA's B200 with {BEST_TOPS_PER_W:g} TOPS/W"
    sums = f"{words} / {MOST_TOPS_PER_W:g} TOPS/W ({best}) = {result(needed_mj)} mJ, and {number(stated_mj)} mJ are stated"
    if largest(row) >= least_gop / MOST_TOPS_PER_W:
        return _below(judged, sums, needed_mj, "possible only with a smaller input, whose size is not stated")
    is_cached = row.figure in _PREFILL and judged.has_cache
    return _below(judged, sums, needed_mj, "possible only if part of the prompt came from a cache" if is_cached else "")


@ENERGY_RULES.rule(
    f"energy per output token is not below the bits of the weights x {LEAST_PJ_PER_BIT:g} pJ",
    f"a read of HBM2 takes {HBM_PJ_PER_BIT:g} pJ/bit (O'Connor et al., MICRO 2017), other memory more; a tenth of that is the bound",
)
def _energy_below_reading(judged: JudgedRow) -> Evidence | None:
    row, weights = judged.row, judged.weights()
    if row.figure not in _OUTPUT or isinstance(weights, str):
        return None
    users = judged.users or 1
    mj_per_mb = 8e-3 * LEAST_PJ_PER_BIT
    stated_mj, needed_mj = row.canonical[0], weights.mb * mj_per_mb / users
    if largest(row) >= max(weights.least_mb - judged.cache_mb(), 0.0) * mj_per_mb / users:
        return None
    shared = f" / {users} answers at once" if users > 1 else ""
    memory = f"a tenth of what HBM2 takes, {HBM_PJ_PER_BIT:g} pJ/bit by O'Connor et al., MICRO 2017"
    sums = f"{weights.text}, x 8 bits x {LEAST_PJ_PER_BIT:g} pJ ({memory}){shared} = {result(needed_mj)} mJ"
    unstated = [] if judged.users else ["a batch"]
    unstated += [] if judged.speculates is False else ["speculative decoding"]
    tokens = f"{result(needed_mj / stated_mj)} {'times as many ' if users > 1 else ''}tokens share a reading"
    explanation = f"possible only if {tokens}, by {' or '.join(unstated)}, which is not stated" if unstated else ""
    return _below(judged, f"{sums}, and {number(stated_mj)} mJ are stated", needed_mj, explanation)


def _below(judged: JudgedRow, sums: str, needed_mj: float, explanation: str = "") -> Evidence:
    """Return the evidence on an energy that is too small: what could still explain it, or parts that are not on record, or not covered."""
    row, limits = judged.row, judged.limits
    if not explanation and row.scope == "soc-rails":
        explanation = "possible only if rails that are not covered take the difference"
    if not explanation and not (limits.is_complete and (limits.board or limits.added)):
        explanation = f"no bound of this board is on record ({row.device}), and its parts may be of another kind"
    return finding("unclear" if explanation else "impossible", f"{sums}: {explanation or 'impossible'}", row.canonical[0], needed_mj, "mJ")


def _gop(judged: JudgedRow) -> tuple[float, float]:
    """Return the operations of one inference, 10^9: by what is stated or usual, and with the smallest input that may be meant."""
    if judged.row.gop is not None:
        return judged.row.gop, judged.row.gop
    by_side = judged.model.gop if judged.model else {}
    usual = next(iter(by_side), 0)
    side = judged.side(usual)

    def at(pixels: int) -> float:
        return min((gop * (pixels / listed) ** 2 for listed, gop in by_side.items()), default=0.0)

    return at(side or usual), at(side or LEAST_SIDE)


def _below_idle(judged: JudgedRow, *, is_whole: bool) -> tuple[PublishedState, str]:
    """Return what a power below that at rest means, and in words what could explain it."""
    row = judged.row
    if not is_whole:
        return "unclear", "possible only if more inferences ran at once than are stated"
    if row.scope is None:
        return "unclear", "possible only of a part of it, and what is covered is not stated"
    return "impossible", f"impossible with the scope {row.scope}{'' if row.figure == 'power' else _one_user(judged)}"


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
    stated_w, most_w = value / time.stated_s / 1000, largest(row) / time.least_s / 1000
    return stated_w, smallest(row) / time.most_s / 1000, most_w, f"{number(value)} mJ {time.divisor} = {result(stated_w)} W", time.is_whole


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
    least_s, most_s = 1 / largest(rate) / answers, 1 / smallest(rate)
    return UnitTime(1 / value / answers, least_s, most_s, *_sums(f"/ {number(value)} {unit}", f"x {number(value)} {unit}", answers), True)


def _of_time(time: PublishedRow | None, answers: int, *, is_whole: bool) -> UnitTime | None:
    if time is None:
        return None
    value, least_s, most_s = time.canonical[0], smallest(time) / 1000 / answers, largest(time) / 1000
    words = _sums(f"x {number(value)} ms", f"/ {number(value)} ms", answers)
    return UnitTime(value / 1000 / answers, least_s, most_s, *words, is_whole and answers == 1)


def _sums(factor: str, divisor: str, answers: int) -> tuple[str, str]:
    return (f"{factor} / {answers}", f"{divisor} x {answers}") if answers > 1 else (factor, divisor)


def _is_extreme(power: PublishedRow) -> bool:
    words = power.conditions.casefold()
    return power.statistic not in {None, "mean", "median"} or any(word in words for word in _EXTREME)


def _rounded(stated_w: float, limit_w: float) -> str:
    return " within the rounding of what is stated" if stated_w > limit_w else ""


def _one_user(judged: JudgedRow) -> str:
    return "" if judged.users else " (one at a time: no batch is stated)"
