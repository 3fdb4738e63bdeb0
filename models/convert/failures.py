"""What converters raise. None has an error class of its own for a model that it cannot take, and one knows no common base for its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes.library import one_line

_BUILT_IN = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
# Those of these libraries that derive from Exception alone.
_LIBRARIES = frozenset(
    {"onnx", "onnxruntime", "onnxscript", "google", "torch", "litert_torch", "litert_converter", "ai_edge_quantizer", "jax"}
)


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
        if type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        raise ConfigError(_words(what, error, advice)) from error


def _words(what: str, error: BaseException, advice: str) -> str:
    reason = one_line(error).rstrip(".") or type(error).__name__
    return f"{what} failed: {type(error).__name__}: {reason}; {advice}"
