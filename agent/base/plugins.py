"""Imports on demand: plug-ins by their tables, name to `module:attribute`, and the libraries of our extras.

Other packages add their plug-ins by entry points.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, one_line

# What importing a module, and taking an attribute of it, raises in practice.
_BROKEN = (ImportError, AttributeError, NameError, OSError, RuntimeError, SyntaxError, TypeError, ValueError)


def plugin_names(table: Mapping[str, str], group: str) -> list[str]:
    """Return the names in `table`, then those that other packages register in the entry point group."""
    return list(dict.fromkeys([*table, *(entry.name for entry in entry_points(group=group))]))


def find_plugin(kind: str, table: Mapping[str, str], name: str, group: str) -> Any:
    """Return the plug-in of that name: what its table or its entry point in `group` refers to; `kind` is for the error.

    Raises:
        ConfigError: there is no such plug-in (lists those that there are), or two packages register one of that name.
        UnavailableError: another package registers it, and it cannot be imported.
    """
    if name in table:
        return resolve_name(table[name])
    registered = list(entry_points(group=group, name=name))
    if not registered:
        raise ConfigError(f"no {kind} is called {name!r}: choose one of {', '.join(plugin_names(table, group))}")
    if len({entry.value for entry in registered}) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in registered))
        raise ConfigError(f"{kind} {name!r} is registered by {packages}: uninstall all but one of them")
    first = registered[0]
    try:
        return first.load()
    except _BROKEN as error:
        raise UnavailableError(
            f"cannot import the {kind} {name!r} ({first.value} of {_package(first)}): {type(error).__name__}: {one_line(error)}; "
            "install what it needs, or uninstall that package"
        ) from error


def import_extra(library: str, extra: str, need: str, kind: type[EdgemeterError] = UnavailableError) -> Any:
    """Return a library that an extra brings; raises `kind`, with what needs it and the pip command, if it is not installed."""
    try:
        return import_module(library)
    except ImportError as error:
        raise kind(f"{need}: pip install 'edgemeter[{extra}]'") from error


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name
