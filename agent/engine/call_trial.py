"""A function's call: its arguments, and what its first calls show of it before it is timed.

What can mislead becomes a fact of the run, which a rule of the verdict reads: a thread that goes on, changed inputs, stored results,
garbage. A call that only starts work lasts until its results are there (`call_results`).
"""

import gc
import inspect
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes.call_results import devices_of, is_array, leaves, refuse_coroutine_function, waited, waits_for

# Inputs up to this size are compared with what the first calls left of them.
COMPARED_BYTES = 64_000_000
# A first call that takes this much longer, and more than a millisecond, compiles or stores what it computes.
LONG_FIRST, LONG_FIRST_NS = 10, 1_000_000
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
    trial = CallTrial(waited(bare, waits), first_ns, first_ns, result, _accelerators(result, target))
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
    trial.leaves_garbage = gc.collect() > 0
    if all(started[1:]):
        trial.facts["incomplete"] = f"each one leaves a thread running, {started[-1][-1]}"
    elif before is not None and before != _snapshot(target.inputs):
        trial.facts["incomplete"] = "the function changes its inputs, so that later ones do other work"
    return trial


def _accelerators(result: object, target: FunctionCall) -> str | None:
    """Return the kinds of accelerators that a call ran on, e.g. `cuda`; None for the processor alone."""
    kinds = {device.partition(":")[0] for device in devices_of(result, target.inputs, target.function)}
    return "+".join(sorted(kinds - {"cpu"})) or None


def _threads_started(alive: set[threading.Thread]) -> list[str]:
    """Return the names of the threads that are alive now and were not before, and take them into `alive`."""
    new = [thread for thread in threading.enumerate() if thread not in alive]
    alive.update(new)
    return [thread.name for thread in new]


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
    longer = f"the first took {trial.first_ns / 1e6:.3g} ms, later ones {call_ns / 1e6:.3g} ms"
    if hasattr(target.function, "cache_info"):
        trial.facts["incomplete"] = f"the function stores its results (functools), {longer}"
    elif same and is_much_longer:
        trial.facts["incomplete"] = f"each one returns the same {same}, {longer}"
