"""The record's schema: every part with its fields."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgemeter.agent.contract import record
from tests.docs.reference.tables import anchor, table, unit_of

HEAD = """# The run record

{stability}

`edgemeter config schema` prints the JSON Schema. A field whose name ends in a unit is in that unit; `1` is a ratio, 0..1. Absent is null,
never 0.
"""


def page() -> str:
    """Return the page: `RunRecord` first, the others in the order in which they are first referred to."""
    schema = record.json_schema()
    parts = schema["$defs"]
    text = HEAD.format(stability=schema["description"])
    for name in _in_order(parts, schema["$ref"].rsplit("/", 1)[1]):
        part = parts[name]
        rows = [(f"`{field}`", _type(kind), unit_of(field), kind["description"]) for field, kind in part["properties"].items()]
        text += f"\n## {name}\n\n{part.get('description', '')}\n\n{table(['field', 'type', 'unit', 'meaning'], rows)}"
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


def _type(kind: Mapping[str, Any]) -> str:
    if "$ref" in kind:
        name = kind["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{anchor(name)})"
    if "anyOf" in kind:
        return " or ".join(_type(option) for option in kind["anyOf"])
    if "enum" in kind:
        return ", ".join(f"`{word}`" for word in kind["enum"])
    if kind.get("type") == "array":
        pair = [_type(item) for item in kind.get("prefixItems", ())]
        return (
            f"list of {', '.join(pair)}" if pair else f"list of {_type(kind['items'])}" if isinstance(kind.get("items"), dict) else "list"
        )
    if kind.get("type") == "object":
        values = kind.get("additionalProperties")
        return f"map to {_type(values)}" if isinstance(values, dict) and values else "object"
    return {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean", "null": "null"}.get(
        kind.get("type", ""), "any"
    )
