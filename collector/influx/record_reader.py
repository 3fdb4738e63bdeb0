"""Reads from the JSON of records what their points need, and no more.

Most runs of a device are of the same model, runtime, data and machine. These parts stay JSON text, by which they are recognised when they
come again, so that each is decoded once; and what a point does not show is not decoded at all.
"""

import functools
import typing
from collections.abc import Sequence
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record import SCHEMA, RunRecord, check_schema, decode_head
from edgemeter.collector.influx.influx_config import Extent
from edgemeter.collector.influx.point_schema import FIGURES, NOT_WRITTEN, PATHS, RECORD, TAGS, WORKED_OUT, FieldGroup

Tree = dict[str, "Tree"]


def tree_of(paths: Sequence[str]) -> Tree:
    """Return dotted paths as a tree of their names."""
    tree: Tree = {}
    for path in paths:
        branch = tree
        for name in path.split("."):
            branch = branch.setdefault(name, {})
    return tree


_WORKED_OUT_OF = [path for entry in WORKED_OUT for path in entry.reads]
# The parts of a record, of those that each has, that come again in others; not those that figures are worked out from.
REPEATED = tuple(
    name
    for name in ("model", "runtime", "inputs", "dataset", "accuracy", "environment", "verdict", "provenance")
    if name not in tree_of(_WORKED_OUT_OF)
)


def read_records(array: bytes, extent: Extent, *, has_samples: bool = False) -> Sequence[Any]:
    """Return the records in `array` (JSON): objects with a record's attributes, but for those of `REPEATED`, which are JSON texts.

    Those of the extent `figures` have only what its points show; only with `has_samples` the raw samples are among it.

    Raises:
        ConfigError: it is no array of records, or a record is of a newer schema than this version knows.
    """
    records: list[Any] = _decoded(_array_decoder("all" if has_samples else extent, has_samples), array)
    check_schema(max((record.schema for record in records), default=SCHEMA))
    return records


def read_record(text: bytes | msgspec.Raw, extent: Extent, *, has_samples: bool = False) -> Any:
    """Return one record, as `read_records`, once all of it is valid; the raw samples of a large one are copied with `has_samples` only.

    Raises:
        ConfigError: it is no record, or of a newer schema.
    """
    decode_head(text)
    return _decoded(_record_decoder("all" if has_samples else extent, has_samples), text)


def read_part(name: str, text: bytes) -> Any:
    """Return the part `name` of `REPEATED` from its JSON text; raises ConfigError if it is none."""
    return _decoded(_part_decoders[name], text)


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"not of a run record: {error}") from error


@functools.cache
def _array_decoder(extent: Extent, has_samples: bool) -> msgspec.json.Decoder[list[Any]]:  # noqa: FBT001 - a key of the cache
    return msgspec.json.Decoder(list[_slim_record(extent, has_samples)])  # type: ignore[misc]


@functools.cache
def _record_decoder(extent: Extent, has_samples: bool) -> msgspec.json.Decoder[Any]:  # noqa: FBT001 - as above
    return msgspec.json.Decoder(_slim_record(extent, has_samples))


def _slim_record(extent: Extent, has_samples: bool) -> type[msgspec.Struct]:  # noqa: FBT001 - as above
    names = [field.name for field in msgspec.structs.fields(RunRecord) if has_samples or field.name != NOT_WRITTEN]
    figures = ["schema", *_paths(RECORD), *TAGS.values(), *PATHS, *_WORKED_OUT_OF, *REPEATED]
    return _slim(RunRecord, tree_of(names if extent == "all" else figures))


def _paths(group: FieldGroup, prefix: str = "") -> list[str]:
    paths = [f"{prefix}{field.attribute}" for field in group.fields if field.name in FIGURES]
    return paths + [path for inner in group.groups for path in _paths(inner, f"{prefix}{inner.attribute}.")]


def _slim(kind: Any, tree: Tree) -> type[msgspec.Struct]:
    """Return a struct with the fields of `kind` that are in `tree`."""
    # What is read was checked: without limits and patterns, in the order of the text.
    hints = typing.get_type_hints(kind)
    fields: list[Any] = []
    for declared in msgspec.structs.fields(kind):
        name = declared.name
        if (below := tree.get(name)) is None:
            continue
        hint = hints[name]
        if kind is RunRecord and name in REPEATED:
            hint = msgspec.Raw
        elif below:
            options = typing.get_args(hint) or (hint,)
            slim = _slim(next(option for option in options if option is not type(None)), below)
            hint = slim | None if type(None) in options else slim
        defaults: dict[str, Any] = {"default": declared.default, "default_factory": declared.default_factory}
        fields.append((name, hint, msgspec.field(**defaults)))
    return msgspec.defstruct(kind.__name__, fields, frozen=True, kw_only=True, gc=False)


_hints = typing.get_type_hints(RunRecord, include_extras=True)
_part_decoders = {name: msgspec.json.Decoder(_hints[name]) for name in REPEATED}
