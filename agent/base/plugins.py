"""Tables of plug-ins: name to `module:attribute`, imported when it is asked for; other packages add theirs by entry points."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from edgemeter.agent.base.errors import ConfigError


def plugin_names(table: Mapping[str, str], group: str) -> list[str]:
    """Return the names in `table`, then those that other packages register in the entry point group."""
    return [*table, *(entry.name for entry in entry_points(group=group) if entry.name not in table)]


def find_plugin(kind: str, table: Mapping[str, str], name: str, group: str | None = None) -> Any:
    """Return the plug-in of that name: what its table or, with a `group`, its entry point refers to; `kind` is for the error.

    Raises:
        ConfigError: there is no such plug-in; lists those that there are.
    """
    if name in table:
        return resolve_name(table[name])
    for entry in entry_points(group=group) if group else ():
        if entry.name == name:
            return entry.load()
    names = plugin_names(table, group) if group else table
    raise ConfigError(f"no {kind} is called {name!r}: choose one of {', '.join(names)}")
