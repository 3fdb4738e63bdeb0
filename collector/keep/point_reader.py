"""A point read back as the record that it was written from, all but the raw samples; the other half of `line_protocol`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.records import SCHEMA, RunRecord
from edgemeter.collector.keep import point_schema
from edgemeter.collector.keep.point_schema import Field, Group


def record(point: Mapping[str, Any]) -> RunRecord:
    """Return the record of a point, given its fields and tags by name (absent ones left out or None).

    Raises:
        ConfigError: it is of a newer schema, a field is missing that a record needs, or one is not what it should be.
    """
    schema = point.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        message = f"the point has schema {schema}, this edgemeter reads up to {SCHEMA}: update edgemeter here"
        raise ConfigError(message)
    try:
        return msgspec.convert(_values(point_schema.RECORD, point), RunRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"the point does not hold the whole record ({error}): drain it again from a ledger, with every field"
        raise ConfigError(message) from error


def _values(group: Group, point: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {name: value for name in group.tags if (value := _tag(name, point)) is not None or name == "suite"}
    for inner in group.groups:
        there = any(point.get(one.name) is not None for one in point_schema.every_field(inner))
        if there or not inner.is_nullable:
            values[inner.attribute] = _values(inner, point)
        else:
            values[inner.attribute] = None
    for one in group.fields:
        value = point.get(one.name)
        if value is not None:
            values[one.attribute] = msgspec.json.decode(value) if one.kind == "json" and isinstance(value, str) else value
        elif one.is_nullable or one.kind == "json":
            values[one.attribute] = _absent(one)
    return values


def _tag(name: str, point: Mapping[str, Any]) -> str | None:
    exact = point.get(point_schema.EXACT[name]) if name in point_schema.EXACT else None
    # InfluxQL gives the empty text for a tag that a point has not, where others have it.
    return exact if exact is not None else point.get(name) or None


def _absent(one: Field) -> Any:
    # An empty list or mapping is not written, unless it could also be null.
    if one.is_nullable:
        return None
    return [] if one.is_list else {}
