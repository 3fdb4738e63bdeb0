"""The most that a board, an accelerator or a card can do: bandwidth of its memory, operations a second, RAM; each figure with its source.

The figures stand in `board_limits.toml`, which is read when the first of them is needed. They are upper bounds: of a family that one line
covers, its largest member's, sparse and in the fastest mode, so that what lies above is not possible on any of them.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

# More operations a cycle than a core has: 8-bit products with AMX (Intel's manual: 2,048), or with i8mm on two 256-bit pipes.
OPERATIONS_PER_CYCLE = {"x86_64": 2048, "aarch64": 256, "armv7l": 64}
# Added to a board, these do the work, and their bounds are not on record.
_UNLISTED = re.compile(
    r"radeon|geforce ?(?:g?tx? )?\d|firepro|instinct|movidius|memryx|myriad|axelera|metis|kinara|deepx|dx m1|oculink|xavier|\borin\b|"
    r"\bhailo|\bai hat|"
    r"\b(?:gtx|rtx|quadro|tesla|arc|[ed]gpu|titan)(?![a-z])|\brx ?\d{3,4}|\b\d{4} ?xtx?\b|\bncs ?2|\bmx ?\d|\bara ?2\b|\brk1\d{3}|"
    r"\b[vp]100\b|\bp[46]0\b|\b(?<!cortex )a[1-6]0{1,3}\b|\bt4\b|\bl40s?\b|\bb[23]00\b|\bmi ?\d{2,3}x?\b|\bw[567]\d00\b|\bax ?[68]\d{2,3}|"
    r"llm ?8850|sophon|bm16\d\d|graphics card|\bexternal g|\bsecond gpu"
)
# What a board is sold or run with, and does no work of a model.
_HARMLESS = re.compile(
    r"\d{1,3}(?:\.\d+)?|[\d.]+ ?(?:[gtm]i?b|w|wh|v|a|[mg]hz|mm|inch|bit|gbit|mbit)|"
    r"x\d+|[gtm]i?b|ram|memory|v?ram|lpddr\w*|ddr\w*|swap\w*|zram|ssd|nvme|hdd|"
    r"emmc|micro|(?:micro)?sd|card|m\.2|hats?|bottom|top|a|an|the|its|of|and|on|in|for|over|via|at|dual|single|two|four|both|official|"
    r"active|passive|air|cool\w*|heat\w*|sinks?|fans?|ice|tower|case|enclosure|power|supply|psu|poe\+?|usb|usb c|c|adapter|battery|hub|"
    r"cameras?|webcam|lens|display|screen|monitor|keyboard|ethernet|wifi|wi|fi|ubuntu|debian|bookworm|trixie|armbian|raspberry|pi|os|lite|"
    r"linux|jetpack|l4t|pcie|gen|lanes?|overclock\w*|kit|developer|dev|boards?|module|carrier|super|mode|maxn|nvidia|spark|kernel|rev|"
    r"arm64|aarch64|cores?|threads?|cpu|cortex|a\d\d|times|only|bits?|to|from|by|stock|"
    r"default|governor|performance|clock\w*|max|cuda|tensorrt|trt|llama\.cpp|llamafile|ollama|vllm|mlc|onnx\w*|runtime|openvino|tflite|"
    r"litert|ncnn|mnn|rknn\w*|rkllm\w*|executorch|pytorch|torch|tensorflow|xnnpack|docker|python"
)
# How people call an accelerator beside its name.
_OF_ACCELERATOR = re.compile(r"ai|accelerators?|npu|tpu|gpu|tops|key|stick|e|b|m|b\+m|laptop|egpu|geforce|external|the")
_TIMES = re.compile(r"(?<![\w.])(\d{1,3}) ?[x\u00d7] ?(?=[a-z])(?!cortex|core|arm|a\d\d\b|thread|cpu|usb|pcie|lane|npu)")
_LANES = re.compile(r"\b(?:pcie|gen|m\.2)(?: ?(?:gen ?)?\d(?:\.\d)?)? ?x ?\d{1,2}\b|\bx ?\d{1,2}(?= (?:lanes?|slot|link|pcie))")
_MAKERS = r"(?:nvidia |geforce |radxa |jetson |amd |tesla |identical |separate )*"
_NUMBERS = {"two": 2, "dual": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8}
_NUMBER = rf"(?<![\w.])(\d{{1,3}}|{'|'.join(_NUMBERS)})"
_MACHINES = r"(?:nodes?|boards|devices|machines|gpus|cards|pis)\b"
# A number after these is a version.
_VERSIONED = {
    "jetpack",
    "cuda",
    "ubuntu",
    "debian",
    "python",
    "tensorrt",
    "os",
    "version",
    "llama",
    "qwen",
    "gemma",
    "phi",
    "yolo",
    "kernel",
    "rev",
}
_UNCOUNTED = re.compile(r"\bclusters?\b|\b[hd]gx (?!spark)|\brpc\b|\bdistributed\b|\bseveral (?:boards|devices|machines|nodes)")


class CpuLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cores of a processor, their clock as sold, and the operations that one does in a cycle, by type."""

    cores: int
    clock_hz: float
    int8: float
    fp16: float
    fp32: float
    source: str

    def gop_per_s(self, bits: float, clock_hz: float | None = None) -> float:
        """Return what all cores do at most with numbers of so many bits, 10^9 operations/s."""
        return self.cores * (clock_hz or self.clock_hz) * self.operations_per_cycle(bits) / 1e9

    def operations_per_cycle(self, bits: float) -> float:
        """Return what one core does in a cycle with numbers of so many bits."""
        return self.fp32 if bits > 16 else self.fp16 if bits > 8 else self.int8


class SlowerMemory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory of a member of a family that has so much RAM, or is in one of these power modes (`15w`); empty: any."""

    memory_gbyte_per_s: float
    source: str
    ram_gb: float | None = None
    modes: tuple[str, ...] = ()


class BoardLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a board, an accelerator on it, or a card, which has a supply of its own; None and empty: not on record."""

    name: str
    kind: Literal["board", "accelerator", "card"]
    words: tuple[str, ...]
    memory_gbyte_per_s: float | None = None
    memory_source: str = ""
    cache_mb: float | None = None
    most_gop_per_s: dict[Literal["int4", "int8", "fp16", "fp32"], float] = {}
    compute_source: str = ""
    cpu: CpuLimit | None = None
    ram_gb: tuple[float, ...] = ()
    ram_source: str = ""
    slower: tuple[SlowerMemory, ...] = ()  # The first that fits counts.

    def gop_per_s(self, bits: float | None) -> float | None:
        """Return what its engines do at most with numbers of so many bits, 10^9 operations/s; of None: whatever they have."""
        number_type = self.type_for(bits)
        return self.most_gop_per_s[number_type] if number_type else None

    def type_for(self, bits: float | None) -> Literal["int4", "int8", "fp16", "fp32"] | None:
        """Return the type whose peak bounds numbers of so many bits; of None the fastest; None: none does.

        A wider type is never faster than a narrower one, so that the bound of the narrower one holds for it too, unless an accelerator
        has whole numbers only. Up to 5 bits, a block's scale included, are 4.
        """
        by_type = self.most_gop_per_s
        if bits is not None and bits > 8 and self.kind == "accelerator" and not {"fp16", "fp32"} & {*by_type}:
            return None
        for number_type, least in (("fp32", 16), ("fp16", 8), ("int8", 5)):
            if bits is not None and bits > least and number_type in by_type:
                return number_type
        return max(by_type, key=lambda entry: by_type[entry], default=None)

    def memory_at(self, ram_gb: float | None, mode: str) -> tuple[float | None, str]:
        """Return the bandwidth of the memory, GB/s, of the member with so much RAM in a power mode, and its source; of None the largest."""
        for memory in self.slower:
            if memory.ram_gb in {None, ram_gb} and (not memory.modes or mode in memory.modes):
                return memory.memory_gbyte_per_s, memory.source
        return self.memory_gbyte_per_s, self.memory_source


class NamedLimits(msgspec.Struct, frozen=True):
    """The bounds of a device by its name: the board, what is added to it, how many of them there are (None: several, not known how many).

    `is_complete` is False where the name has, or may have, an accelerator without bounds on record.
    """

    board: BoardLimit | None = None
    added: tuple[BoardLimit, ...] = ()
    devices: int | None = 1
    is_complete: bool = True


class _LimitFile(msgspec.Struct, forbid_unknown_fields=True):
    limit: tuple[BoardLimit, ...]


@lru_cache(maxsize=1)
def board_limits() -> tuple[BoardLimit, ...]:
    """Return all entries, in the order of the file."""
    return msgspec.toml.decode(Path(__file__).with_name("board_limits.toml").read_bytes(), type=_LimitFile).limit


@lru_cache(maxsize=1)
def _by_word() -> dict[str, BoardLimit]:
    return {word: entry for entry in board_limits() for word in entry.words}


@lru_cache(maxsize=1)
def _words() -> re.Pattern[str]:
    longest_first = sorted(_by_word(), key=len, reverse=True)
    return re.compile(rf"(?<![a-z0-9])({'|'.join(map(re.escape, longest_first))})s?(?![a-z0-9+])")


@lru_cache(maxsize=1)
def _counts() -> tuple[re.Pattern[str], ...]:
    word = _words().pattern
    return (
        re.compile(rf"{_NUMBER} (?:times )?{_MAKERS}{word}"),
        re.compile(rf"{word}(?: (?:sxm\d?|pcie|nvl|ti|gpus?|cards?|boards?|\d+ ?gi?b))*(?: [x\u00d7]|x) ?(?P<count>\d{{1,3}})\b"),
        re.compile(rf"{_NUMBER} {_MACHINES}"),
    )


def _devices(device: str) -> int | None:
    """Return how many devices a text names; None: several, not known how many."""
    # A comma parts a number from a name that it does not count.
    text = " | ".join(_LANES.sub(" ", plain_name(part)) for part in re.split(r"[,;|()]", device))
    glued = _LANES.sub(" ", plain_name(device))
    before, after, machines = _counts()
    counts = [match[1] for match in before.finditer(text) if not {*text[: match.start()].split()[-1:]} & _VERSIONED]
    counts += [match[1] for match in machines.finditer(text)]
    # `x16` may be lanes that nobody called so.
    after_names = [match["count"] for match in after.finditer(glued)]
    if "16" in after_names:
        return None
    counts += after_names
    numbers = [_NUMBERS.get(count) or int(count) for count in counts]
    return max(numbers) if any(number > 1 for number in numbers) else None if _UNCOUNTED.search(text) else 1


def plain_name(device: str) -> str:
    """Return a device's name in small letters without what people write in different ways: `raspberry pi 5` of `RPi-5 Model B`."""
    text = " ".join(re.sub(r"[-_/,()®™|]", " ", device.casefold()).split())
    text = re.sub(r"\b(?:raspberry ?pi|rpi|raspi) ?(?=[0-9zc])|^pi ?(?=\d)", "raspberry pi ", text)
    return re.sub(r"\bmodel [ab]\b|\bseries\b", "", _TIMES.sub(r"\1 times ", text))


@lru_cache(maxsize=1024)
def limits_named(device: str) -> NamedLimits:
    """Return the bounds of a device by its name, as a device tree or a person writes it: `Raspberry Pi 5 with AI HAT+ 2`."""
    text = plain_name(device)
    named = [_by_word()[match] for match in _words().findall(text)]
    boards = list({entry.name: entry for entry in named if entry.kind == "board"}.values())
    added = tuple({entry.name: entry for entry in named if entry.kind != "board"}.values())
    remainder = _words().sub(" ", text)
    has_foreign = bool(boards) and re.search(r"\b(?:amd|intel)\b|\bnvidia [a-z]?\d{3,4}\b", remainder) is not None
    are_two_cards = len([entry for entry in added if entry.kind == "card"]) > 1
    return NamedLimits(
        board=boards[0] if len(boards) == 1 else None,
        added=added,
        devices=None if are_two_cards else _devices(device),
        is_complete=len(boards) <= 1 and not has_foreign and not _UNLISTED.search(remainder),
    )


def has_unknown_addition(device: str) -> bool:
    """Return whether a device's name adds to it (`with`, `and`, `+`, `connected to`) what is not on record and may do the work."""
    remainder = _words().sub(" @ ", plain_name(device))
    _, *additions = re.split(
        r"\b(?:with|and|plus|using|via|through|(?:connected|attached|linked|plugged) (?:in)?to)\b|(?<![ab])\+|&", remainder
    )
    return any(
        not _HARMLESS.fullmatch(word) and not ("@" in addition and _OF_ACCELERATOR.fullmatch(word))
        for addition in additions
        for word in re.sub(r"[^\w.+]", " ", addition).split()
    )


def memory_mb_per_s(board: str) -> float | None:
    """Return the bandwidth of the memory of a board, MB/s, by the model that its firmware states; None: not on record."""
    limit = limits_named(board).board
    return limit.memory_gbyte_per_s * 1000 if limit and limit.memory_gbyte_per_s else None
