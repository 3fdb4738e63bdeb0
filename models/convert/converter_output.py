"""Output and errors of converters: their output goes to a file, their errors become ours."""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError, one_line
from edgemeter.agent.base.plugins import install_command


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the standard output and error of this process, also from C++.

    The output is printed on an error, except for one of ours, which states the cause on one line.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    originals = [os.dup(descriptor) for descriptor in (1, 2)]
    with tempfile.TemporaryFile() as output:
        try:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
            yield
        except EdgemeterError:
            raise
        except BaseException:
            output.seek(0)
            os.write(originals[1], output.read())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in zip((1, 2), originals, strict=True):
                os.dup2(original, descriptor)
                os.close(original)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the libraries' warnings and logs about their own future.

    Some of these appear on import.
    """
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


_BUILT_IN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)

# Errors of these libraries that derive from Exception directly.
_LIBRARIES = frozenset({
    "onnx", "onnxruntime", "onnxscript", "google", "torch", "litert_torch", "litert_converter",
    "ai_edge_quantizer", "jax",
})  # fmt: skip


@contextmanager
def converter_errors(task: str, advice: str) -> Iterator[None]:
    """Turn a converter's error into one line: `task` failed, the reason, and `advice`.

    Raises:
        ConfigError: the converter refused.
        UnavailableError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise UnavailableError(
            f"{task} failed: {one_line(error)}; to install what it needs: "
            f"{install_command('convert')}"
        ) from error
    except BaseException as error:
        if (
            not isinstance(error, _BUILT_IN)
            and type(error).__module__.partition(".")[0] not in _LIBRARIES
        ):
            raise
        reason = one_line(error).rstrip(".") or type(error).__name__
        raise ConfigError(f"{task} failed: {type(error).__name__}: {reason}; {advice}") from error
