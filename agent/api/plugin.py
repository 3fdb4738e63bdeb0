"""The names that plug-ins import: protocols, the types of their arguments, and helpers.

`plugin.pyi` lists the names, which follow semantic versioning like those of `edgemeter`. A module
is imported when one of its names is used, so that a sensor's plug-in does not import what decodes
images.
"""

import ast
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

_PLACES = {
    (alias.asname or alias.name).lstrip("_"): f"{statement.module}:{alias.name}"
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
__all__ = tuple(sorted(_PLACES))


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attribute = globals()[name] = resolve_name(_PLACES[name])
    return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
