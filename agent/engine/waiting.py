"""How long a call takes that only starts work: until its results are there. What cannot be waited for is refused.

Which library's results they are is seen by their types. No library is imported that its user has not imported.
"""

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.callables import is_array, leaves

Wait = Callable[[Any], object]
# DLPack's device types whose memory the processor computes in, so that results are there when a call returns.
_ON_THE_PROCESSOR = (1, 3)
# What a library's lazily computed result is recognised by, and what computes it.
_LAZY = {"__dask_graph__": ".compute()", "collect_schema": ".collect()"}


def refuse_coroutine_function(callable_: object) -> None:
    """Raise ConfigError where a call would only make a coroutine or a generator, before it is called."""
    target = callable_ if inspect.isroutine(callable_) else getattr(callable_, "__call__", callable_)  # noqa: B004
    if inspect.iscoroutinefunction(target):
        raise ConfigError("a coroutine function does its work when it is awaited: measure `lambda: asyncio.run(function(...))`")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError("a generator function does its work when it is iterated: measure `lambda: list(function(...))`")


def waits_for(result: object, inputs: object, callable_: object) -> list[Wait]:
    """Return what waits for the results of a call, each called with what it returned; nothing where they are there when it returns.

    Raises:
        ConfigError: the result is no result yet, and cannot be waited for; the message says what to measure instead.
    """
    _refuse_lazy(result)
    if callable(getattr(result, "result", None)) and callable(getattr(result, "done", None)):
        return [methodcaller("result")]
    results: list[Any] = [leaf for leaf in leaves(result) if is_array(leaf)]
    if any(hasattr(leaf, "block_until_ready") for leaf in results):
        return [methodcaller("block_until_ready") if is_array(result) else _block_on_leaves]
    on_torch = _torch_devices([*results, *leaves(inputs), *_parameters(callable_)])
    waits: list[Wait] = [_of_torch_device(device) for device in on_torch]
    for leaf in results:
        if not _is_of("torch", leaf) and not _is_on_the_processor(leaf):
            raise ConfigError(
                f"cannot wait for {type(leaf).__qualname__} on an accelerator: let the function synchronise before it returns"
            )
    torch = sys.modules.get("torch")
    if not waits and torch is not None and torch.cuda.is_initialized():
        # What runs there may be hidden in the function.
        return [lambda _: torch.cuda.synchronize()]
    return waits


def _refuse_lazy(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ConfigError("the function returns an awaitable, whose work is still to be done: measure `lambda: asyncio.run(...)`")
    if hasattr(result, "__next__"):
        raise ConfigError(
            f"the function returns an iterator ({type(result).__qualname__}), whose work is still to be done: measure `lambda: list(...)`"
        )
    if isinstance(result, threading.Thread | subprocess.Popen):
        raise ConfigError(f"the function starts a {type(result).__qualname__} and does not wait for it: let it wait before it returns")
    for attribute, computes in _LAZY.items():
        if hasattr(type(result), attribute) and hasattr(result, computes.strip(".()")):
            raise ConfigError(
                f"the function returns a lazy {type(result).__qualname__}, whose work is still to be done: end it with `{computes}`"
            )


def _block_on_leaves(result: object) -> None:
    for leaf in leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()


def _is_of(library: str, value: object) -> bool:
    return any(kind.__module__.partition(".")[0] == library for kind in type(value).__mro__)


def _parameters(callable_: Any) -> list[Any]:
    """Return the parameters of a module of PyTorch, or of the method of one; of anything else none."""
    owner = getattr(callable_, "__self__", callable_)
    return list(owner.parameters()) if hasattr(owner, "named_parameters") else []


def _torch_devices(values: list[Any]) -> list[Any]:
    devices = {str(value.device): value.device for value in values if _is_of("torch", value) and hasattr(value, "device")}
    return [device for device in devices.values() if device.type not in ("cpu", "meta")]


def _of_torch_device(device: Any) -> Wait:
    library = getattr(sys.modules["torch"], device.type, None)
    if library is None or not hasattr(library, "synchronize"):
        raise ConfigError(f"cannot wait for the device {str(device)!r}: let the function synchronise before it returns")
    # Metal has one device, and takes none.
    synchronise = library.synchronize if device.type == "mps" else partial(library.synchronize, device)
    return lambda _: synchronise()


def _is_on_the_processor(leaf: Any) -> bool:
    return not hasattr(leaf, "__dlpack_device__") or int(leaf.__dlpack_device__()[0]) in _ON_THE_PROCESSOR


def device_of(result: object, inputs: object, callable_: object) -> str | None:
    """Return the accelerators that a call ran on by what its arrays show, e.g. `cuda`; None for the processor alone."""
    values: list[Any] = [*leaves(result), *leaves(inputs), *_parameters(callable_)]
    kinds = {device.type for device in _torch_devices(values)}
    for leaf in values:
        if hasattr(leaf, "block_until_ready") and hasattr(leaf, "devices"):
            kinds |= {device.platform for device in leaf.devices()}
    return "+".join(sorted(kinds - {"cpu"})) or None
