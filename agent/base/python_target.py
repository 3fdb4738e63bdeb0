"""The address of a factory of the runtime `python`: `FILE.py:make`, or `package.module:make`; its source is found without running it."""

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError

_ADDRESS = re.compile(r"(?:(?P<file>.*\.py)|(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*)):(?P<attribute>[^\W\d]\w*)", re.ASCII)


_STANDARD = Path(os.__file__).resolve().parent
# Folders of these hold installed packages, not what belongs to one module.
_LIBRARIES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class PythonTarget:
    """An attribute of a file or of a module; one of the two is None."""

    attribute: str
    file: Path | None = None
    module: str | None = None

    @property
    def source(self) -> Path:
        """The file that holds the module.

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
                f"no module {self.module!r} with a source file is in Python's path or the current folder: install it, or give FILE.py:NAME"
            )
        return source

    @property
    def top(self) -> Path:
        """The folder or file of its outermost package; of a file and of a module without a package the file."""
        levels = (self.module or "").count(".") + (self.source.name == "__init__.py")
        return self.source if self.file is not None or not levels else self.source.parents[levels - 1]

    @property
    def folder(self) -> Path | None:
        """The folder whose modules belong to it: its package, or where its file lies, unless that is a library's; resolved."""
        folder = self.top.resolve() if self.top.is_dir() else self.top.resolve().parent
        is_library = self.top.is_file() and folder.name in _LIBRARIES
        return None if is_library or folder == _STANDARD else folder


def parse(text: str) -> PythonTarget | None:
    """Return what `text` addresses; None where it has another form, or is a file of that very name."""
    match = _ADDRESS.fullmatch(text)
    if match is None or Path(text).exists():
        return None
    return PythonTarget(match["attribute"], Path(match["file"]) if match["file"] else None, match["module"])


def of_file(text: str) -> PythonTarget | None:
    """Return what the name of a plug-in addresses as `FILE.py:NAME`; None of a name that stands in a table."""
    target = parse(text)
    return target if target is not None and target.file is not None else None


def plain_name(text: str) -> str:
    """Return the name of a plug-in as records have it: of one in a file, wherever that lies, the file's name and its own."""
    target = of_file(text)
    return text if target is None or target.file is None else f"{target.file.name}:{target.attribute}"


def lies_in(file: Path, folder: Path) -> bool:
    """Return whether a file, resolved, is one of a folder's, but of no library that is installed below it."""
    is_inside = file.is_relative_to(folder) and not file.is_relative_to(_STANDARD)
    return is_inside and not set(_LIBRARIES).intersection(file.relative_to(folder).parts)


def search_folders() -> list[str]:
    """Return where modules are looked for: Python's path, then the current folder, so that this shadows nothing."""
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
    """Return a module or package of the current folder, which a sandbox may not let Python list: a home, where only it may be read."""
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
    """Return what the finders of this interpreter, those of development installs too, know of a module; no parent is imported."""
    specs = (finder.find_spec(name, folders, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    with suppress(KeyError):
        return next((spec for spec in specs if spec), None)
    # A folder without __init__.py, whose parent Python looks for among the imported modules.
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(Path(folder) / name.rpartition(".")[2]) for folder in folders or ()]
    return spec
