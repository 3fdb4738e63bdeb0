"""What converters raise. None has an error class of its own for a model that it cannot take, and one knows no common base for its own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes.library import one_line

_BUILT_IN = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
# ONNX Runtime's errors and protobuf's derive from Exception alone.
_OWN = (("onnxruntime.capi.onnxruntime_pybind11_state", None), ("google.protobuf.message", "Error"))


@contextmanager
def named(what: str, advice: str) -> Iterator[None]:
    """Turn what a converter raises into one line: `what` could not be done, why, and `advice`.

    Raises:
        ConfigError: the converter refused.
        UnavailableError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        message = f"{what} failed: {one_line(error)}; to install what it needs: pip install 'edgemeter[convert]'"
        raise UnavailableError(message) from error
    except _BUILT_IN as error:
        raise ConfigError(_words(what, error, advice)) from error
    except BaseException as error:
        if not isinstance(error, _own()):
            raise
        raise ConfigError(_words(what, error, advice)) from error


def _words(what: str, error: BaseException, advice: str) -> str:
    reason = one_line(error).rstrip(".") or type(error).__name__
    return f"{what} failed: {type(error).__name__}: {reason}; {advice}"


def _own() -> tuple[type[BaseException], ...]:
    """Return the error classes of libraries that have been imported."""
    found: list[type[BaseException]] = []
    for module, name in _OWN:
        members = vars(sys.modules[module]) if module in sys.modules else {}
        wanted = members.values() if name is None else [members.get(name)]
        found += [kind for kind in wanted if isinstance(kind, type) and issubclass(kind, Exception)]
    return tuple(found)
