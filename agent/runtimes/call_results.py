"""The results of a user's call: their arrays, and functions that wait for them.

It imports no library that the user has not imported.
"""

import dataclasses
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import methodcaller
from types import ModuleType
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.runtimes import Array

Wait = Callable[[Any], object]
DEEPEST = 4
MOST_VALUES = 1000  # The most values of one container that are examined.
# Their arrays are ready when a call returns.
_COMPUTES_AT_ONCE = ("numpy", "pandas", "polars", "scipy")
# The attribute by which a lazy result is recognised, and the method that computes it.
_LAZY = {"__dask_graph__": ".compute()", "collect_schema": ".collect()"}
# Kinds of numpy's own types; others, such as bfloat16 of JAX, become float32.
_PLAIN_KINDS = "biufcSU"
_PRECISIONS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def is_array(value: object) -> bool:
    """Return whether `value` is an array or a tensor of any library."""
    return (
        not isinstance(value, type | ModuleType)
        and hasattr(value, "dtype")
        and hasattr(getattr(value, "shape", None), "__len__")
    )


def leaves(value: object, depth: int = 0, limit: int | None = MOST_VALUES) -> Iterator[object]:
    """Yield the values within tuples, lists, mappings and dataclasses, in their order.

    At most `limit` values of each are yielded; any other `value` is yielded itself.
    """
    items: Any = None
    if depth >= DEEPEST or is_array(value):
        pass
    elif isinstance(value, tuple | list | set):
        items = value
    elif isinstance(value, Mapping):
        items = value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = (getattr(value, field.name) for field in dataclasses.fields(value))
    if items is None:
        yield value
    for item in islice(items or (), limit):
        yield from leaves(item, depth + 1, limit)


def waited(bare: Callable[[], object], waits: Sequence[Wait]) -> Callable[[], object]:
    """Return a call that returns when its results are ready; without waits the bare call."""
    if not waits:
        return bare

    def call() -> object:
        result = bare()
        for wait in waits:
            wait(result)
        return result

    return call


def arrays_of(result: object) -> list[Array]:
    """Return numpy copies of the arrays and numbers in a result, in order.

    Types that numpy lacks, such as bfloat16, become float32.
    """
    arrays = [_numpy(leaf) for leaf in leaves(result, limit=None) if leaf is not None]
    if not arrays:
        raise MeasurementError(
            f"the model returns no array, but {type(result).__qualname__}: return arrays or tensors"
        )
    return arrays


def _numpy(leaf: Any) -> Array:
    if isinstance(leaf, bool | int | float | complex):
        return np.asarray(leaf)
    if not is_array(leaf):
        raise MeasurementError(
            f"the model returns {type(leaf).__qualname__} where an array belongs: return arrays "
            "or tensors only"
        )
    if _is_of("torch", leaf):
        leaf = leaf.detach()
        leaf = leaf.dequantize() if leaf.is_quantized else leaf
        leaf = (leaf.float() if str(leaf.dtype) == "torch.bfloat16" else leaf).cpu().numpy()
    array = np.array(leaf)
    if array.dtype.kind == "O":
        raise MeasurementError(
            f"the model returns {type(leaf).__qualname__}, which numpy cannot read: return "
            "arrays or tensors only"
        )
    return array if array.dtype.kind in _PLAIN_KINDS else array.astype(np.float32)


def refuse_coroutine_function(callable_: object) -> None:
    """Raise ConfigError if a call would only create a coroutine or a generator."""
    target = (
        callable_
        if inspect.isroutine(callable_)
        # The method is needed, not the knowledge that there is one.
        else getattr(callable_, "__call__", callable_)  # noqa: B004
    )
    if inspect.iscoroutinefunction(target):
        raise ConfigError(
            "a coroutine function does its work when it is awaited: measure `lambda: "
            "asyncio.run(function(...))`"
        )
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            "a generator function does its work when it is iterated: measure `lambda: "
            "list(function(...))`"
        )


def waits_for(result: object, inputs: object, callable_: object) -> list[Wait]:
    """Return functions that wait for a call's result, which is their argument.

    Raises:
        ConfigError: it is not possible to wait for it.
    """
    values = list(leaves(result))
    for value in (result, *values):
        _refuse_lazy(value)
    for leaf in filter(is_array, values):
        if not any(
            _is_of(library, leaf) for library in (*_COMPUTES_AT_ONCE, "torch", "tensorflow")
        ) and not _is_blocked_on(leaf):
            raise ConfigError(
                "cannot tell when "
                f"{type(leaf).__module__.partition('.')[0]}.{type(leaf).__qualname__} is "
                "computed: let the function wait "
                "for it and return it in numpy, or give PythonModel(wait=...)"
            )
    waits = _known_waits(result, [*leaves(inputs), *_parameters(callable_)])
    torch = sys.modules.get("torch")
    if not waits and torch is not None and torch.cuda.is_initialized():
        # The function may use the device without showing it.
        return [lambda _: torch.cuda.synchronize()]
    return waits


def refuse_unseen(result: object) -> None:
    """Raise ConfigError if a result has objects that may contain arrays for which nothing waits."""
    for leaf in leaves(result):
        if not (
            leaf is None
            or is_array(leaf)
            or _is_future(leaf)
            or isinstance(leaf, bool | int | float | complex | str | bytes)
        ):
            raise ConfigError(
                f"cannot tell when {type(leaf).__module__}.{type(leaf).__qualname__} is "
                "computed: return arrays or tensors, or give "
                "PythonModel(wait=...), `lambda result: None` if it is ready when the call returns"
            )


def wait_for_placed(inputs: Sequence[object]) -> None:
    """Wait until the copies of inputs are where a model reads them, if their library is known."""
    for wait in _known_waits(inputs, []):
        wait(inputs)


def _known_waits(result: object, values: list[Any]) -> list[Wait]:
    """Return functions that wait for a result of a known library.

    The result may be computed on the devices of `values`.
    """
    results = list(leaves(result))
    waits: list[Wait] = [_on_each("result", _is_future)] if any(map(_is_future, results)) else []
    if any(map(_is_blocked_on, results)):
        wait = methodcaller("block_until_ready")
        waits.append(wait if is_array(result) else _on_each("block_until_ready", _is_blocked_on))
    devices = {
        str(value.device): value.device
        for value in (*results, *values)
        if _is_of("torch", value) and hasattr(value, "device")
    }
    waits += [
        _of_torch_device(device)
        for device in devices.values()
        if device.type not in ("cpu", "meta")
    ]
    if any(name != "cpu" for name in map(_tensorflow_device, results) if name):
        waits.append(lambda _: sys.modules["tensorflow"].test.experimental.sync_devices())
    return waits


def _refuse_lazy(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ConfigError(
            "the function returns an awaitable, whose work is still to be done: measure `lambda: "
            "asyncio.run(...)`"
        )
    if hasattr(result, "__next__"):
        raise ConfigError(
            f"the function returns an iterator ({type(result).__qualname__}), whose work is "
            "still to be done: measure `lambda: list(...)`"
        )
    if isinstance(result, threading.Thread | subprocess.Popen):
        raise ConfigError(
            f"the function starts a {type(result).__qualname__} and does not wait for it: let it "
            "wait before it returns"
        )
    for attribute, computes in _LAZY.items():
        if hasattr(type(result), attribute) and hasattr(result, computes.strip(".()")):
            raise ConfigError(
                f"the function returns a lazy {type(result).__qualname__}, whose work is still "
                f"to be done: end it with `{computes}`"
            )


def _is_future(value: object) -> bool:
    return callable(getattr(value, "result", None)) and callable(getattr(value, "done", None))


def _is_blocked_on(value: object) -> bool:
    return hasattr(value, "block_until_ready")


def _on_each(method: str, is_asked: Callable[[object], bool]) -> Wait:
    """Return a function that calls a method of the values within a result.

    It calls the method of the values that satisfy `is_asked`.
    """

    def wait(result: object) -> None:
        for leaf in filter(is_asked, leaves(result, limit=None)):
            getattr(leaf, method)()

    return wait


def _is_of(library: str, value: object) -> bool:
    return any(kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)


def _used(callable_: Any) -> Iterator[Any]:
    """Yield the objects that a callable visibly uses.

    They are its object and its attributes, bound arguments, and outer variables.
    """
    # Decorators keep what they wrap.
    callable_ = inspect.unwrap(callable_) if inspect.isfunction(callable_) else callable_
    owner = getattr(callable_, "__self__", callable_)
    if isinstance(owner, type | ModuleType):
        return
    yield owner
    yield from getattr(owner, "__dict__", {}).values()
    if isinstance(callable_, partial):
        yield from leaves((callable_.func, callable_.args, callable_.keywords))
    with suppress(TypeError, ValueError):
        around = inspect.getclosurevars(callable_)
        yield from (
            value
            for value in (*around.nonlocals.values(), *around.globals.values())
            if not isinstance(value, type | ModuleType)
        )


def _parameters(callable_: Any) -> list[Any]:
    """Return the parameters that a callable uses.

    They are those of PyTorch's modules and TensorFlow's functions, and bound arrays.
    """
    parameters: list[Any] = []
    for value in _used(callable_):
        if hasattr(type(value), "named_parameters"):
            parameters += value.parameters()
        elif _is_of("tensorflow", value) and hasattr(type(value), "variables"):
            parameters += value.variables
    bound = leaves((callable_.args, callable_.keywords)) if isinstance(callable_, partial) else ()
    return [*parameters, *filter(is_array, bound)]


def precision_of(result: object, callable_: object) -> str | None:
    """Return the precision of the parameters, None if it is not the only one.

    All parameters, and the floats of the result, must have one type.
    """
    types = {_type_name(parameter) for parameter in _parameters(callable_)}
    returned = {
        name for name in map(_type_name, filter(is_array, leaves(result))) if "float" in name
    }
    return _PRECISIONS.get(min(types)) if len(types) == 1 and returned <= types else None


def _type_name(array: Any) -> str:
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def _of_torch_device(device: Any) -> Wait:
    library = getattr(sys.modules["torch"], device.type, None)
    if library is None or not hasattr(library, "synchronize"):
        raise ConfigError(
            f"cannot wait for the device {str(device)!r}: let the function synchronise "
            "before it returns"
        )
    # Metal has one device, which is no argument.
    synchronise = (
        library.synchronize if device.type == "mps" else partial(library.synchronize, device)
    )
    return lambda _: synchronise()


def _tensorflow_device(value: Any) -> str | None:
    """Return `cpu` or `gpu:0` for a tensor of TensorFlow; None for anything else.

    The device of a tensor on the GPU ends in `device:GPU:0`.
    """
    device = str(getattr(value, "device", None) or "") if _is_of("tensorflow", value) else ""
    return device.rpartition("device:")[2].lower().replace("cpu:0", "cpu") or None


def devices_of(result: object, inputs: object, callable_: object) -> list[str]:
    """Return the accelerators of a call's arrays, as `cuda:0`; else `cpu`.

    The list is empty if the arrays show no device.
    """
    values: list[Any] = [*leaves(result), *leaves(inputs), *_parameters(callable_)]
    devices = {str(value.device) for value in values if _is_of("torch", value) and is_array(value)}
    devices |= {name for name in map(_tensorflow_device, values) if name}
    for leaf in values:
        if _is_blocked_on(leaf) and hasattr(leaf, "devices"):
            devices |= {
                "cpu" if device.platform == "cpu" else f"{device.platform}:{device.id}"
                for device in leaf.devices()
            }
    return sorted(devices - {"cpu", "meta"}) or sorted(devices & {"cpu"})
