"""How a check states that a promise is broken."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.plugins import find_plugin
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.runtimes.adapter import check_inputs

Case = TypeVar("Case")
# What other packages may import; all else of ours changes without notice.
PUBLIC = ("edgemeter", "edgemeter.plugin")


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


def public_imports(kind: str, table: Mapping[str, str], group: str, name_of: Callable[[Case], str]) -> Callable[[Case, Path], None]:
    """Return the check that a plug-in of another package imports only public modules of ours."""

    def imports_only_what_is_public(case: Case, _folder: Path) -> None:
        """Of Edgemeter `edgemeter.plugin`: internal modules change without notice."""
        module = sys.modules[find_plugin(kind, table, name_of(case), group).__module__]
        if module.__name__.startswith("edgemeter."):
            return
        statements = list(ast.walk(ast.parse(inspect.getsource(module))))
        imported = [node.module or "" for node in statements if isinstance(node, ast.ImportFrom)]
        imported += [alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names]
        internal = sorted({name for name in imported if name.startswith("edgemeter.") and name not in PUBLIC})
        require(not internal, f"{module.__name__} imports {', '.join(internal)}, which is internal: import it from edgemeter.plugin")

    return imports_only_what_is_public
