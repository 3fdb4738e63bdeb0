"""The user's code: a file or module named by a command, run as Python runs it.

Its errors are reported on one line.
"""

import errno
import inspect
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    MeasurementError,
    UnavailableError,
    one_line,
)
from edgemeter.agent.base.python_target import PythonTarget
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.sandbox.bubblewrap import is_inside

# The user's files run since loading began: module and source.
_READ: dict[str, tuple[ModuleType, Path]] = {}
_MOST_CAUSES = 10
_SANDBOXED = (
    "; in the sandbox of a run, code may read its own folder and the paths in options, may write "
    "to a temporary folder, and has no network"
)


def plugin_class(kind: str, address: str, protocol: type) -> Any:
    """Return the class `FILE.py:NAME`, None for a name without a file; `kind` is for the error.

    Raises:
        EdgemeterError: as `attribute_of`, or it is not a class with the methods of the protocol, or
            not a subclass of a base class.
    """
    target = python_target.of_file(address)
    if target is None:
        return None
    plugin = attribute_of(target, address)
    is_base = inspect.isabstract(protocol)
    methods = [
        name
        for name, value in vars(protocol).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and (not is_base or name in getattr(protocol, "__abstractmethods__", ()))
    ]
    unwritten = getattr(plugin, "__abstractmethods__", ())
    lack = None
    if not isinstance(plugin, type):
        lack = "is no class"
    elif missing := [
        name for name in methods if name in unwritten or not callable(getattr(plugin, name, None))
    ]:
        lack = f"has no {', '.join(missing)}"
    elif is_base and not issubclass(plugin, protocol):
        lack = f"does not derive from edgemeter.plugin.{protocol.__name__}"
    if lack is not None:
        raise ConfigError(
            f"{address} is not a {kind}, it {lack}: write a class with {', '.join(methods)}, as "
            "in docs/examples/plugins"
        )
    return plugin


def forget() -> None:
    """Forget the modules that were run from files, so that a file is run again."""
    for name, (module, _) in _READ.items():
        if module.__spec__ is None and sys.modules.get(name) is module:
            del sys.modules[name]
    _READ.clear()


def attribute_of(target: PythonTarget, address: str) -> Any:
    """Return the attribute that `target` names; `address` is its text.

    Raises:
        UnavailableError: an imported module is not installed.
        ConfigError: there is no such file, module or attribute, or running it raised.
    """
    with user_errors(address, "running its module"):
        module = (
            _run_file(target.source, address)
            if target.file
            else _imported(str(target.module), target.source)
        )
    if not hasattr(module, target.attribute):
        names = [
            name
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        ]
        hint = f": {near(target.attribute, names)}" if names else ""
        raise ConfigError(f"{str(target.source)!r} has no {target.attribute!r}{hint}")
    return getattr(module, target.attribute)


def _run_file(source: Path, address: str) -> ModuleType:
    """Return the module of a file, which imports from its own folder, as in `python FILE.py`."""
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
    if (
        first not in sys.modules
        and find_spec(first) is None
        and (spec := python_target.unlisted(first))
    ):
        package = sys.modules[first] = module_from_spec(spec)
        if spec.loader:
            spec.loader.exec_module(package)
    module = import_module(name)
    _READ[name] = module, source
    return module


def compiled(source: Path, address: str) -> Any:
    """Return the compiled code of a file without running it.

    Raises:
        ConfigError: it is not Python.
    """
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
    """Raise errors of the user's code in the block as errors of `address` on one line.

    They are followed by `advice`.

    Raises:
        UnavailableError: an imported module is not installed.
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
            f"{address} cannot import what it needs: {one_line(error)}: install it for "
            f"{sys.executable}, or put it next to the code, in "
            "another folder than your home"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{address}: {step} raised {raised(error)}{advice}") from error


def raised(error: BaseException) -> str:
    """Return an error of the user's code in words, with its last executed line.

    For a refusal, the words include the limits of the sandbox.
    """
    frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
    files = {str(source): source.name for _, source in _READ.values()}
    lines = [
        f" (line {frame.lineno} of {files[frame.filename]})"
        for frame in frames
        if frame.filename in files
    ]
    hint = _SANDBOXED if is_inside() and any(map(_is_refusal, _causes(error))) else ""
    return f"{type(error).__name__}: {one_line(error)}{lines[-1] if lines else ''}{hint}"


def _is_refusal(error: BaseException) -> bool:
    """Return whether the sandbox may have caused an error.

    In it, hidden files are absent and visible ones read-only.
    """
    refusals = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS, errno.ENETUNREACH}
    return isinstance(error, socket.gaierror) or (
        isinstance(error, OSError) and error.errno in refusals
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes: libraries wrap the system's errors in their own words."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
