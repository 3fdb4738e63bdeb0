"""Numbers and JSON in text that others wrote: of a size that a machine has, each name once, and one error for whatever is wrong with it."""

import json
from collections.abc import Sequence
from typing import Any

from edgemeter.agent.base.errors import ConfigError

_MOST_DIGITS = 18


def whole_number(digits: str | None) -> int | None:
    """Return the whole number that ASCII digits write; None for other text, and for one that no counter has."""
    is_whole = digits is not None and digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS
    return int(digits) if digits is not None and is_whole else None


def _bounded(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the name {name[:80]!r} stands twice in one object")
        fields[name] = value
    return fields


# Numbers that are no JSON (NaN) are read: Python's tools write them.
DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_bounded)


def parse_json(text: str) -> Any:
    """Return what JSON text holds; raises ConfigError if it is none, nests too deeply, or an object has a name twice."""
    try:
        return DECODER.decode(text)
    except RecursionError as error:
        raise ConfigError("it nests too deeply") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
