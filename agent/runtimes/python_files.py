"""The files that determine a model of the runtime `python`: those beside its code, its weights, and those that its options name."""

import builtins
import io
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.python_target import PythonTarget
from edgemeter.agent.sandbox.bubblewrap import is_narrow

# A folder of more that an option names is a data set rather than a model; at 40 MB/s its hash would take 7 minutes in each process.
_MOST_FILES, _MOST_BYTES = 1000, 16 * 10**9
_OPEN = open


class NotedFiles:
    """Notes the files that Python opens to read while it is entered: what determines a model may lie beside its code, named there only.

    It stands for `open`, and is no function, because a class whose attribute it is would make that its method.
    """

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self._is_noting = False
        # No audit hook: it stays for ever, and would add 0.4 us to each `id()` of the timed part. Python 3.10 has the accessor.
        self._owners = [owner for owner in (builtins, io, getattr(pathlib, "_NormalAccessor", None)) if owner]

    def __call__(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        """Open a file as `open` does."""
        stream = _OPEN(file, mode, *arguments, **named)
        if self._is_noting and not isinstance(file, int) and "r" in mode:
            self.paths.add(Path(os.fsdecode(file)).resolve())
        return stream

    def __enter__(self) -> None:
        self._set(self, is_noting=True)

    def __exit__(self, *_: object) -> None:
        self._set(_OPEN, is_noting=False)

    def _set(self, function: Any, *, is_noting: bool) -> None:
        self._is_noting = is_noting
        for owner in self._owners:
            setattr(owner, "open", function)  # noqa: B010 - no assignment to a function, for mypy


def sources(target: PythonTarget) -> list[Path]:
    """Return the files beside the code of a target that were imported, by the names of their modules."""
    modules = (module for name, module in sorted(sys.modules.items()) if not name.startswith("edgemeter."))
    imported = [Path(file) for module in modules if isinstance(module, ModuleType) and (file := vars(module).get("__file__"))]
    return _beside(target, imported)


def opened(target: PythonTarget, noted: NotedFiles) -> list[Path]:
    """Return the files beside the code that it opened to read; by name."""
    return sorted(_beside(target, (file for file in noted.paths if "__pycache__" not in file.parts and file.is_file())))


def _beside(target: PythonTarget, files: Iterable[Path]) -> list[Path]:
    """Return those files that lie in the code's folder, but for what a run writes in its scratch folder."""
    folder, scratch = target.folder, Path(tempfile.gettempdir()).resolve()
    if folder is None:
        return []
    is_apart = not folder.is_relative_to(scratch)
    resolved = ((path, path.resolve()) for path in files)
    return [path for path, file in resolved if python_target.lies_in(file, folder) and not (is_apart and file.is_relative_to(scratch))]


def files_of_weights(weights: Sequence[Path], address: str) -> list[Path]:
    """Return the files of weights, of a folder all in it; raises ConfigError if one is absent."""
    files: list[Path] = []
    for path in map(Path, weights):
        inside = sorted(_walked(path)) if path.is_dir() else [path]
        if not inside or not inside[0].is_file():
            raise ConfigError(f"{address} names weights that are not there: {str(path)!r}")
        files += inside
    return files


def files_of_options(options: Mapping[str, str], address: str, *, has_weights: bool) -> list[Path]:
    """Return the files that options name, of a folder all in it: a user's factory may read weights that it does not state.

    Raises:
        ConfigError: a folder holds too much to be a model, and the model does not state its weights.
    """
    files: list[Path] = []
    for name, value in sorted(options.items()):
        inside: list[Path] = []
        # A text that is no path may be too long for one, or begin with the name of no user.
        with suppress(OSError, RuntimeError):
            path = Path(value).expanduser()
            if path.is_file():
                files.append(path)
            elif value and path.is_dir() and is_narrow(path.resolve()):
                inside = sorted(islice(_walked(path), _MOST_FILES + 1))
        if len(inside) <= _MOST_FILES and sum(file.stat().st_size for file in inside) <= _MOST_BYTES:
            files += inside
        elif not has_weights:
            raise ConfigError(
                f"{address}: option {name!r} names a folder of more than {_MOST_FILES} files or {_MOST_BYTES // 10**9} GB, too much to "
                "hash as a part of the model: return a PythonModel whose `weights` name the files that determine it"
            )
    return files


def _walked(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, but for hidden ones and caches of Python's: copies of one model differ in them."""
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (path for name in names if not _is_hidden(name) and (path := Path(top, name)).is_file())


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"
