"""The files that determine a model of the runtime `python`.

They are those next to its code, its weights, and those in its options.
"""

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

# A larger folder in an option is probably a data set; at 40 MB/s its hash would take 7 minutes in
# each process.
_MOST_FILES, _MOST_BYTES = 1000, 16 * 10**9
_OPEN = open


class NotedFiles:
    """Records the files that Python opens for reading while it is entered.

    Code may read files that only it names. It replaces `open`. It is not a function, because that
    would become a method as an attribute of a class.
    """

    def __init__(self) -> None:
        self.paths: set[Path] = set()
        self._is_noting = False
        # An audit hook cannot be removed, and would add 0.4 us to each `id()` of the timed part.
        # Python 3.10 has the accessor.
        self._owners = [
            owner for owner in (builtins, io, getattr(pathlib, "_NormalAccessor", None)) if owner
        ]

    def __call__(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
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
    """Return the imported files next to the code of a target, sorted by module."""
    imported = [
        Path(file)
        for name, module in sorted(sys.modules.items())
        if not name.startswith("edgemeter.")
        and isinstance(module, ModuleType)
        and (file := vars(module).get("__file__"))
    ]
    return _in_folder_of(target, imported)


def opened(target: PythonTarget, noted: NotedFiles) -> list[Path]:
    """Return the files next to the code that it opened for reading, sorted."""
    return sorted(
        _in_folder_of(
            target,
            (file for file in noted.paths if "__pycache__" not in file.parts and file.is_file()),
        )
    )


def _in_folder_of(target: PythonTarget, files: Iterable[Path]) -> list[Path]:
    """Return the files in the code's folder.

    Files that a run writes to its scratch folder are left out.
    """
    folder, scratch = target.folder, Path(tempfile.gettempdir()).resolve()
    if folder is None:
        return []
    is_apart = not folder.is_relative_to(scratch)
    resolved = ((path, path.resolve()) for path in files)
    return [
        path
        for path, file in resolved
        if python_target.lies_in(file, folder) and not (is_apart and file.is_relative_to(scratch))
    ]


def files_of_weights(weights: Sequence[Path], address: str) -> list[Path]:
    """Return the files of weights, all files of a folder; raises ConfigError if one is absent."""
    files: list[Path] = []
    for path in map(Path, weights):
        inside = sorted(_walked(path)) if path.is_dir() else [path]
        if not inside or not inside[0].is_file():
            raise ConfigError(f"{address} names weights that are not there: {str(path)!r}")
        files += inside
    return files


def files_of_options(options: Mapping[str, str], address: str, *, has_weights: bool) -> list[Path]:
    """Return the files in options, and all files of a folder.

    A factory may read weights that it does not declare.

    Raises:
        ConfigError: a folder is too large for a model, and the model does not declare its weights.
    """
    files: list[Path] = []
    for name, value in sorted(options.items()):
        inside: list[Path] = []
        # A text may be too long for a path, or begin with an unknown user.
        with suppress(OSError, RuntimeError):
            path = Path(value).expanduser()
            if path.is_file():
                files.append(path)
            elif value and path.is_dir() and is_narrow(path.resolve()):
                inside = sorted(islice(_walked(path), _MOST_FILES + 1))
        if (
            len(inside) <= _MOST_FILES
            and sum(file.stat().st_size for file in inside) <= _MOST_BYTES
        ):
            files += inside
        elif not has_weights:
            raise ConfigError(
                f"{address}: option {name!r} names a folder of more than {_MOST_FILES} files or "
                f"{_MOST_BYTES // 10**9} GB, too much to "
                "hash as a part of the model: return a PythonModel whose `weights` name the "
                "files that determine it"
            )
    return files


def _walked(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden ones and Python's caches.

    Copies of a model differ in these.
    """
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        yield from (
            path for name in names if not _is_hidden(name) and (path := Path(top, name)).is_file()
        )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"
