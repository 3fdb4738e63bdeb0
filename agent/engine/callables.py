"""The identity of a callable: its name, and a hash of its code and values."""

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import CodeType, ModuleType
from typing import Any

from edgemeter.agent.runtimes.call_results import DEEPEST, MOST_VALUES, is_array

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_NO_NAME = re.compile(r"[^A-Za-z0-9 ._:@-]+")


def name_of(callable_: Callable[..., object]) -> str:
    """Return the name of a case, which is module and name of the callable.

    A lambda is named after its hash.
    """
    inner: Any = callable_
    while isinstance(inner, functools.partial):
        inner = inner.func
    qualified = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    if qualified.endswith("<lambda>"):
        return f"lambda {sha256_of(callable_)[:8]}"
    module = getattr(inner, "__module__", None) or type(inner).__module__
    full = qualified if module in ("__main__", "builtins") else f"{module}.{qualified}"
    return _NO_NAME.sub("-", full.replace("<locals>.", "")).lstrip(" ._:@-")[-128:] or "function"


def sha256_of(value: object) -> str:
    """Return a hash of a callable, its code and the values that it refers to, or of inputs.

    Arrays count by shape and dtype only.
    """
    return hashlib.sha256(_text(value, 0).encode(errors="replace")).hexdigest()


def _text(value: Any, depth: int) -> str:
    """Return a text that is the same in every process for equal values."""
    if isinstance(value, _PLAIN):
        return repr(value)
    # an object of the caller may refuse to be looked at, as a proxy outside its context does
    with suppress(Exception):
        if is_array(value):
            return f"{value.dtype}{tuple(value.shape)}"
        if isinstance(value, type | ModuleType) or depth >= DEEPEST:
            return str(getattr(value, "__name__", type(value).__qualname__))
        return _text_of_container(value, depth) or _text_of_callable(value, depth)
    return type(value).__qualname__


def _text_of_container(value: Any, depth: int) -> str:
    """Return the text of a mapping, a set or a sequence; empty for anything else."""
    if isinstance(value, Mapping):
        return str(
            {
                _text(key, depth + 1): _text(item, depth + 1)
                for key, item in [*value.items()][:MOST_VALUES]
            }
        )
    if isinstance(value, set | frozenset):
        # The order of a set differs between processes.
        return str(sorted(_text(item, depth + 1) for item in value))
    if isinstance(value, tuple | list):
        return str([_text(item, depth + 1) for item in value[:MOST_VALUES]])
    return ""


def _text_of_callable(value: Any, depth: int) -> str:
    if isinstance(value, functools.partial):
        return f"partial{_text((value.func, value.args, value.keywords), depth)}"
    if inspect.ismethod(value):
        return f"{_text(value.__func__, depth)} of {_text(value.__self__, depth + 1)}"
    wrapped = getattr(value, "__wrapped__", None)
    if wrapped is not None and wrapped is not value:
        return f"{type(value).__qualname__} {_text(wrapped, depth + 1)}"
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        cells = []
        for cell in value.__closure__ or ():
            # An empty one.
            with suppress(ValueError):
                cells.append(cell.cell_contents)
        names = [value.__globals__[name] for name in code.co_names if name in value.__globals__]
        return (
            f"{_text_of_code(code)} "
            f"{_text([cells, names, value.__defaults__, value.__kwdefaults__], depth + 1)}"
        )
    if hasattr(value, "named_parameters"):
        # A module of PyTorch shows its layers; weights do not change its duration.
        return f"{value!r} {'training' if getattr(value, 'training', False) else ''}"
    parts = vars(value) if hasattr(value, "__dict__") else {}
    return (
        f"{type(value).__qualname__} "
        f"{_text({name: parts[name] for name in sorted(parts, key=str)}, depth + 1)}"
    )


def _text_of_code(code: CodeType) -> str:
    constants = [
        _text_of_code(constant) if isinstance(constant, CodeType) else _text(constant, 0)
        for constant in code.co_consts
    ]
    return f"{code.co_code.hex()} {constants} {code.co_names}"
