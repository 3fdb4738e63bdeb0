"""A rule that judges a published figure, and the facts by which it judges: the row, its companions, the bounds of its device, its model."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from edgemeter.agent.machine.board_limits import BoardLimit, NamedLimits, limits_named
from edgemeter.collector.published.judgement import Evidence, PublishedState
from edgemeter.collector.published.models import ModelFacts, facts_of, is_mixture, least_bits
from edgemeter.collector.published.row import PublishedRow

# A stated figure was rounded by half a unit of its last digit, but no honest one by more than this.
MOST_ROUNDING = 0.05
# Boards are sold at a lower clock than some people set.
OVERCLOCKED = 1.35
# The smallest weights that anybody publishes: ternary ones, packed.
LEAST_BITS = 1.5
_SPECULATES = re.compile(r"speculat|\bdraft|eagle|medusa|lookahead|\bmtp\b|multi-token|prompt lookup|n-gram", re.IGNORECASE)
_NO_SPECULATION = re.compile(r"\b(?:no|without|not) (?:\w+ )?speculat|speculat\w*(?: \w+)? (?:is |was )?off", re.IGNORECASE)
_CPU, _ENGINE = r"\bcpu|xnnpack|\bcores?\b", r"gpu|npu|tpu|dla|cuda|vulkan|opencl|hailo|rknn|tensorrt"
_USERS = re.compile(
    r"\b(?:batch(?:[ _-]?size)?|concurrency|bs) ?[=: ] ?(\d+)|\b(\d+) (?:users|streams|clients|parallel|concurrent)", re.IGNORECASE
)
_MANY = re.compile(
    r"\boffline\b|\bserver\b.{0,3}scenario|scenario.{0,3}\bserver\b|\bbatched\b|in-flight|concurren|parallel|multi-?stream", re.IGNORECASE
)
_SHARED = re.compile(r"\btp ?=? ?[2-9]|tensor[- ]parallel|multi-?gpu|\b[2-9] gpus|distributed", re.IGNORECASE)
_SIDE = re.compile(r"(?<![\d.])(\d{2,4}) ?[x\u00d7*] ?(\d{2,4})(?![\d.])")


def number(value: float) -> str:
    """Return a number that goes into a sum, as a sentence has it: four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def result(value: float) -> str:
    """Return what a sum gives: three digits, fewer than its numbers have, so that a pocket calculator confirms each of them."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def rounding(value: float) -> float:
    """Return by how much a stated value may have been rounded: half a unit of its last digit, at most 5%."""
    _, _, exponent = Decimal(repr(value)).normalize().as_tuple()
    return min(0.5 * 10.0 ** int(exponent), MOST_ROUNDING * abs(value))


def smallest(row: PublishedRow) -> float:
    """Return the least that a figure may be, by its rounding and its range, in our unit."""
    lowest = min(row.value, row.value if row.low is None else row.low)
    return row.in_our_unit(lowest - rounding(lowest))


def largest(row: PublishedRow) -> float:
    """Return the most that a figure may be, by its rounding and its range, in our unit."""
    highest = max(row.value, row.value if row.high is None else row.high)
    return row.in_our_unit(highest + rounding(highest))


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of the device: its value, and the clause that names it with its source."""

    value: float
    clause: str


@dataclass(frozen=True, slots=True)
class ReadWeights:
    """The weights that a token reads, MB: as stated or worked out, and at least by their rounding.

    `is_even_so` where the precision is not stated and the smallest one is taken.
    """

    mb: float
    least_mb: float
    text: str
    is_even_so: bool = False


@dataclass(frozen=True)
class JudgedRow:
    """A row with all that its judgement reads; a bound or a fact that is missing is a text that says which fact would decide."""

    row: PublishedRow
    companions: Sequence[PublishedRow] = ()

    @cached_property
    def text(self) -> str:
        """All that the source states in words of how it was measured."""
        row = self.row
        return " | ".join(part for part in (row.conditions, row.runtime, row.software, row.backend, row.model) if part)

    @property
    def has_cache(self) -> bool:
        """Whether the source names a cache of prompts."""
        return any(word in self.text.casefold() for word in ("cache", "prefix", "warm"))

    @cached_property
    def limits(self) -> NamedLimits:
        """The bounds of the device; an accelerator may be named as the backend, or in the conditions only."""
        words = f"{self.row.conditions} | {self.row.runtime or ''} | {self.row.backend or ''}"
        device, conditions = limits_named(self.row.device), limits_named(words)
        # A device that has an engine may be compared with others there.
        has_engine = bool(device.added or (device.board and device.board.most_gop_per_s))
        added = device.added if has_engine else conditions.added
        devices = None if device.devices == 1 and _SHARED.search(self.row.conditions) else device.devices
        return NamedLimits(device.board, added, devices, device.is_complete and conditions.is_complete)

    @cached_property
    def is_on_cpu(self) -> bool | None:
        """Whether the cores did the work; None: not stated."""
        if self.row.backend is None:
            return None
        names_cpu, names_other = (re.search(words, self.row.backend, re.IGNORECASE) is not None for words in (_CPU, _ENGINE))
        return None if names_cpu and names_other else names_cpu

    @cached_property
    def model(self) -> ModelFacts | None:
        """The facts of the model by its name."""
        return facts_of(self.row.model, self.row.precision)

    @property
    def bits(self) -> float | None:
        """The bits of a weight at least, as stated or named."""
        return least_bits(self.row.precision or self.row.model)

    @cached_property
    def users(self) -> int | None:
        """How many answers are decoded at once, or inputs are in a batch; None: not stated."""
        numbers = [count for count in (self.row.batch, self.row.concurrency) if count]
        numbers += [int(first or second) for first, second in _USERS.findall(self.text)]
        return max(numbers, default=None)

    @property
    def is_of_many(self) -> bool:
        """Whether several answers may have been decoded at once, but it is not stated how many."""
        return self.users is None and (self.row.figure == "output-tokens" or _MANY.search(self.text) is not None)

    @property
    def speculates(self) -> bool | None:
        """Whether several tokens come of a step; None: not stated."""
        if self.row.speculative is not None:
            return self.row.speculative.casefold() not in {"off", "no", "none"}
        if _NO_SPECULATION.search(self.text):
            return False
        return True if _SPECULATES.search(self.text) else None

    def side(self, usual: int) -> int | None:
        """Return the side of the input in pixels, of an oblong that of the square of its area; None: not stated.

        Conditions may name the size of a camera's pictures, so that only one up to the `usual` side counts there.
        """
        plain = (self.row.input_size or "").strip()
        sides = [int((int(first) * int(second)) ** 0.5) for first, second in _SIDE.findall(plain)] or (
            [int(plain)] if plain.isdecimal() else []
        )
        smaller = [int((int(first) * int(second)) ** 0.5) for first, second in _SIDE.findall(self.row.conditions)]
        return next(iter(sides), None) or min((side for side in smaller if side <= usual), default=None)

    @property
    def named_ram_gb(self) -> float | None:
        """The RAM that the device's name states, GB; None where it has none, or several."""
        sizes = {float(size) for size in re.findall(r"(?<![\d.])(\d+(?:\.\d+)?) ?gi?b\b", self.row.device.casefold())}
        return sizes.pop() if len(sizes) == 1 else None

    def companion(self, *figures: str) -> PublishedRow | None:
        """Return the first companion with one of these figures, in their order; mean or median before an extreme or a percentile."""
        for figure in figures:
            matches = [entry for entry in self.companions if entry.figure == figure and entry.statistic in {None, "mean", "median"}]
            if matches:
                return matches[0]
        return None

    def _working(self) -> list[BoardLimit] | str:
        """Return the parts that may have done the work; a text where that, or a bound, is not known."""
        limits, board = self.limits, self.limits.board
        if limits.devices is None:
            return f"how many devices of {self.row.device!r} shared the work is not stated"
        on_board = [board] if board and (self.is_on_cpu is not False or board.most_gop_per_s) else []
        parts = on_board if self.is_on_cpu else [*limits.added] or on_board
        if self.is_on_cpu is None:
            parts = [*on_board, *limits.added]
        if parts and (self.is_on_cpu or limits.is_complete):
            return parts
        backend = f" with the backend {self.row.backend}" if board and self.row.backend else ""
        return f"no bound of this board is on record ({self.row.device}{backend})"

    def _largest(self, of: Callable[[BoardLimit], tuple[float | None, str]], words: str, verb: str, unit: str, scale: float) -> Bound | str:
        parts = self._working()
        if isinstance(parts, str):
            return parts
        values = [(value, source, part) for part in parts for value, source in [of(part)] if value is not None]
        if len(values) < len(parts):
            missing = next(part.name for part in parts if of(part)[0] is None)
            return f"no bound of this board is on record ({words} of {missing})"
        value, source, part = max(values, key=lambda entry: entry[0])
        devices = self.limits.devices or 1
        note = "; the largest bound of its parts, as the backend is not stated" if len(parts) > 1 else ""
        several = f"{devices} x " if devices > 1 else ""
        clause = f"{words} of {several}{part.name} {verb} at most {result(value * devices / scale)} {unit} ({source}{note})"
        return Bound(value * devices, clause)

    def memory(self) -> Bound | str:
        """Return the bandwidth of the memory, MB/s."""
        return self._largest(
            lambda part: (part.memory_gbyte_per_s and part.memory_gbyte_per_s * 1000, part.memory_source),
            "the memory",
            "gives",
            "GB/s",
            1000.0,
        )

    def compute(self, bits: float | None) -> Bound | str:
        """Return the operations a second with numbers of so many bits, 10^9/s; of None the most that it has for any."""

        def of(part: BoardLimit) -> tuple[float | None, str]:
            cpu = part.cpu if self.is_on_cpu or not part.most_gop_per_s else None
            if cpu is None:
                return (None, "") if self.is_on_cpu else (part.gop_per_s(bits), part.compute_source)
            clock_hz = self.row.clock_hz or OVERCLOCKED * cpu.clock_hz
            per_cycle = cpu.operations_per_cycle(bits or 8.0)
            clock = f"{clock_hz / 1e9:.3g} GHz" if self.row.clock_hz else f"{cpu.clock_hz / 1e9:.3g} GHz x {OVERCLOCKED} for overclocking"
            cores = f"{cpu.cores} cores x {clock} x {per_cycle:g} operations a cycle"
            return cpu.gop_per_s(bits or 8.0, clock_hz), f"{cores}; {cpu.source}"

        return self._largest(of, "the compute units", "do", "Gop/s", 1.0)

    def cache_mb(self) -> float:
        """Return what the last caches hold, MB; where that is not known, more than most have."""
        parts = [part for part in (self.limits.board, *self.limits.added) if part]
        return sum(64.0 if part.cache_mb is None else part.cache_mb for part in parts) * (self.limits.devices or 1)

    def weights(self) -> ReadWeights | str:
        """Return what decoding one token reads at least, by what is stated, else by the model's name."""
        row, facts, bits = self.row, self.model, self.bits
        read = facts.read_parameters if facts else None
        is_part = bool(facts and facts.is_dense is False)
        if is_mixture(row.model) and not is_part and row.read_parameters is None:
            return "how many weights of this mixture of experts a token reads is not stated"
        if row.weights_mb is not None and not is_part:
            mb = row.weights_mb
            return ReadWeights(mb, mb - rounding(mb), f"{_size(mb)} of weights per token")
        if row.read_parameters is not None:
            read = row.read_parameters
        if read is None:
            return "how many weights a token reads is not stated (the model's size, and whether all weights are read)"
        at = f"{bits or LEAST_BITS:g} bits{'' if bits else ', the fewest in use,'} / 8"
        mb, least_read = read * (bits or LEAST_BITS) / 8e6, read - (rounding(read) if row.read_parameters else 0.0)
        return ReadWeights(
            mb, mb * least_read / read, f"{_size(mb)} of weights per token ({number(read / 1e9)} x 10^9 weights x {at})", bits is None
        )


def _size(mb: float) -> str:
    return f"{mb / 1000:.4g} GB" if mb >= 1000 else f"{mb:.4g} MB"


def finding(state: PublishedState, sentence: str, value: float | None = None, limit: float | None = None, unit: str = "") -> Evidence:
    """Return evidence without the name of its rule, which `evidence_of` adds."""
    return Evidence(rule="", state=state, sentence=sentence, value=value, limit=limit, unit=unit)


@dataclass(frozen=True, slots=True)
class PublishedRule:
    """A rule for published figures; `evidence` returns None for a figure that it does not apply to."""

    name: str
    requirement: str
    rationale: str
    evidence: Callable[[JudgedRow], Evidence | None]


class PublishedRules(list[PublishedRule]):
    """The rules of one subject in the order of their functions; a rule has the name of its function."""

    def rule(
        self, requirement: str, rationale: str
    ) -> Callable[[Callable[[JudgedRow], Evidence | None]], Callable[[JudgedRow], Evidence | None]]:
        """Make a rule of the function below."""

        def add(evidence: Callable[[JudgedRow], Evidence | None]) -> Callable[[JudgedRow], Evidence | None]:
            self.append(PublishedRule(evidence.__name__.strip("_").replace("_", "-"), requirement, rationale, evidence))
            return evidence

        return add
