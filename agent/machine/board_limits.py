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
    r"radeon|\brx ?\d{3,4}|\b(?:gtx|rtx|quadro|tesla|arc|egpu|dgpu)\b|myriad|\bncs ?2|movidius|memryx|\bmx3\b|deepx|\bdx m1|"
    r"axelera|metis|\bmx ?\d{3}|kinara|\bara ?2\b|oculink|\bhailo\b|\bai hat|xavier|\borin\b"
)
_TIMES = re.compile(r"(?<![\w.])(\d{1,3}) ?[x\u00d7] ?(?=[a-z])(?!cortex|core|arm|a\d\d\b|thread|cpu|usb|pcie|lane|npu)")
_SEVERAL = re.compile(
    r"\b(\d{1,3}) times |\b[x\u00d7] ?(\d{1,3})\b|(?<=[a-z])x(\d{1,2})\b|\b(two|dual|three|four|eight)\b|cluster|\b[hd]gx (?!spark)"
)
_NUMBERS = {"two": 2, "dual": 2, "three": 3, "four": 4, "eight": 8}


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


class BoardLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a board, an accelerator on it, or a card, which has a supply of its own; None and empty: not on record."""

    name: str
    kind: Literal["board", "accelerator", "card"]
    words: tuple[str, ...]
    memory_gbyte_per_s: float | None = None
    memory_source: str = ""
    cache_mb: float | None = None
    most_gop_per_s: dict[Literal["int4", "int8", "fp16"], float] = {}
    compute_source: str = ""
    cpu: CpuLimit | None = None
    ram_gb: tuple[float, ...] = ()
    ram_source: str = ""

    def gop_per_s(self, bits: float | None) -> float | None:
        """Return what its engines do at most with numbers of so many bits, 10^9 operations/s; of None: whatever they have.

        A wider type is never faster than a narrower one, so that the bound of the narrower one holds for it too.
        """
        by_type = self.most_gop_per_s
        if bits is not None and bits > 8 and "fp16" in by_type:
            return by_type["fp16"]
        if bits is not None and bits >= 8 and "int8" in by_type:
            return by_type["int8"]
        return max(by_type.values(), default=None)


class NamedLimits(msgspec.Struct, frozen=True):
    """The bounds of a device by its name: the board, what is added to it, how many of them there are (None: several, not known how many).

    `is_complete` is False where the name has an accelerator without bounds on record.
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
    return re.compile(rf"(?<![a-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![a-z0-9+])")


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
    several, remainder = _SEVERAL.search(text), _words().sub(" ", text)
    has_foreign = bool(boards) and re.search(r"\b(?:amd|intel)\b|\bnvidia [a-z]?\d{3,4}\b", remainder) is not None
    count = several and next((part for part in several.groups() if part), None)
    return NamedLimits(
        board=boards[0] if len(boards) == 1 else None,
        added=added,
        devices=1 if several is None else None if count is None else _NUMBERS.get(count) or int(count),
        is_complete=len(boards) <= 1 and not has_foreign and not _UNLISTED.search(remainder),
    )


def memory_mb_per_s(board: str) -> float | None:
    """Return the bandwidth of the memory of a board, MB/s, by the model that its firmware states; None: not on record."""
    limit = limits_named(board).board
    return limit.memory_gbyte_per_s * 1000 if limit and limit.memory_gbyte_per_s else None
