"""Imports plug-ins and the libraries of our extras on demand.

Plug-ins are found by their tables, name to `module:attribute`. Other packages add their plug-ins by
entry points.
"""

import platform
import re
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, one_line
from edgemeter.agent.base.suggestions import near

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Errors that importing a module, or getting an attribute of it, raises in practice.
_BROKEN = (
    ImportError,
    AttributeError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def registered_in(group: str) -> "list[EntryPoint]":
    """Return the entries that other packages register in an entry point group."""
    # It reads mails, and most plug-ins are in a table.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return list(entry_points(group=group))


def plugin_names(table: Mapping[str, str], group: str) -> list[str]:
    """Return the names in `table`, then those that other packages register.

    They register them in the entry point group.
    """
    return list(dict.fromkeys([*table, *(entry.name for entry in registered_in(group))]))


def find_plugin(kind: str, table: Mapping[str, str], name: str, group: str) -> Any:
    """Return the plug-in of that name, from its table or from its entry point in `group`.

    `kind` is for the error.

    Raises:
        ConfigError: there is no such plug-in (the message lists them), or two packages register the
            same name.
        UnavailableError: another package registers it, and it cannot be imported.
    """
    if name in table:
        return resolve_name(table[name])
    registered = [entry for entry in registered_in(group) if entry.name == name]
    if not registered:
        raise ConfigError(f"no {kind} is called {name!r}: {near(name, plugin_names(table, group))}")
    if len({entry.value for entry in registered}) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in registered))
        raise ConfigError(
            f"{kind} {name!r} is registered by {packages}: uninstall all but one of them"
        )
    first = registered[0]
    try:
        return first.load()
    except _BROKEN as error:
        raise UnavailableError(
            f"cannot import the {kind} {name!r} ({first.value} of {_package(first)}): "
            f"{type(error).__name__}: {one_line(error)}; "
            "install what it needs, or uninstall that package"
        ) from error


CPU_FIRST = (
    " (after PyTorch's build for the CPU, see its site: otherwise it brings gigabytes of CUDA)"
)
_MARKER = re.compile(r"(python_version|platform_machine) (>=|!=) .([\w.]+)")


def _lacking(extra: str, python: tuple[int, ...], machine: str) -> str:
    """Return a requirement of an extra that this machine cannot meet, else empty.

    The markers of the installed distribution decide.
    """
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 - as above

    try:
        lines = [
            line.replace("'", '"')
            for line in requires("edgemeter") or ()
            if not line.startswith("edgemeter")
        ]
    except PackageNotFoundError:
        return ""
    lacks = []
    for line in lines:
        if f'extra == "{extra}"' in line:
            limits = {name: value for name, _, value in _MARKER.findall(line)}
            oldest = limits.get("python_version", "0")
            is_old = python < tuple(map(int, oldest.split(".")))
            lacks.append(
                f"Python {oldest} or newer"
                if is_old
                else "a 64-bit system"
                if limits.get("platform_machine") == machine
                else ""
            )
    return lacks[0] if lacks and all(lacks) else ""


def install_command(
    extra: str,
    nvidia_driver: Path = Path("/proc/driver/nvidia"),
    python: tuple[int, ...] = sys.version_info[:2],
    machine: str = platform.machine(),
) -> str:
    """Return the pip command of an extra, preceded by its requirements.

    These are another Python, or a CPU build of PyTorch without an NVIDIA driver.

    Source: torch 2.15 requires CUDA's libraries, gigabytes, on every Linux, whatever the processor.
    """
    takes_cpu_build = extra in {"torch", "executorch", "convert"} and not nvidia_driver.exists()
    lacking = _lacking(extra, python, machine)
    return (
        f"{f'{lacking}, and there ' if lacking else ''}pip install "
        f"'edgemeter[{extra}]'{CPU_FIRST if takes_cpu_build else ''}"
    )


def import_extra(
    library: str, extra: str, need: str, kind: type[EdgemeterError] = UnavailableError
) -> Any:
    """Return a library of an extra; raises `kind`, with the pip command, if it is not installed."""
    try:
        return import_module(library)
    except ImportError as error:
        raise kind(f"{need}: {install_command(extra)}") from error


class ModuleOfExtra:
    """A module of such a library, imported at its first use; raises as `import_extra`."""

    def __init__(self, module: str, extra: str, need: str) -> None:
        self._import = partial(import_extra, module, extra, need)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._import(), name)


def require_extra(extra: str, need: str, *libraries: str) -> None:
    """Raise UnavailableError, as `import_extra`, if a library of an extra is not installed.

    It imports none, so it serves for checks before long work.
    """
    if any(find_spec(library) is None for library in libraries):
        raise UnavailableError(f"{need}: {install_command(extra)}")


def _package(entry: "EntryPoint") -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name
