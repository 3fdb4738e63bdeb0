"""All mistakes in a document at once.

Each has its section and key, the expected value, and the known keys.
"""

import copy
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from edgemeter.agent.base.foreign_text import TOML_TYPES
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.base.types import Name

# Keys of tables and indices of arrays, from the top of the document.
Place = tuple[str | int, ...]
_NAME = typing.cast("Any", Name)
_NAME_IN_WORDS = (
    "a name (letters, digits, space and ._:@-, the first a letter or digit, at most 128)"
)
_IN_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a document.

    It has a `section` as written in the file (empty: before the first), the `key` in it, and the
    fault.

    With a key, `what` continues a sentence that begins with it; without one it is a whole sentence.

    `place` can be left out for a document without the mistake; empty if nothing can be left out.
    """

    section: str
    key: str
    what: str
    place: Place = ()

    def __str__(self) -> str:
        if self.key:
            return f"`{self.key}`{f' in {self.section}' if self.section else ''} {self.what}"
        return f"{self.section}: {self.what}" if self.section else self.what


def mistakes(document: Mapping[str, Any], kind: Any) -> list[Mistake]:
    """Return the mistakes in a document (as read from TOML) for the msgspec type `kind`."""
    return list(_walk(dict(document), kind, ()))


def without(document: Mapping[str, Any], all_mistakes: Iterable[Mistake]) -> dict[str, Any]:
    """Return the document without the keys that are mistakes, to look for more in the rest."""
    remaining = copy.deepcopy(dict(document))
    for mistake in all_mistakes:
        table: Any = remaining
        for part in mistake.place[:-1]:
            table = table[part]
        if mistake.place:
            table.pop(mistake.place[-1], None)
    return remaining


def section_of(keys: Place) -> str:
    """Return the heading of the table at `keys`, empty for the whole document.

    For example `[sensors.rapl]`, or `[[case]] number 2`.
    """
    if not keys:
        return ""
    names = ".".join(str(part) for part in keys if isinstance(part, str))
    numbers = [part for part in keys if isinstance(part, int)]
    return f"[[{names}]] number {numbers[-1] + 1}" if numbers else f"[{names}]"


def _walk(value: Any, kind: Any, keys: Place) -> Iterator[Mistake]:
    try:
        msgspec.convert(value, kind, builtin_types=TOML_TYPES, str_keys=True)
    except msgspec.ValidationError as error:
        inner_mistakes = list(_inside(value, _fitting(value, kind), keys))
        yield from inner_mistakes or [_at(keys, _what(value, kind, error))]


def _inside(value: Any, kind: Any, keys: Place) -> Iterator[Mistake]:
    """Yield the mistakes in the parts of a table or list."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(value, dict) and _is_struct(kind):
        yield from _in_struct(value, kind, keys)
    elif isinstance(value, dict) and origin is dict:
        for key, inner in value.items():
            yield from _walk(key, arguments[0], (*keys, key))
            yield from _walk(inner, arguments[1], (*keys, key))
    elif isinstance(value, list) and origin in (list, tuple):
        for number, inner in enumerate(value):
            yield from _walk(inner, arguments[0], (*keys, number))


def _in_struct(
    value: Mapping[str, Any], kind: type[msgspec.Struct], keys: Place
) -> Iterator[Mistake]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, inner in value.items():
        if key in fields:
            yield from _walk(inner, hints[fields[key].name], (*keys, key))
        else:
            yield Mistake(section_of(keys), key, f"is not a key: {near(key, fields)}", (*keys, key))
    for key, field in fields.items():
        if field.required and key not in value:
            yield Mistake(
                section_of(keys), key, f"is required: write {_expected(hints[field.name])}"
            )


def _fitting(value: Any, kind: Any) -> Any:
    """Return the member of a union that a table or list matches, without its constraints."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(bare) not in (Union, UnionType):
        return bare
    containers = (dict,) if isinstance(value, dict) else (list, tuple)
    options = [_fitting(value, option) for option in get_args(bare)]
    return next(
        (
            option
            for option in options
            if get_origin(option) in containers or (dict in containers and _is_struct(option))
        ),
        bare,
    )


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _at(keys: Place, text: str) -> Mistake:
    names = [number for number, part in enumerate(keys) if isinstance(part, str)]
    if not names or len(keys) - 1 - names[-1] > 1:
        return Mistake(section_of(keys), "", text)
    inside = keys[names[-1] + 1 :]
    words = f"is wrong in item {int(inside[0]) + 1}, which {text}" if inside else text
    return Mistake(
        section_of(keys[: names[-1]]), str(keys[names[-1]]), words, keys[: names[-1] + 1]
    )


def _what(value: Any, kind: Any, error: Exception) -> str:
    words = _choices(kind)
    if words and isinstance(value, str):
        return f"is {value!r}, which is unknown: {near(value, words)}"
    if isinstance(value, dict) and _is_struct(_fitting(value, kind)):
        # Each key by itself is right: their combination is wrong.
        return str(error).split(" - at `")[0]
    text = _expected(kind)
    return (
        f"has to be {text}, not {_found(value)}"
        if text
        else f"is wrong ({error}): it is {_found(value)}"
    )


def _found(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    text = (
        "[...]"
        if isinstance(value, list)
        else str(value).lower()
        if isinstance(value, bool)
        else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


def _choices(kind: Any) -> Sequence[str]:
    """Return the allowed words of a key that has a fixed set."""
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return [word for option in options for word in _choices(option)]


def _expected(kind: Any) -> str:
    """Return the expected value in words; empty if there are none for it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return (
            _NAME_IN_WORDS
            if kind == _NAME
            else f"{_expected(arguments[0])}{''.join(_constraint(meta) for meta in arguments[1:])}"
        )
    if origin in (Union, UnionType):
        texts = list(
            dict.fromkeys(_expected(option) for option in arguments if option is not type(None))
        )
        return (
            f"{texts[0]}, or a list of such"
            if texts[1:] == [_list_of(texts[0])]
            else " or ".join(texts)
        )
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (list, tuple):
        return _list_of(_expected(arguments[0]))
    if origin is dict or _is_struct(kind):
        return "a table"
    return _IN_WORDS.get(kind, "")


def _list_of(text: str) -> str:
    return f"a list, each {text}"


def _constraint(meta: Any) -> str:
    if not isinstance(meta, msgspec.Meta):
        return ""
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge:g} to {meta.le:g}"
    bounds = (
        ("of at least", meta.ge),
        ("above", meta.gt),
        ("of at most", meta.le),
        ("below", meta.lt),
    )
    texts = [f"{words} {value:g}" for words, value in bounds if value is not None]
    lengths = (("at least", meta.min_length), ("at most", meta.max_length))
    texts += [f"{words} {value} long" for words, value in lengths if value is not None]
    texts += [f"of the form {meta.pattern}"] if meta.pattern else []
    return f" {' and '.join(texts)}" if texts else ""
