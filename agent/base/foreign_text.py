"""Text that others wrote, read within limits: numbers, JSON, TOML and logs.

There is one error for all faults.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from typing import Any, TypeVar, overload

import msgspec

from edgemeter.agent.base.errors import ConfigError

Content = TypeVar("Content")

_MOST_DIGITS = 18
# Our own files nest at most seven deep. Deeper ones overflow the stack wherever they are copied,
# compared or printed.
_DEEPEST = 50
# Numbers by their decimal sign, with or without a unit; the other sign separates thousands.
_FORMS = {
    sign: re.compile(
        rf"[+-]?(?:\d+|[1-9]\d{{0,2}}(?:\{other}\d{{3}})+)?(?:\{sign}\d*)?"
        r"(?:[eE][+-]?\d+)?\s*[A-Za-z]*"
    )
    for sign, other in ((".", ","), (",", "."))
}
# Terminal colour codes.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TOML_TYPES = (datetime, date, time)


def log_text(content: bytes) -> str:
    """Return a log as text, from UTF-16 (PowerShell), UTF-8 or Latin-1.

    It is without NUL bytes; the micro sign becomes `u`.
    """
    try:
        text = content.decode(
            "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
        )
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return _ESCAPES.sub("", text.replace("\0", "")).translate({0xB5: "u", 0x3BC: "u"})


def with_points(texts: Sequence[str], *, parted_by: str) -> list[str]:
    """Return the cells of a table with a decimal point in their numbers.

    The numbers are without separators of thousands. If both signs are ambiguous, a point is
    decimal, and so is a comma in a table `parted_by` semicolons.

    Raises:
        ConfigError: the signs may separate thousands or decimals.
    """
    numbers = [text for text in texts if any(form.fullmatch(text) for form in _FORMS.values())]
    signs = {sign for sign in _FORMS if any(sign in text for text in numbers)}
    decimals = [sign for sign, form in _FORMS.items() if all(map(form.fullmatch, numbers))]
    if len(decimals) > 1 and (signs <= {"."} or (signs == {","} and parted_by == ";")):
        decimals = [*signs] or ["."]
    if len(decimals) != 1:
        raise ConfigError(
            "has numbers with ambiguous separators (thousands or decimals): write "
            "them without commas"
        )
    points = str.maketrans(",.", ".,") if decimals == [","] else {}
    return [
        text.translate(points).replace(",", "") if _FORMS[decimals[0]].fullmatch(text) else text
        for text in texts
    ]


def whole_number(digits: str | None) -> int | None:
    """Return the whole number in ASCII digits.

    None for other text, and for a number too large for a counter.
    """
    if digits is None or not (digits.isascii() and digits.isdecimal()):
        return None
    return int(digits) if len(digits) <= _MOST_DIGITS else None


def _bounded(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f"the name {name[:80]!r} appears twice in one object")
        fields[name] = value
    return fields


def parse_json(text: str) -> Any:
    """Return the value of JSON text.

    Raises:
        ConfigError: it is invalid, nests too deeply, or an object repeats a name.
    """
    import json  # noqa: PLC0415 - msgspec reads our own

    try:
        # NaN and infinities, which are not JSON, are accepted: Python's tools write them.
        return json.loads(text, object_pairs_hook=_unique, parse_int=_bounded)
    except RecursionError as error:
        raise ConfigError("it nests too deeply") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error


@overload
def decode_json(content: bytes | str | msgspec.Raw, kind: type[Content]) -> Content: ...
@overload
def decode_json(content: bytes | str | msgspec.Raw, kind: Any) -> Any: ...
def decode_json(content: bytes | str | msgspec.Raw, kind: Any) -> Any:
    """Return JSON text as `kind`.

    Raises:
        msgspec.DecodeError: it is invalid, has another form, or nests too deeply.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    except RecursionError as error:
        raise msgspec.DecodeError("it nests too deeply") from error


def decode_toml(content: bytes | str, kind: type[Content]) -> Content:
    """Return TOML text as `kind`.

    Raises:
        msgspec.DecodeError: it is invalid, has another form, or nests too deeply.
    """
    try:
        tables = msgspec.toml.decode(content)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error
    except RecursionError as error:
        raise msgspec.DecodeError("it nests too deeply") from error
    level: list[Any] = [tables]
    for _ in range(_DEEPEST):
        level = [part for outer in level for part in _parts(outer)]
    if level:
        raise msgspec.DecodeError("it nests too deeply")
    return msgspec.convert(tables, kind, builtin_types=TOML_TYPES, str_keys=True)


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
