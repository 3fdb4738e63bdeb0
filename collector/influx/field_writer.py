"""Writes the fields of records as line protocol, each type in one pass.

Which groups of a record are present is nearly always the same, so that a layout is kept for each such shape, without those that are absent.
"""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from edgemeter.collector.influx.point_schema import FieldGroup, FieldKind, PointField

# Of the parts of a record there are a few shapes each; what somebody else sends may have any.
_LAYOUTS = 128
_KINDS: tuple[FieldKind, ...] = ("float", "integer", "boolean", "text", "json")
_encode = msgspec.json.Encoder().encode
_EQUALS = bytes.maketrans(b":", b"=")

# For each group in a group its own shape, None if it is absent.
_Shape = tuple["_Shape | None", ...]


class FieldWriter:
    """Writes the fields of a group and of the groups in it."""

    def __init__(self, group: FieldGroup) -> None:
        self._shape_of = _shape_reader(group)
        self._layout = functools.lru_cache(_LAYOUTS)(lambda shape: _Layout(list(_present(group, shape))))

    def fields(self, group: Any) -> list[str]:
        """Return the fields of a group as text, several in one, without those that are absent."""
        return self._layout(self._shape_of(group)).fields(group)


def _shape_reader(group: FieldGroup) -> Callable[[Any], _Shape]:
    groups_in = all_of([inner.attribute for inner in group.groups])
    readers = [(index, _shape_reader(inner)) for index, inner in enumerate(group.groups) if inner.groups]

    def shape_of(value: Any) -> _Shape:
        groups = groups_in(value)
        shape: list[_Shape | None] = [None if inner is None else () for inner in groups]
        for index, inner_shape in readers:
            if groups[index] is not None:
                shape[index] = inner_shape(groups[index])
        return tuple(shape)

    return shape_of


def _present(group: FieldGroup, shape: _Shape, prefix: str = "") -> Iterator[tuple[str, PointField]]:
    """Yield path and field of what a group of this shape has."""
    yield from ((f"{prefix}{field.attribute}", field) for field in group.fields)
    for inner, inner_shape in zip(group.groups, shape, strict=True):
        if inner_shape is not None:
            yield from _present(inner, inner_shape, f"{prefix}{inner.attribute}.")


class _Layout:
    """The names and paths of the fields of one shape by type."""

    def __init__(self, fields: Sequence[tuple[str, PointField]]) -> None:
        kinds = {kind: [(path, field) for path, field in fields if field.kind == kind] for kind in _KINDS}
        self._numbers = _flat(kinds["float"] + kinds["boolean"])
        self._integers = _flat(kinds["integer"])
        self._read_texts, self._read_lists = (all_of([path for path, _ in kinds[kind]]) for kind in ("text", "json"))
        self._texts = [f"{field.name}=" for _, field in kinds["text"]]
        self._lists = [field for _, field in kinds["json"]]

    def fields(self, group: Any) -> list[str]:
        # The encoder keeps every digit and always writes a point or an exponent: a number without makes an integer column.
        numbers, integers = self._numbers(group), self._integers(group)
        fields = [numbers] if numbers else []
        if integers:
            fields.append(f"{integers.replace(',', 'i,')}i")
        fields += [f"{name}{quoted(value)}" for name, value in zip(self._texts, self._read_texts(group), strict=True) if value is not None]
        for field, value in zip(self._lists, self._read_lists(group), strict=True):
            # An empty list is absent, unless it could also be null.
            if value or (field.is_nullable and value is not None):
                fields.append(f"{field.name}={quoted(_encode(value).decode())}")
                if field.by_name:
                    fields += _by_name(field, value)
        return fields


def _flat(fields: Sequence[tuple[str, PointField]]) -> Callable[[Any], str]:
    """Return what writes numbers or booleans without those that are None: as JSON, but for its braces, quotes and colons."""
    values_of = all_of([path for path, _ in fields])
    flat = msgspec.defstruct("Flat", [(field.name, Any, None) for _, field in fields], omit_defaults=True, gc=False)
    return lambda group: _encode(flat(*values_of(group))).translate(_EQUALS, b'{"}').decode()


def _by_name(field: PointField, values: dict[str, Any]) -> Iterator[str]:
    for key, name in field.by_name.items():
        if (value := values.get(key)) is not None:
            yield f"{name}={value}i" if field.by_name_kind == "integer" else f"{name}={_encode(float(value)).decode()}"


def all_of(paths: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads dotted `paths` of an object as a tuple, of any length."""
    if not paths:
        return lambda _: ()
    get = operator.attrgetter(*paths)
    return get if len(paths) > 1 else lambda group: (get(group),)


def quoted(value: str) -> str:
    """Return `value` as a text field."""
    if '"' in value or "\\" in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
