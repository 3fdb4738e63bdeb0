"""Imports the library behind a runtime: timed, with its package and version, and with the words that say what to install."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from edgemeter.agent.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class Candidate:
    """One library that would do: the module to import, and the distributions that may have brought it, likeliest first."""

    module: str
    distributions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """An imported library. `package` is the distribution that brought it; `import_ns` is near 0 when it was imported before."""

    module: Any
    package: str
    version: str
    import_ns: int


def load(candidates: Sequence[Candidate], extra: str) -> Library:
    """Return the first of `candidates` that can be imported; `extra` is ours that installs it.

    Raises:
        UnavailableError: none is installed, or the one that is cannot be imported.
    """
    broken = ""
    for candidate in candidates:
        started_ns = time.monotonic_ns()
        try:
            module = import_module(candidate.module)
        except (ImportError, OSError) as error:
            if not _is_absent(error, candidate.module):
                broken = f": {candidate.module} is here but cannot be imported: {one_line(error)}"
            continue
        import_ns = time.monotonic_ns() - started_ns
        return Library(module, *_distribution(candidate, module), import_ns)
    wanted = " or ".join(candidate.module for candidate in candidates)
    message = f"no usable {wanted}{broken or ' is installed here'}; to install it: pip install 'edgemeter[{extra}]'"
    raise UnavailableError(message)


def one_line(words: object) -> str:
    """Return an error's words on one line, shortened, fit for the end of a message."""
    text = " ".join(str(words).split()) or type(words).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def _is_absent(error: BaseException, module: str) -> bool:
    """Return whether the module itself is missing, not something that it needs."""
    return isinstance(error, ModuleNotFoundError) and error.name is not None and f"{module}.".startswith(f"{error.name}.")


def _distribution(candidate: Candidate, module: Any) -> tuple[str, str]:
    """Return name and version of the distribution; a vendor's build may carry another name, then the module's own version counts."""
    for name in candidate.distributions:
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    top = import_module(candidate.module.partition(".")[0])
    return candidate.distributions[0], str(getattr(module, "__version__", None) or getattr(top, "__version__", "unknown"))
