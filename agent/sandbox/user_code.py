"""Code of the user's: a file or module that a command names, run as Python runs it, with its errors in one line."""

import builtins
import errno
import inspect
import io
import os
import pathlib
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.base.python_target import PythonTarget
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.sandbox.bubblewrap import is_inside, is_narrow

# What was run of the user's files since loading began: module and source.
_READ: dict[str, tuple[ModuleType, Path]] = {}
# The files that it opened meanwhile, to read.
_OPENED: set[Path] = set()
_MOST_CAUSES = 10
# A folder of more that an option names is a data set rather than a model; at 40 MB/s its hash would take 7 minutes in each process.
_MOST_FILES, _MOST_BYTES = 1000, 16 * 10**9
_SANDBOXED = "; in the sandbox of a run code reads its folder and what options name, writes to a temporary folder, and has no network"


def plugin_class(kind: str, address: str, protocol: type) -> Any:
    """Return the class that `FILE.py:NAME` names, None of a name without a file; `kind` is for the error.

    Raises:
        EdgemeterError: as `attribute_of`, or it is no class with the methods of the protocol.
    """
    target = python_target.of_file(address)
    if target is None:
        return None
    plugin = attribute_of(target, address)
    methods = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and not name.startswith("_")]
    missing = [name for name in methods if not callable(getattr(plugin, name, None))]
    if not isinstance(plugin, type) or missing:
        lack = f"has no {', '.join(missing)}" if missing else "is no class"
        raise ConfigError(f"{address} is no {kind}, it {lack}: write a class with {', '.join(methods)}, as in docs/examples/plugins")
    return plugin


def forget() -> None:
    """Forget the modules that were run from files, so that a file is run anew."""
    for name, (module, _) in _READ.items():
        if module.__spec__ is None and sys.modules.get(name) is module:
            del sys.modules[name]
    _READ.clear()
    _OPENED.clear()


def attribute_of(target: PythonTarget, address: str) -> Any:
    """Return what `target` names; `address` is its text.

    Raises:
        UnavailableError: what it imports is not installed.
        ConfigError: there is no such file, module or attribute, or running it raised.
    """
    with user_errors(address, "running its module"):
        module = _run_file(target.source, address) if target.file else _imported(str(target.module), target.source)
    if not hasattr(module, target.attribute):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        hint = f": {near(target.attribute, names)}" if names else ""
        raise ConfigError(f"{str(target.source)!r} has no {target.attribute!r}{hint}")
    return getattr(module, target.attribute)


def _run_file(source: Path, address: str) -> ModuleType:
    """Return the module of a file, whose folder is where it finds others, as of `python FILE.py`."""
    file = source.resolve()
    for module, read in _READ.values():
        if read == source:
            return module
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    name = file.stem if file.stem not in sys.modules else f"{file.stem} of {file.parent}"
    module = ModuleType(name)
    module.__file__ = str(file)
    code = compiled(source, address)
    # Before it runs: dataclasses and pickle look their module up.
    sys.modules[name] = module
    _READ[name] = module, source
    exec(code, module.__dict__)  # noqa: S102 - the user's own code, which the user named
    return module


def _imported(name: str, source: Path) -> ModuleType:
    for folder in python_target.search_folders():
        if folder not in sys.path:
            sys.path.append(folder)
    first = name.partition(".")[0]
    if first not in sys.modules and find_spec(first) is None and (spec := python_target.unlisted(first)):
        package = sys.modules[first] = module_from_spec(spec)
        if spec.loader:
            spec.loader.exec_module(package)
    module = import_module(name)
    _READ[name] = module, source
    return module


def compiled(source: Path, address: str) -> Any:
    """Return the code of a file, which is not run; raises ConfigError if it is not Python."""
    try:
        return compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        text = error.msg if isinstance(error, SyntaxError) else one_line(error)
        raise ConfigError(f"{address}: {str(source)!r} is not Python{line}: {text}") from error
    except OSError as error:
        raise ConfigError(f"{address}: cannot read {str(source)!r}: {error.strerror}") from error


@contextmanager
def user_errors(address: str, step: str, advice: str = "") -> Iterator[None]:
    """Raise what the user's code raises in the block as an error of `address` in one line; `advice` follows it.

    Raises:
        UnavailableError: what it imports is not installed.
        ConfigError: it raised anything else.
    """
    try:
        yield
    except MeasurementError as error:
        raise ConfigError(f"{address}: {error}") from error
    except (EdgemeterError, MemoryError):
        raise
    except ImportError as error:
        raise UnavailableError(
            f"{address} cannot import what it needs: {one_line(error)}: install it for {sys.executable}, or put it beside the code, in "
            "another folder than your home"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{address}: {step} raised {raised(error)}{advice}") from error


def raised(error: BaseException) -> str:
    """Return an error of the user's code in words, with the last line of theirs that ran; of a refusal, what the sandbox allows."""
    frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
    files = {str(source): source.name for _, source in _READ.values()}
    lines = [f" (line {frame.lineno} of {files[frame.filename]})" for frame in frames if frame.filename in files]
    hint = _SANDBOXED if is_inside() and any(map(_is_refusal, _causes(error))) else ""
    return f"{type(error).__name__}: {one_line(error)}{lines[-1] if lines else ''}{hint}"


def _is_refusal(error: BaseException) -> bool:
    """Return whether a sandbox may have caused an error: what it hides is absent, what it shows is read-only."""
    refusals = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS, errno.ENETUNREACH}
    return isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in refusals)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it came of: libraries wrap what the system refused in words of their own."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def sources(target: PythonTarget) -> list[Path]:
    """Return the files beside the code of a target that were imported, by the names of their modules."""
    modules = (module for name, module in sorted(sys.modules.items()) if not name.startswith("edgemeter."))
    imported = [Path(file) for module in modules if isinstance(module, ModuleType) and (file := vars(module).get("__file__"))]
    return _beside(target, imported)


def opened(target: PythonTarget) -> list[Path]:
    """Return the files beside the code that it opened to read while `noted_files` was entered; by name."""
    return sorted(_beside(target, (file for file in _OPENED if "__pycache__" not in file.parts and file.is_file())))


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


class _NotingOpen:
    """`open`, which notes files; no function, because a class whose attribute it is would make that its method."""

    def __init__(self) -> None:
        self.is_noting = False

    def __call__(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        stream = _OPEN(file, mode, *arguments, **named)
        if self.is_noting and not isinstance(file, int) and "r" in mode:
            _OPENED.add(Path(os.fsdecode(file)).resolve())
        return stream


_OPEN, _NOTING_OPEN = open, _NotingOpen()


@contextmanager
def noted_files() -> Iterator[None]:
    """Note the files that Python opens: what determines a model may lie beside its code, named there only."""
    # No audit hook: it stays for ever, and would add 0.4 us to each `id()` of the timed part. Python 3.10 has the accessor.
    owners = [owner for owner in (builtins, io, getattr(pathlib, "_NormalAccessor", None)) if owner]
    for owner in owners:
        setattr(owner, "open", _NOTING_OPEN)  # noqa: B010 - no assignment to a function, for mypy
    _NOTING_OPEN.is_noting = True
    try:
        yield
    finally:
        _NOTING_OPEN.is_noting = False
        for owner in owners:
            setattr(owner, "open", _OPEN)  # noqa: B010 - as above
