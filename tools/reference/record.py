"""The record's schema: its fields, and the names in its parts."""

from collections.abc import Mapping
from typing import Any

from edgemeter.agent.contract import record
from tools.reference.tables import anchor, table

HEAD = """# The run record

A record is one measurement of one case in one process. This is schema number {number}:

- No field is removed or renamed, and none changes its type, unit or meaning, within a schema
  number.
- New fields are optional. Ignore those that you do not know.
- Free texts (`reasons`, `warnings`) may change.
- Names end with the unit. Ratios are 0..1. Absent values are null, never 0.

`edgemeter config schema` prints the JSON Schema with the type and meaning of every field. For the
sentence of a violated rule see [rules](rules.md).

"""


def page() -> str:
    """Return the page: the fields of a run with their meaning, then the names in each part.

    Names are sorted.
    """
    parts = record.json_schema()["$defs"]
    run = (
        (f"`{name}`{_link(kind)}", kind["description"])
        for name, kind in parts.pop(record.RunRecord.__name__)["properties"].items()
    )
    return (
        HEAD.format(number=record.SCHEMA)
        + table(["field", "meaning"], run)
        + "".join(_part(name, parts[name]) for name in sorted(parts))
    )


def _part(name: str, part: Mapping[str, Any]) -> str:
    fields = (f"`{field}`{_link(kind)}" for field, kind in part["properties"].items())
    return f"\n## {name}\n\n{', '.join(fields)}\n"


def _references(kind: Mapping[str, Any]) -> list[str]:
    if "$ref" in kind:
        return [kind["$ref"].rsplit("/", 1)[1]]
    inner = [
        *kind.get("anyOf", ()),
        *(
            kind[key]
            for key in ("items", "additionalProperties")
            if isinstance(kind.get(key), dict)
        ),
    ]
    return [name for part in [*inner, *kind.get("prefixItems", ())] for name in _references(part)]


def _link(kind: Mapping[str, Any]) -> str:
    names = ", ".join(f"[{name}](#{anchor(name)})" for name in _references(kind))
    return f" ({names})" if names else ""
