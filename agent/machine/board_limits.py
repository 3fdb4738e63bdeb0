"""Upper bounds for a board, an accelerator or a card, each with its source.

They are memory bandwidth and operations a second.

The figures are in `board_limits.toml`, which is read when needed. If one line covers a family, they
are those of its largest member, sparse and in the fastest mode, so that no member can exceed them.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

BOARD_LIMITS = Path(__file__).with_name("board_limits.toml")
# Words in a device's name that do not change its bounds; any other word may be an accelerator, or a
# second device.
_HARMLESS = re.compile(
    r"nvidia|raspberry|pi|jetson|geforce|rockchip|orange|radxa|google|lenovo|dell|hp|laptop|"
    r"desktop|pc|pro|max|plus|super|ti|usb|m\.2|pcie|board|kit|devkit|developer|dev|reference|"
    r"engineering|compute|module|model|series|[\d.]+(?:gi?b|w|g)|gi?b|ram|lpddr\w*|ssd|nvme|1x|"
    r"active|cooler|fan|heatsink|case|with|on|and|in|a|an|the|of|b|sxm\d?"
)
# Further words next to an accelerator's name.
_OF_ACCELERATOR = re.compile(r"ai|npu|gpu|tpu|accelerator|stick|card|[\d.]+tops")


class CpuLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cores of a processor, and their nominal clock.

    It also has the operations of a core in a cycle, by type.
    """

    cores: int
    clock_hz: float
    int8: float
    fp16: float
    fp32: float
    source: str

    def gop_per_s(self, bits: float, clock_hz: float | None = None) -> float:
        """Return the peak of all cores for numbers of `bits`, 10^9 operations/s."""
        per_cycle = self.fp32 if bits > 16 else self.fp16 if bits > 8 else self.int8
        return self.cores * (clock_hz or self.clock_hz) * per_cycle / 1e9


class BoardLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of a board, an accelerator on it, or a card.

    A card has a supply of its own. None or empty: unknown.
    """

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
        """Return the peak of its engines for numbers of `bits` (None: any), 10^9 operations/s."""
        number_type = self.type_for(bits)
        return self.most_gop_per_s[number_type] if number_type else None

    def type_for(self, bits: float | None) -> Literal["int4", "int8", "fp16", "fp32"] | None:
        """Return the type whose peak bounds numbers of `bits` (None: the fastest type).

        None if no type does.

        A wider type is never faster than a narrower one, so the bound of the narrower one holds for
        it too, unless the accelerator has integers only. Up to 5 bits, with the scale of a block,
        count as 4.
        """
        by_type = self.most_gop_per_s
        if (
            bits is not None
            and bits > 8
            and self.kind == "accelerator"
            and not {"fp16", "fp32"} & {*by_type}
        ):
            return None
        for number_type, least in (("fp32", 16), ("fp16", 8), ("int8", 5)):
            if bits is not None and bits > least and number_type in by_type:
                return number_type
        return max(by_type, key=lambda entry: by_type[entry], default=None)


class NamedLimits(msgspec.Struct, frozen=True):
    """The bounds of a device by its name: the board, and an accelerator or a card with it.

    `is_complete` is False if the name has other words: it may name several devices, or a part with
    unknown bounds.
    """

    board: BoardLimit | None = None
    added: BoardLimit | None = None
    is_complete: bool = True


class _LimitFile(msgspec.Struct):
    limit: tuple[BoardLimit, ...]


@lru_cache(maxsize=1)
def board_limits() -> tuple[BoardLimit, ...]:
    return msgspec.toml.decode(BOARD_LIMITS.read_bytes(), type=_LimitFile).limit


@lru_cache(maxsize=1)
def _by_word() -> dict[str, BoardLimit]:
    return {word: entry for entry in board_limits() for word in entry.words}


@lru_cache(maxsize=1)
def _words() -> re.Pattern[str]:
    longest_first = sorted(_by_word(), key=len, reverse=True)
    return re.compile(rf"(?<![a-z0-9])({'|'.join(map(re.escape, longest_first))})(?![a-z0-9+])")


def plain_name(device: str) -> str:
    """Return a device's name in lower case and one spelling.

    For example `raspberry pi 5` for `RPi-5 Model B`.
    """
    text = " ".join(re.sub(r"[-_/,()®™|]", " ", device.casefold()).split())
    text = re.sub(r"\b(?:raspberry ?pi|rpi|raspi) ?(?=[0-9zc])|^pi ?(?=\d)", "raspberry pi ", text)
    return re.sub(r"\bmodel [ab]\b", "", text)


@lru_cache(maxsize=1024)
def limits_named(device: str) -> NamedLimits:
    """Return the bounds of a device by its name in a device tree or by a person.

    For example `Raspberry Pi 5 with AI HAT+ 2`.
    """
    text = plain_name(device)
    parts = {
        entry.name: entry for entry in map(_by_word().__getitem__, _words().findall(text))
    }.values()
    boards = [entry for entry in parts if entry.kind == "board"]
    added = [entry for entry in parts if entry.kind != "board"]
    # A size and its unit are one word: "8 gb".
    remainder = re.sub(
        r"([\d.]+) (?=(?:gi?b|w|tops)\b)|\brev [\d.]+", r"\1", _words().sub(" ", text)
    ).replace("+", " ")
    is_plain = all(
        _HARMLESS.fullmatch(word) or (added and _OF_ACCELERATOR.fullmatch(word))
        for word in remainder.split()
    )
    return NamedLimits(
        board=boards[0] if len(boards) == 1 else None,
        added=added[0] if len(added) == 1 else None,
        is_complete=is_plain and len(boards) <= 1 and len(added) <= 1,
    )
