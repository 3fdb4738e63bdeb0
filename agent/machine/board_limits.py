"""The most that a board, an accelerator or a card can do: bandwidth of its memory, operations a second; each figure with its source.

The figures stand in `board_limits.toml`, which is read when the first of them is needed. They are upper bounds: of a family that one line
covers, its largest member's, sparse and in the fastest mode, so that what lies above is not possible on any of them.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

BOARD_LIMITS = Path(__file__).with_name("board_limits.toml")
# What a device's name has besides its parts and that does no work of a model; any other word may be an accelerator, or a second device.
_HARMLESS = re.compile(
    r"nvidia|raspberry|pi|jetson|geforce|rockchip|orange|radxa|google|lenovo|dell|hp|laptop|desktop|pc|pro|max|plus|super|ti|usb|m\.2|pcie|"
    r"board|kit|devkit|developer|dev|reference|engineering|compute|module|model|series|[\d.]+(?:gi?b|w|g)|gi?b|ram|lpddr\w*|ssd|nvme|1x|"
    r"active|cooler|fan|heatsink|case|with|on|and|in|a|an|the|of|b|sxm\d?"
)
# Beside an accelerator's own name.
_OF_ACCELERATOR = re.compile(r"ai|npu|gpu|tpu|accelerator|stick|card|[\d.]+tops")


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
    most_gop_per_s: dict[Literal["int4", "int8", "fp16", "fp32"], float] = {}
    compute_source: str = ""
    cpu: CpuLimit | None = None

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


class NamedLimits(msgspec.Struct, frozen=True):
    """The bounds of a device by its name: the board, and an accelerator or a card beside it.

    `is_complete` is False where the name says more than them: it may be of several devices, or of a part without bounds on record.
    """

    board: BoardLimit | None = None
    added: BoardLimit | None = None
    is_complete: bool = True


class _LimitFile(msgspec.Struct):
    limit: tuple[BoardLimit, ...]


@lru_cache(maxsize=1)
def board_limits() -> tuple[BoardLimit, ...]:
    """Return all entries, in the order of the file."""
    return msgspec.toml.decode(BOARD_LIMITS.read_bytes(), type=_LimitFile).limit


@lru_cache(maxsize=1)
def _by_word() -> dict[str, BoardLimit]:
    return {word: entry for entry in board_limits() for word in entry.words}


@lru_cache(maxsize=1)
def _words() -> re.Pattern[str]:
    longest_first = sorted(_by_word(), key=len, reverse=True)
    return re.compile(rf"(?<![a-z0-9])({'|'.join(map(re.escape, longest_first))})(?![a-z0-9+])")


def plain_name(device: str) -> str:
    """Return a device's name in small letters without what people write in different ways: `raspberry pi 5` of `RPi-5 Model B`."""
    text = " ".join(re.sub(r"[-_/,()®™|]", " ", device.casefold()).split())
    text = re.sub(r"\b(?:raspberry ?pi|rpi|raspi) ?(?=[0-9zc])|^pi ?(?=\d)", "raspberry pi ", text)
    return re.sub(r"\bmodel [ab]\b", "", text)


@lru_cache(maxsize=1024)
def limits_named(device: str) -> NamedLimits:
    """Return the bounds of a device by its name, as a device tree or a person writes it: `Raspberry Pi 5 with AI HAT+ 2`."""
    text = plain_name(device)
    parts = {entry.name: entry for entry in map(_by_word().__getitem__, _words().findall(text))}.values()
    boards = [entry for entry in parts if entry.kind == "board"]
    added = [entry for entry in parts if entry.kind != "board"]
    # A size and its unit are one word: "8 gb".
    remainder = re.sub(r"([\d.]+) (?=(?:gi?b|w|tops)\b)|\brev [\d.]+", r"\1", _words().sub(" ", text)).replace("+", " ")
    is_plain = all(_HARMLESS.fullmatch(word) or (added and _OF_ACCELERATOR.fullmatch(word)) for word in remainder.split())
    return NamedLimits(
        board=boards[0] if len(boards) == 1 else None,
        added=added[0] if len(added) == 1 else None,
        is_complete=is_plain and len(boards) <= 1 and len(added) <= 1,
    )
