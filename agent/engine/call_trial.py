"""A function's call: its arguments, and what its first calls show of it before it is timed.

What can mislead becomes a fact of the run, which a rule of the verdict reads: a thread that goes on, changed inputs, stored results,
garbage. A call that only starts work lasts until its results are there; what cannot be waited for is refused. Which library's results they
are is seen by their types: no library is imported that its user has not imported.
"""

import gc
import inspect
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.callables import is_array, leaves

# Inputs up to this size are compared with what the first calls left of them.
COMPARED_BYTES = 64_000_000
# A first call that takes this much longer, and more than a millisecond, compiles or stores what it computes.
LONG_FIRST, LONG_FIRST_NS = 10, 1_000_000
Wait = Callable[[Any], object]
# DLPack's device types whose memory the processor computes in, so that results are there when a call returns.
_ON_THE_PROCESSOR = (1, 3)
# What a library's lazily computed result is recognised by, and what computes it.
_LAZY = {"__dask_graph__": ".compute()", "collect_schema": ".collect()"}
_SHARED = (type(None), bool, int, float, complex, str, bytes, frozenset, type)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The function that is measured, and its arguments. `inputs` is what the caller gave for them."""

    function: Callable[..., object]
    inputs: object

    @property
    def arguments(self) -> tuple[tuple[object, ...], Mapping[str, Any]]:
        """Positional and keyword arguments: a tuple is the arguments, a mapping the keywords, anything else is the one argument."""
        if isinstance(self.inputs, Mapping):
            return (), {str(name): value for name, value in self.inputs.items()}
        return (self.inputs if isinstance(self.inputs, tuple) else (self.inputs,)), {}

    def bound(self) -> Callable[[], object]:
        """Return the bare call; raises ConfigError if the function does not take these arguments."""
        positional, named = self.arguments
        # Some functions of C have no signature: then the first call shows it.
        with suppress(ValueError):
            signature = inspect.signature(self.function)
            try:
                signature.bind(*positional, **named)
            except TypeError as error:
                raise ConfigError(
                    f"the function does not take these inputs: {error}; a tuple is its arguments, a dict its keyword arguments, "
                    "anything else its one argument"
                ) from error
        return partial(self.function, *positional, **named)


@dataclass(slots=True)
class CallTrial:
    """The facts that the first calls showed; `call` returns when the results are there."""

    call: Callable[[], object]
    first_ns: int
    again_ns: int
    result: object
    device: str | None
    facts: dict[str, str] = field(default_factory=dict)
    leaves_garbage: bool = False


def try_call(target: FunctionCall) -> CallTrial:
    """Call the function a few times and return what that showed.

    Raises:
        ConfigError: it is a coroutine, does not take these arguments, or its results cannot be waited for.
    """
    refuse_coroutine_function(target.function)
    bare = target.bound()
    before = _snapshot(target.inputs)
    alive = set(threading.enumerate())
    begin = time.monotonic_ns()
    result = bare()
    waits = waits_for(result, target.inputs, target.function)
    for wait in waits:
        wait(result)
    first_ns = time.monotonic_ns() - begin
    trial = CallTrial(_waited(bare, waits), first_ns, first_ns, result, device_of(result, target.inputs, target.function))
    started = [_threads_started(alive)]
    gc.collect()
    begin = time.monotonic_ns()
    second = trial.call()
    trial.again_ns = time.monotonic_ns() - begin
    started.append(_threads_started(alive))
    trial.result = trial.call()
    started.append(_threads_started(alive))
    if trial.result is second and not isinstance(second, _SHARED) and second != ():
        trial.facts["same_object"] = type(second).__qualname__
    del second
    garbage = gc.collect()
    if garbage:
        trial.leaves_garbage = True
        trial.facts["garbage"] = f"2 calls left {garbage} objects in cycles, which the garbage collector frees between queries"
    if all(started[1:]):
        trial.facts["unfinished"] = f"each call leaves a thread running ({started[-1][-1]}): let the function join it"
    if before is not None and before != _snapshot(target.inputs):
        trial.facts["inputs_changed"] = "the function changes its inputs, so that later calls do other work: give it a copy each time"
    if getattr(target.function, "training", False) is True and hasattr(target.function, "named_parameters"):
        trial.facts["training"] = "the module is in training mode: call `.eval()` first, unless it is training that you measure"
    return trial


def _threads_started(alive: set[threading.Thread]) -> list[str]:
    """Return the names of the threads that are alive now and were not before, and take them into `alive`."""
    new = [thread for thread in threading.enumerate() if thread not in alive]
    alive.update(new)
    return [thread.name for thread in new]


def _waited(bare: Callable[[], object], waits: Sequence[Callable[[Any], object]]) -> Callable[[], object]:
    if not waits:
        return bare

    def call() -> object:
        result = bare()
        for wait in waits:
            wait(result)
        return result

    return call


def _snapshot(inputs: object) -> bytes | None:
    """Return the values of inputs as bytes that can be compared; None of large ones, and of what has no such form."""
    if sum(getattr(leaf, "nbytes", 0) for leaf in leaves(inputs) if is_array(leaf)) > COMPARED_BYTES:
        return None
    with suppress(Exception):  # a file, a lock, a model: what cannot be pickled is not compared
        return pickle.dumps(inputs)
    return None


def ran_ns(threads: Sequence[threading.Thread]) -> dict[str, int]:
    """Return the processor time of these threads of Python so far, by name and id; nothing where the kernel does not count it."""
    ran: dict[str, int] = {}
    for thread in threads:
        with suppress(OSError, ValueError, IndexError):
            label = f"{thread.name}, thread {thread.native_id}"
            ran[label] = int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])
    return ran


def note_threads(trial: CallTrial, before_ns: Mapping[str, int], after_ns: Mapping[str, int], passed_ns: int) -> None:
    """Note the share of the time in which other threads of Python ran, which hold its lock meanwhile."""
    shares = {name: (ran_ns - before_ns.get(name, ran_ns)) / passed_ns for name, ran_ns in after_ns.items()}
    if shares:
        busiest = max(shares, key=lambda name: shares[name])
        trial.facts["other_threads_ratio"] = f"{max(0.0, sum(shares.values())):.4f} {busiest}"


def note_stored_results(trial: CallTrial, target: FunctionCall, call_ns: float) -> None:
    """Note that calls return what an earlier one computed: by a cache of functools, or the same object after a much longer first call."""
    same = trial.facts.pop("same_object", None)
    is_much_longer = trial.first_ns > max(LONG_FIRST * call_ns, LONG_FIRST_NS)
    longer = f"the first call took {trial.first_ns / 1e6:.3g} ms, later ones {call_ns / 1e6:.3g} ms"
    if hasattr(target.function, "cache_info"):
        trial.facts["stored"] = f"the function stores its results (functools): {longer}; measure its `__wrapped__`"
    elif same and is_much_longer:
        trial.facts["stored"] = f"each call returns the same {same}, and {longer}: measure the function without its cache"
    elif trial.first_ns > max(LONG_FIRST**2 * call_ns, LONG_FIRST_NS):
        trial.facts["long_first"] = f"{longer}: it compiles, or stores results by their inputs, which these figures would then not show"


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
        device_type = leaf.__dlpack_device__()[0] if hasattr(leaf, "__dlpack_device__") and not _is_of("torch", leaf) else None
        if device_type is not None and int(device_type) not in _ON_THE_PROCESSOR:
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


def device_of(result: object, inputs: object, callable_: object) -> str | None:
    """Return the accelerators that a call ran on by what its arrays show, e.g. `cuda`; None for the processor alone."""
    values: list[Any] = [*leaves(result), *leaves(inputs), *_parameters(callable_)]
    kinds = {device.type for device in _torch_devices(values)}
    for leaf in values:
        if hasattr(leaf, "block_until_ready") and hasattr(leaf, "devices"):
            kinds |= {device.platform for device in leaf.devices()}
    return "+".join(sorted(kinds - {"cpu"})) or None
