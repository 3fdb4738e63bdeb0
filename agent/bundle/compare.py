"""Compares what a record states with what its raw samples give, field by field."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

# Sums may be added in another order by another version of numpy; anything beyond is another number.
RELATIVE = 1e-9
ABSOLUTE = 1e-12


class Same(msgspec.Struct, frozen=True):
    """A field that came out as stated."""

    field: str


class Difference(msgspec.Struct, frozen=True):
    """A field that did not."""

    field: str
    stated: Any
    recomputed: Any


class Left(msgspec.Struct, frozen=True):
    """A part of the record that cannot be computed again, and why."""

    field: str
    why: str


Finding = Same | Difference | Left


def compare(field: str, stated: Any, recomputed: Any) -> Iterator[Same | Difference]:
    """Yield a finding for each single value of two Structs, dictionaries, sequences or plain values; absent is None."""
    yield from _compare(field, msgspec.to_builtins(stated), msgspec.to_builtins(recomputed))


def _compare(field: str, stated: Any, recomputed: Any) -> Iterator[Same | Difference]:
    if isinstance(stated, dict) and isinstance(recomputed, dict):
        for key in {**stated, **recomputed}:
            yield from _compare(f"{field}.{key}", stated.get(key), recomputed.get(key))
    elif _is_sequence(stated) and _is_sequence(recomputed) and len(stated) == len(recomputed):
        for place, (one, other) in enumerate(zip(stated, recomputed, strict=True)):
            yield from _compare(f"{field}[{place}]", one, other)
    else:
        yield Same(field) if _equal(stated, recomputed) else Difference(field, stated, recomputed)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _equal(stated: Any, recomputed: Any) -> bool:
    kinds = {type(stated), type(recomputed)}
    if float in kinds and kinds <= {int, float}:
        return math.isclose(stated, recomputed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return len(kinds) == 1 and bool(stated == recomputed)
