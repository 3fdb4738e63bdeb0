"""Model cards as text: the TOML that `edgemeter.agent.recognition.card` reads."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from edgemeter.agent.recognition.card import Card


def text(model: Card) -> str:
    """Return the card as TOML; what it leaves at its default is left out, so that the file shows what is special."""
    settings: dict[str, Any] = msgspec.to_builtins(model)
    parts = {key: value for key, value in settings.items() if isinstance(value, dict)}
    return tables({key: value for key, value in settings.items() if key not in parts}, parts)


def tables(settings: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return settings and tables as TOML, without what is None or a card's default."""
    lines = [_line(key, value) for key, value in settings.items() if value is not None]
    for name, table in parts.items():
        plain = _defaults(name)
        rows = [_line(key, value) for key, value in table.items() if value is not None and plain.get(key, _ABSENT) != value]
        lines += ["", f"[{name}]", *rows] if rows else []
    return "\n".join(lines) + "\n"


_ABSENT = object()


def _defaults(table: str) -> dict[str, Any]:
    """Return what a table of the card says where it says nothing."""
    if table not in ("input", "output"):
        return {}
    fields = {field.name: field.type for field in msgspec.structs.fields(Card)}
    return {
        field.encode_name: msgspec.to_builtins(field.default)
        for field in msgspec.structs.fields(fields[table])
        if field.default is not msgspec.NODEFAULT
    }


def _line(key: str, value: Any) -> str:
    # Strings, numbers and lists of them are written alike in JSON and in TOML.
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"
