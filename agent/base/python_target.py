"""The address of a factory of the runtime `python`, whose source is located without running it.

It is `FILE.py:make`, or `package.module:make`.
"""

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError

_ADDRESS = re.compile(
    r"(?:(?P<file>.*\.py)|(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*)):(?P<attribute>[^\W\d]\w*)",
    re.ASCII,
)


_STANDARD = Path(os.__file__).resolve().parent
# These folders contain installed packages, not the files of one module.
_LIBRARIES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class PythonTarget:
    """An attribute of a file or of a module; one of the two is None."""

    attribute: str
    file: Path | None = None
    module: str | None = None

    @property
    def source(self) -> Path:
        """The file of the module.

        Raises:
            ConfigError: there is none.
        """
        if self.file is not None:
            if not self.file.is_file():
                raise ConfigError(f"there is no file {str(self.file)!r}: correct the path")
            return self.file
        source = _source(str(self.module))
        if source is None:
            raise ConfigError(
                f"no module {self.module!r} with a source file is in Python's path or the "
                "current folder: install it, or give FILE.py:NAME"
            )
        return source

    @property
    def top(self) -> Path:
        """The folder or file of its outermost package; the file itself without a package."""
        levels = (self.module or "").count(".") + (self.source.name == "__init__.py")
        return (
            self.source if self.file is not None or not levels else self.source.parents[levels - 1]
        )

    @property
    def folder(self) -> Path | None:
        """The folder whose modules belong to it, resolved.

        It is its package, or the folder of its file, unless that is a library's.
        """
        folder = self.top.resolve() if self.top.is_dir() else self.top.resolve().parent
        is_library = self.top.is_file() and folder.name in _LIBRARIES
        return None if is_library or folder == _STANDARD else folder


def parse(text: str) -> PythonTarget | None:
    """Return the target that `text` addresses.

    None if it has another form, or is the name of a file.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or Path(text).exists():
        return None
    return PythonTarget(
        match["attribute"], Path(match["file"]) if match["file"] else None, match["module"]
    )


def of_file(text: str) -> PythonTarget | None:
    """Return the target of a plug-in name of the form `FILE.py:NAME`.

    None for a name in a table.
    """
    target = parse(text)
    return target if target is not None and target.file is not None else None


def plain_name(text: str) -> str:
    """Return the name of a plug-in in records.

    For one in a file it is the file's name without its folder, and its own name.
    """
    target = of_file(text)
    return (
        text if target is None or target.file is None else f"{target.file.name}:{target.attribute}"
    )


def lies_in(file: Path, folder: Path) -> bool:
    """Return whether a file, resolved, belongs to a folder.

    A file of a library installed below it does not.
    """
    is_inside = file.is_relative_to(folder) and not file.is_relative_to(_STANDARD)
    return is_inside and not set(_LIBRARIES).intersection(file.relative_to(folder).parts)


def search_folders() -> list[str]:
    """Return the search path of modules.

    It is Python's, then the current folder, which therefore shadows nothing.
    """
    with suppress(OSError):
        return [*sys.path, os.getcwd()]  # noqa: PTH109 - entries of sys.path are texts
    return sys.path


def _source(module: str) -> Path | None:
    first, *deeper = module.split(".")
    spec = _spec(first, None) or PathFinder.find_spec(first, search_folders()) or unlisted(first)
    name = first
    for part in deeper:
        folders = list(spec.submodule_search_locations or ()) if spec else []
        name = f"{name}.{part}"
        spec = _spec(name, folders)
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def unlisted(name: str) -> ModuleSpec | None:
    """Return a module or package of the current folder that a sandbox does not let Python list.

    It is a readable file in an unlisted home.
    """
    with suppress(OSError):
        for file in (Path.cwd() / name / "__init__.py", Path.cwd() / f"{name}.py"):
            if file.is_file():
                return spec_from_file_location(name, file)
        if os.listdir(Path.cwd() / name):  # noqa: PTH208 - a folder without __init__.py
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(Path.cwd() / name)]
            return spec
    return None


def _spec(name: str, folders: list[str] | None) -> ModuleSpec | None:
    """Return the spec of a module by the finders of this interpreter.

    These include those of development installs. No parent is imported.
    """
    specs = (
        finder.find_spec(name, folders, None)
        for finder in sys.meta_path
        if hasattr(finder, "find_spec")
    )
    with suppress(KeyError):
        return next((spec for spec in specs if spec), None)
    # A folder without __init__.py, whose parent Python looks up among the imported modules.
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [
        str(Path(folder) / name.rpartition(".")[2]) for folder in folders or ()
    ]
    return spec
