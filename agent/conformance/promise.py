"""How a check states that a promise is broken."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.adapter import check_inputs


class ContractViolationError(AssertionError):
    """A plug-in broke a promise of its family's contract."""


def require(holds: object, promise: str) -> None:
    """Return if it holds; raises ContractViolationError, with the promise as its text, if it does not."""
    if not holds:
        raise ContractViolationError(promise)


@contextmanager
def refused(attempt: str, *errors: type[EdgemeterError], mentions: str = "") -> Iterator[None]:
    """Require that the block ends in one of these errors, on one line that mentions a text; `attempt` was tried, for the message."""
    try:
        yield
    except errors as error:
        require(is_one_line(error), f"{attempt}: the error has several lines: {error}")
        require(mentions in str(error), f"{attempt}: the error does not mention {mentions!r}: {error}")
        return
    raise ContractViolationError(f"{attempt}: has to end in {' or '.join(error.__name__ for error in errors)}, and nothing was raised")


def require_declared(arrays: Sequence[Array], declared: Sequence[TensorInfo], promise: str) -> None:
    """Return if the arrays have number, dtype and shape of the declared tensors; raises ContractViolationError if they have not."""
    try:
        check_inputs(arrays, declared)
    except ConfigError as error:
        raise ContractViolationError(f"{promise}: {error}") from error


def is_one_line(error: EdgemeterError) -> bool:
    """Return whether the message is one line, and more than a word."""
    return "\n" not in str(error) and " " in str(error)
