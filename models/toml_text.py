"""TOML as text, for the few shapes that we write: tables, lists of tables, strings, numbers, and lists of these."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def document(content: Mapping[str, Any]) -> str:
    """Return `content` as TOML; what is None or an empty table or list is left out."""
    return "\n".join(_table(content, ())).strip("\n") + "\n"


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, all of it or nothing.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _table(content: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of one table: its values first, as TOML asks, then the tables in it."""
    kept = {key: value for key, value in content.items() if value not in (None, {}, [], ())}
    inner = {key: value for key, value in kept.items() if _is_tables(value)}
    for key, value in kept.items():
        if key not in inner:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in inner.items():
        path = (*above, key)
        named = ".".join(_key(part) for part in path)
        for table in value if isinstance(value, list | tuple) else [value]:
            yield ""
            yield f"[[{named}]]" if isinstance(value, list | tuple) else f"[{named}]"
            yield from _table(table, path)


def _is_tables(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list | tuple) and isinstance(value[0], Mapping))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    # Strings, numbers and lists of them are written alike in JSON and in TOML, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
