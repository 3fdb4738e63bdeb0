"""Reads the `metadata.yaml` that Ultralytics puts beside the formats that hold no such words (OpenVINO, ncnn): task, size, class names.

Only what such a file has is understood: `key: value`, a list of `- value` lines, and a block of `  key: value` lines.
"""

import re
from collections.abc import Mapping
from pathlib import Path

FILE = "metadata.yaml"
_MOST_BYTES = 1 << 20
_ENTRY = re.compile(r"(?P<indent> *)(?P<key>[^\s:#'\"-][^:]*|'[^']*'|\"[^\"]*\"):(?: +(?P<value>.*))?")
_ITEM = re.compile(r" *- +(?P<value>.*)")


def read(folder: Path) -> Mapping[str, str]:
    """Return what the file in `folder` says, by key; lists and blocks as the text of a Python literal, nothing where there is no file."""
    try:
        with (folder / FILE).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8") if len(content) <= _MOST_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return {}
    found: dict[str, str | list[str] | dict[str, str]] = {}
    key = ""
    for line in text.splitlines():
        entry, item = _ENTRY.fullmatch(line.rstrip()), _ITEM.fullmatch(line.rstrip())
        held = found.get(key)
        if item and key:
            found[key] = [*(held if isinstance(held, list) else []), _plain(item["value"])]
        elif entry and not entry["indent"]:
            key = _plain(entry["key"])
            found[key] = _plain(entry["value"] or "")
        elif entry and key:
            found[key] = {**(held if isinstance(held, dict) else {}), _plain(entry["key"]): _plain(entry["value"] or "")}
    return {name: value if isinstance(value, str) else _literal(value) for name, value in found.items() if value}


def _plain(value: str) -> str:
    """Return a scalar without its quotes."""
    value = value.strip()
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1].replace("''", "'") if is_quoted else value


def _literal(value: list[str] | dict[str, str]) -> str:
    """Return a list or block as the text that the other formats hold: numbers as numbers."""
    if isinstance(value, list):
        return repr([_number(item) for item in value])
    return repr({_number(name): item for name, item in value.items()})


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else text
