"""Three laws of physics bound every published figure.

They bound the memory traffic, the operations of the compute units, and the power of the board.

Every doubt counts in favour of a figure: the bounds in `machine/board_limits.toml` are upper ones,
and a stated value may have been rounded. A figure that a law cannot check, or that only an unstated
fact could explain, is unclear.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from edgemeter.agent.base.number_text import significant
from edgemeter.agent.contract.figures import ENERGY, THROUGHPUT, TOKEN_ENERGY, TPOT, TTFT
from edgemeter.agent.machine.board_limits import BoardLimit, limits_named, plain_name
from edgemeter.agent.machine.power_range import READING_RATIO, WALL_RATIO, PowerRange, board_ranges
from edgemeter.collector.published.models import ModelFacts, facts_of, least_bits
from edgemeter.collector.published.row import PublishedRow, rounding

State = Literal["impossible", "unclear", "plausible"]
# The smallest weights that are published: ternary ones, packed.
LEAST_BITS = 1.5
# Weights smaller than this may fit into caches, and reveal nothing of the memory bandwidth.
LEAST_WEIGHTS_MB = 64.0
# Boards are sold at a lower clock than some people set.
OVERCLOCKED = 1.35
# Reduction of multiplications of a 3 x 3 convolution by Winograd's algorithm, in tiles of 6 x 6
# outputs. Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv
# 1509.09308), section 4.
WINOGRAD = 5.0625
POWER, TOKENS, PREFILL = (
    "energy_mean_power_w",
    "generation_decode_tokens_per_s",
    "generation_prefill_tokens_per_s",
)
OUTPUT_TOKENS, USER_TOKENS = "generation_output_tokens_per_s", "generation_user_tokens_per_s"
PREFILL_ENERGY = "generation_energy_prefill_token_gross_mj"
_DECODED = {TOKENS, OUTPUT_TOKENS, USER_TOKENS, TPOT}
_ENERGIES = {ENERGY, TOKEN_ENERGY, PREFILL_ENERGY}


class LawFinding(msgspec.Struct, frozen=True):
    """The finding of a law on a figure.

    It has both sides of the inequality in `unit` (None: a fact is missing) and one sentence.
    """

    law: Literal["memory", "operations", "power"]
    state: State
    sentence: str
    value: float | None = None
    limit: float | None = None
    unit: str = ""


class Bound(msgspec.Struct, frozen=True):
    """A bound of a device, and its source."""

    value: float
    clause: str


class JudgedFigure(msgspec.Struct, frozen=True):
    """A row with the findings of the laws.

    An impossibility decides, else a doubt, else a bound that holds, else a missing fact.
    """

    row: PublishedRow
    findings: tuple[LawFinding, ...]

    @property
    def deciding(self) -> LawFinding | None:
        """The finding that decides; None if no law applies to the figure."""
        weights = {"impossible": 0, "plausible": 2, "unclear": 3}
        return min(
            self.findings,
            key=lambda entry: (
                1 if entry.state == "unclear" and entry.limit is not None else weights[entry.state]
            ),
            default=None,
        )

    @property
    def state(self) -> State:
        """The state that decides; unclear without any."""
        return self.deciding.state if self.deciding else "unclear"

    @property
    def sentence(self) -> str:
        return (
            self.deciding.sentence
            if self.deciding
            else "no physical limit is known for this figure"
        )


def judge(rows: Sequence[PublishedRow]) -> list[JudgedFigure]:
    """Return the judgement of each row, in their order; figures of one case are judged together."""
    cases: dict[tuple[object, ...], dict[str, PublishedRow]] = defaultdict(dict)
    for row in rows:
        if row.statistic in {None, "mean", "median"}:
            cases[row.case].setdefault(row.figure, row)
    judged = []
    for row in rows:
        findings = (_memory(row), _operations(row), _power(row, cases[row.case]))
        judged.append(
            JudgedFigure(row, tuple(finding for finding in findings if finding is not None))
        )
    return judged


def _memory(row: PublishedRow) -> LawFinding | None:
    """Compare decode steps per second x bytes read per step with the bandwidth.

    Each step reads all weights of a dense model.
    """
    if row.figure not in _DECODED:
        return None
    bits, facts, bound = (
        least_bits(row.precision or row.model),
        _facts(row),
        _bound(row, _bandwidth),
    )
    reads = row.read_parameters or (facts.reads if facts else None)
    mb = row.weights_mb or (reads and reads * (bits or LEAST_BITS) / 8e6)
    if not mb or isinstance(bound, str):
        why = bound if isinstance(bound, str) else "how many weights a token reads is not stated"
        return LawFinding(
            "memory", "unclear", f"the rate cannot be checked against the memory bandwidth: {why}"
        )
    if mb < LEAST_WEIGHTS_MB:
        return None
    answers = 1 if row.figure in {USER_TOKENS, TPOT} else row.batch or 1
    rate, least_rate, words = _rate(row)
    required = rate * mb / answers / 1000
    of_weights = (
        ""
        if row.weights_mb or not reads
        else f" ({reads / 1e9:.4g} x 10^9 weights x {bits or LEAST_BITS:g} bits)"
    )
    divided = f" / {answers} answers at once" if answers > 1 else ""
    sums = (
        f"{words} x {mb:.4g} MB{of_weights}{divided} = {significant(required)} GB/s, and "
        f"{bound.clause}"
    )
    least_mb = mb - (rounding(mb) if row.weights_mb else 0.0)

    def finding(state: State, why: str) -> LawFinding:
        return LawFinding("memory", state, f"{sums}: {why}", required, bound.value, "GB/s")

    if least_rate * least_mb / answers / 1000 <= bound.value * (1 + 1e-9):
        is_open = not row.weights_mb and bits is None
        why = f"possible at {LEAST_BITS:g} bits a weight, but the precision is not stated"
        return (
            finding("unclear", why)
            if is_open
            else finding("plausible", _not_excluded(required, bound.value))
        )
    limits = limits_named(row.device)
    # The size of the last-level caches; if unknown, more than most have.
    cached_mb = sum(
        64.0 if part.cache_mb is None else part.cache_mb
        for part in (limits.board, limits.added)
        if part
    )
    explanations = (
        (
            least_rate * max(least_mb - cached_mb, 0.0) / answers / 1000 <= bound.value,
            "the caches hold part of the weights",
        ),
        (_speculates(row), "speculative decoding, which is stated, yields enough tokens a step"),
        (
            row.figure == OUTPUT_TOKENS and row.batch is None,
            "several answers were decoded at once, whose number is not stated",
        ),
    )
    if why := next((why for is_so, why in explanations if is_so), ""):
        return finding("unclear", f"possible only if {why}")
    return finding(
        "impossible",
        "impossible for one answer at a time"
        if answers == 1
        else f"impossible for {answers} answers at once",
    )


def _not_excluded(value: float, limit: float) -> str:
    """Return the share of a bound, in words: below it, a figure is only not excluded."""
    return (
        f"{100 * value / limit:.3g}% of this bound, "
        f"{'which rounding may explain' if value > limit else 'so it is possible'}"
    )


class _StatedRate(NamedTuple):
    """A rate per second: as stated, at least, and in words."""

    stated: float
    least: float
    words: str


class _StatedPower(NamedTuple):
    """A power: as stated, at least, at most (W), and in words."""

    stated_w: float
    least_w: float
    most_w: float
    words: str


def _facts(row: PublishedRow) -> ModelFacts | None:
    """Return the facts of a row's model; none if its precision says that weights were removed."""
    return facts_of(f"{row.model} {row.precision or ''}")


def _speculates(row: PublishedRow) -> bool:
    return row.speculative not in {None, "off"}


def _rate(row: PublishedRow) -> _StatedRate:
    value, unit = row.canonical, row.kind.unit
    if unit == "ms":
        times = row.prompt_tokens if row.figure == TTFT and row.prompt_tokens else 1
        return _StatedRate(
            times * 1000 / value, times * 1000 / row.largest, f"{times} / {value:.4g} ms"
        )
    return _StatedRate(value, row.smallest, f"{value:.4g} {unit}")


def _operations(row: PublishedRow) -> LawFinding | None:
    """Compare the work per second with the peak of the compute units.

    The work is 2 operations a weight and token, or those of an inference.
    """
    facts, bound = _facts(row), _bound(row, _peak)
    is_decoded = row.figure in _DECODED and not _speculates(row)
    is_prompt = row.figure == PREFILL or (row.figure == TTFT and row.prompt_tokens)
    is_inference = (row.figure.startswith("latency") or row.figure == THROUGHPUT) and not (
        facts and facts.reads
    )
    if not (is_decoded or is_prompt or is_inference):
        return None
    if is_inference:
        gop, work = _gop(row)
        why = "how many operations an inference takes is not stated"
    else:
        parameters = facts and (facts.prompts if is_prompt else facts.reads)
        gop, work = (
            2e-9 * parameters if parameters else None,
            f"2 operations x {(parameters or 0) / 1e9:.4g} x 10^9 weights",
        )
        why = "how many weights a token is multiplied by is not stated"
    if gop is None or isinstance(bound, str):
        sentence = (
            "the rate cannot be checked against the peak of the compute units: "
            f"{bound if isinstance(bound, str) else why}"
        )
        return None if is_decoded else LawFinding("operations", "unclear", sentence)
    rate, least_rate, words = _rate(row)
    required = rate * gop
    sums = f"{words} x {work} = {significant(required)} Gop/s, and {bound.clause}"

    def finding(state: State, why: str) -> LawFinding:
        return LawFinding("operations", state, f"{sums}: {why}", required, bound.value, "Gop/s")

    if least_rate * gop <= bound.value:
        # In a memory-bound task, a possible amount of work proves nothing.
        return None if is_decoded else finding("plausible", _not_excluded(required, bound.value))
    explanations = (
        (
            is_inference and least_rate * gop <= bound.value * WINOGRAD,
            "with fewer operations, such as by Winograd's algorithm",
        ),
        (
            is_inference and row.gop is None and row.input_size is None,
            "with a smaller input, whose size is not stated",
        ),
        (row.figure == TTFT, "if part of the prompt came from a cache, which is not stated"),
    )
    if why := next((why for is_so, why in explanations if is_so), ""):
        return finding("unclear", f"possible only {why}")
    return finding("impossible", "impossible")


def _gop(row: PublishedRow) -> tuple[float | None, str]:
    """Return the operations of one inference, 10^9, and the same in words.

    They are as stated, or by the model at the input's size.
    """
    if row.gop is not None:
        return row.gop, f"{row.gop:.4g} Gop"
    facts = _facts(row)
    if facts is None or facts.gop is None:
        return None, ""
    pixels = [int(number) for number in re.findall(r"\d{2,}", row.input_size or "")[:2]] or [
        facts.side
    ]
    # The operations of a convolution are proportional to the pixels of its input.
    gop = facts.gop * pixels[0] * pixels[-1] / facts.side**2
    return gop, f"{gop:.4g} Gop at {pixels[0]} x {pixels[-1]}"


def _power(row: PublishedRow, companions: dict[str, PublishedRow]) -> LawFinding | None:
    """Compare a power, or energy / time, with the range of the board's supply.

    A unit wrong by 1000 is outside of it.
    """
    power_drawn = _drawn(row, companions)
    if power_drawn is None:
        return None
    stated_w, least_w, most_w, words = power_drawn
    limits = _power_range(row)
    if limits is None:
        return LawFinding(
            "power",
            "unclear",
            f"{words} cannot be checked: no limit is known for this board ({row.device})",
        )
    factors = [WALL_RATIO] * (row.scope is None) + [READING_RATIO] * (
        row.figure == POWER and row.statistic == "max"
    )
    highest_w = math.prod(
        factors, start=limits.highest_in(row.scope) if row.scope else limits.highest_w
    )
    lowest_w = limits.lowest_in(row.scope or "board-input")
    reasons = ["the claim does not name the point of measurement"] * (row.scope is None)
    reasons += ["a single reading may show an inrush"] * (len(factors) > len(reasons))
    allowed = (
        f"; up to {highest_w:.4g} W are allowed, because {' and '.join(reasons)}" if factors else ""
    )
    bound_text = (
        f"{highest_w / math.prod(factors):.4g} W (our bound from its supplies: {limits.supply})"
    )
    sums = f"{words}, and {limits.machine} draws at most {bound_text}{allowed}"
    if least_w > highest_w:
        return LawFinding("power", "impossible", f"{sums}: impossible", stated_w, highest_w, "W")
    if most_w < lowest_w:
        sums = (
            f"{words}, and {limits.machine} draws at least {lowest_w:.4g} W while it runs (about "
            "half of its idle power)"
        )
        return LawFinding(
            "power", "unclear", f"{sums}: possible only for a part of it", stated_w, lowest_w, "W"
        )
    return LawFinding(
        "power",
        "plausible",
        f"{sums}: {_not_excluded(stated_w, highest_w)}",
        stated_w,
        highest_w,
        "W",
    )


def _drawn(row: PublishedRow, companions: dict[str, PublishedRow]) -> _StatedPower | None:
    """Return the power of a row, or its energy x rate."""
    if row.figure == POWER:
        return _StatedPower(row.canonical, row.smallest, row.largest, f"{row.canonical:.4g} W")
    rate = companions.get({ENERGY: THROUGHPUT, PREFILL_ENERGY: PREFILL}.get(row.figure, TOKENS))
    if row.figure not in _ENERGIES or rate is None:
        return None
    watts, words = (
        row.canonical * rate.canonical / 1000,
        f"{row.canonical:.4g} mJ x {rate.canonical:.4g} /s",
    )
    return _StatedPower(
        watts,
        row.smallest * rate.smallest / 1000,
        row.largest * rate.largest * (row.batch or 1) / 1000,
        f"{words} = {watts:.3g} W",
    )


def _power_range(row: PublishedRow) -> PowerRange | None:
    """Return the power range of the board, None if it is not known.

    It is unknown too if the board has a part with a supply of its own.
    """
    limits = limits_named(row.device)
    if not limits.is_complete or (
        limits.added and (limits.board is None or limits.added.kind == "card")
    ):
        return None
    name = plain_name(row.device)
    return next(
        (
            limit
            for limit in board_ranges()
            if any(word.replace("-", " ") in name for word in limit.words)
        ),
        None,
    )


def _parts(row: PublishedRow) -> list[BoardLimit] | str:
    """Return the parts that may have done the work; a text if they are unknown."""
    limits, is_on_cpu = limits_named(row.device), _is_on_cpu(row)
    parts = (
        [limits.board]
        if is_on_cpu or not limits.added
        else [limits.added]
        if row.backend
        else [limits.board, limits.added]
    )
    present = [part for part in parts if part]
    return (
        present
        if present and limits.is_complete
        else f"no limit is known for this board ({row.device})"
    )


def _is_on_cpu(row: PublishedRow) -> bool:
    return bool(row.backend) and "cpu" in str(row.backend).casefold()


def _bound(
    row: PublishedRow, of_part: Callable[[PublishedRow, BoardLimit], Bound | None]
) -> Bound | str:
    """Return the largest bound of the parts that may have done the work.

    It is a text if one of them is unknown.
    """
    parts = _parts(row)
    if isinstance(parts, str):
        return parts
    bounds = [of_part(row, part) for part in parts]
    if None in bounds:
        return f"no limit is known for this board ({parts[bounds.index(None)].name})"
    return max((bound for bound in bounds if bound), key=lambda bound: bound.value)


def _bandwidth(row: PublishedRow, part: BoardLimit) -> Bound | None:  # noqa: ARG001 - as `_peak`
    limit = part.memory_gbyte_per_s
    return (
        Bound(
            limit, f"the memory of {part.name} gives at most {limit:g} GB/s ({part.memory_source})"
        )
        if limit
        else None
    )


def _peak(row: PublishedRow, part: BoardLimit) -> Bound | None:
    """Return the operations a second, 10^9, with numbers of the stated bits.

    If none are stated, it is the highest for any.
    """
    bits = least_bits(row.precision or row.model)
    # A block of 8-bit weights has a scale, and is computed in 8 bit.
    bits = 8.0 if bits is not None and 8 < bits < 9 else bits
    if part.cpu and (_is_on_cpu(row) or not (row.backend or part.most_gop_per_s)):
        gop = part.cpu.gop_per_s(bits or 8.0, row.clock_hz or OVERCLOCKED * part.cpu.clock_hz)
        clock = (
            f"{(row.clock_hz or part.cpu.clock_hz) / 1e9:.3g} "
            f"GHz{'' if row.clock_hz else f', overclocked by up to {OVERCLOCKED - 1:.0%}'}"
        )
        return Bound(
            gop,
            f"its cores do at most {significant(gop, 4)} Gop/s ({part.cpu.cores} cores at "
            f"{clock}; {part.cpu.source})",
        )
    rate = None if _is_on_cpu(row) else part.gop_per_s(bits)
    return (
        Bound(
            rate, f"{part.name} does at most {significant(rate, 4)} Gop/s ({part.compute_source})"
        )
        if rate
        else None
    )
