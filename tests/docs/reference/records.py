"""The record's schema: how it is built."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgemeter.agent.contract import record
from edgemeter.collector.runs.figure_names import with_part
from tests.docs.reference.tables import anchor, table

HEAD = """# The run record

One measurement of one case in one process. Its schema number is {number}.

- **Stable within a schema number**: no property is removed or renamed, and none changes its type, unit or meaning.
- **May grow**: new properties are optional; readers ignore those that they do not know.
- **Free texts** (reasons, notes, warnings, evidence) may change.
- **Units** end the names. A ratio is 0..1. Absent is null, never 0.

`edgemeter config schema` prints type and meaning of every field as JSON Schema. Below are the fields of a
run, and the names in its parts; *95%* marks a value with its bounds beside it (`_low`, `_high`).

"""


def page() -> str:
    """Return the page: a run's own fields with their meaning, then each part once, in the order in which they are first referred to."""
    schema = record.json_schema()
    parts = schema["$defs"]
    first, *inner = _in_order(parts, schema["$ref"].rsplit("/", 1)[1])
    run = ((f"`{name}` {_link(kind)}", kind["description"]) for name, kind in parts[first]["properties"].items())
    text = HEAD.format(number=record.SCHEMA) + table(["field", "meaning"], run)
    for name in inner:
        properties = parts[name]["properties"]
        bounded = {field for field in properties if {with_part(field, "_low"), with_part(field, "_high")} <= {*properties}}
        bounds = {with_part(field, end) for field in bounded for end in ("_low", "_high")}
        fields = ", ".join(
            f"`{field}`{' *95%*' * (field in bounded)}{_link(kind, ' ')}" for field, kind in properties.items() if field not in bounds
        )
        text += f"\n## {name}\n\n{fields}\n"
    return text


def _in_order(parts: Mapping[str, Any], first: str) -> Iterator[str]:
    ahead, names = [first], {first}
    while ahead:
        name = ahead.pop(0)
        yield name
        for kind in parts[name]["properties"].values():
            for other in _references(kind):
                if other not in names:
                    names.add(other)
                    ahead.append(other)


def _references(kind: Mapping[str, Any]) -> list[str]:
    if "$ref" in kind:
        return [kind["$ref"].rsplit("/", 1)[1]]
    inner = [*kind.get("anyOf", ()), *(kind[key] for key in ("items", "additionalProperties") if isinstance(kind.get(key), dict))]
    return [name for part in [*inner, *kind.get("prefixItems", ())] for name in _references(part)]


def _link(kind: Mapping[str, Any], before: str = "") -> str:
    names = ", ".join(f"[{name}](#{anchor(name)})" for name in _references(kind))
    return f"{before}({names})" if names else ""
