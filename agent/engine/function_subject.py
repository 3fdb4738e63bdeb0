"""A function in the process of its caller, with the clock, warm-up and statistics of every run.

Other runs have a process of their own; here the caller's threads, imports and garbage are part of
the process. The first calls are checked for threads that go on, changed inputs, stored results and
garbage; the facts go to rules of the verdict. A call that only starts work lasts until its results
are ready (`call_results`).
"""

import gc
import inspect
import math
import pickle
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, MeasurementError, one_line
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_conditions import DatasetInfo, Model, RuntimeInfo, Tensor
from edgemeter.agent.engine import job
from edgemeter.agent.engine.callables import sha256_of
from edgemeter.agent.engine.loading import precision_of
from edgemeter.agent.engine.measure import measure_subject
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from edgemeter.agent.engine.stopwatch import no_collection
from edgemeter.agent.engine.subject import Emit, Results, Subject
from edgemeter.agent.runtimes.call_results import (
    devices_of,
    is_array,
    leaves,
    refuse_coroutine_function,
    waited,
    waits_for,
)

# Inputs up to this size are compared before and after the first calls.
COMPARED_BYTES = 64_000_000
# A first call that takes this many times as long, and more than a millisecond, compiles something
# or stores its result.
LONG_FIRST, LONG_FIRST_NS = 10, 1_000_000
# Reading the clock twice takes at most 1% of a query. Shorter calls are put together, so that it
# takes 0.1%.
SHORTEST_IN_CLOCKS, BATCHED_IN_CLOCKS = 100, 1000
CLOCK_TRIALS = 200
# How often garbage in cycles is collected between queries; the collector is off while they are
# timed.
COLLECTED_EVERY_NS = 100_000_000
_SHARED = (type(None), bool, int, float, complex, str, bytes, frozenset, type)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The function that is measured; `inputs` are its arguments as the caller gave them."""

    function: Callable[..., object]
    inputs: object

    @property
    def arguments(self) -> tuple[tuple[object, ...], Mapping[str, Any]]:
        """Positional and keyword arguments of the call.

        A tuple is the arguments, a mapping the keywords, anything else is the one argument.
        """
        if isinstance(self.inputs, Mapping):
            return (), {str(name): value for name, value in self.inputs.items()}
        return (self.inputs if isinstance(self.inputs, tuple) else (self.inputs,)), {}

    def bound(self) -> Callable[[], object]:
        """Return the bare call.

        Raises:
            ConfigError: the function does not take these arguments.
        """
        positional, named = self.arguments
        # Some C functions have no signature: then the first call shows a mismatch.
        with suppress(ValueError):
            signature = inspect.signature(self.function)
            try:
                signature.bind(*positional, **named)
            except TypeError as error:
                raise ConfigError(
                    f"the function does not take these inputs: {error}; a tuple is its "
                    "arguments, a dict its keyword arguments, "
                    "anything else its one argument"
                ) from error
        return partial(self.function, *positional, **named)


def measure_call(work: job.RunJob, target: FunctionCall, emit: Emit) -> job.MeasuredRun:
    """Measure a function in this process.

    `emit` is called in its thread, never between two clock reads.

    Raises:
        ConfigError: it cannot be called with these inputs, or a call leaves its work to be done
            later.
        MeasurementError: a call failed.
    """
    try:
        return measure_subject(work, FunctionSubject(work, target), None, emit)
    except EdgemeterError:
        raise
    except Exception as error:  # the function is the caller's, and may raise anything
        words = f": {one_line(error)}" if str(error) else ""
        raise MeasurementError(
            f"the function raised {type(error).__name__}{words}: correct it, or its inputs"
        ) from error


class FunctionSubject(Subject):
    """A function with its arguments.

    A query is one call, or as many (`samples`) as make it long compared with reading the clock.
    """

    def __init__(self, work: job.RunJob, target: FunctionCall) -> None:
        self._work, self._target = work, target
        self._facts: dict[str, str] = {}
        self._other_threads = [
            thread for thread in threading.enumerate() if thread is not threading.current_thread()
        ]
        self._leaves_garbage, self._collected_ns = False, 0

    def load(self) -> None:
        """Call the function a few times, and note facts about its calls.

        Raises:
            ConfigError: it is a coroutine, does not take these arguments, or its results cannot be
                waited for.
        """
        target = self._target
        refuse_coroutine_function(target.function)
        bare = target.bound()
        before = _snapshot(target.inputs)
        alive = set(threading.enumerate())
        begin = time.monotonic_ns()
        result = bare()
        waits = waits_for(result, target.inputs, target.function)
        for wait in waits:
            wait(result)
        self.first_ns = time.monotonic_ns() - begin
        call = waited(bare, waits)
        kinds = {
            device.partition(":")[0]
            for device in devices_of(result, target.inputs, target.function)
        }
        self._device = "+".join(sorted(kinds - {"cpu"}))
        started = [_threads_started(alive)]
        gc.collect()
        begin = time.monotonic_ns()
        second = call()
        again_ns = time.monotonic_ns() - begin
        started.append(_threads_started(alive))
        self._result = call()
        started.append(_threads_started(alive))
        is_same = self._result is second and not isinstance(second, _SHARED) and second != ()
        self._same_object = type(second).__qualname__ if is_same else None
        del second
        self._leaves_garbage = gc.collect() > 0
        if all(started[1:]):
            self._facts["incomplete"] = f"each one leaves a thread running, {started[-1][-1]}"
        elif before is not None and before != _snapshot(target.inputs):
            self._facts["incomplete"] = (
                "the function changes its inputs, so that later ones do other work"
            )
        self.samples = _calls_per_query(call, again_ns)
        self._query = _repeated(call, self.samples)

    def prepare(self) -> None:
        """Note the CPU time of other threads until now."""
        self._ran_ns, self._begin_ns = ran_ns(self._other_threads), time.monotonic_ns()

    def bind(self, number: int, user: int | None = None) -> Callable[[], Any]:
        """Return the query, after collecting garbage if that is due."""
        del number, user
        if self._leaves_garbage and time.monotonic_ns() >= self._collected_ns + COLLECTED_EVERY_NS:
            gc.collect()
            self._collected_ns = time.monotonic_ns()
        return self._query

    def results(self, timed: TimedQueries, emit: Emit) -> Results:
        """Return the function as a model, with the facts about its calls."""
        del emit
        target, work, calls = self._target, self._work, self.samples
        if busy := busiest_threads(
            self._ran_ns, ran_ns(self._other_threads), time.monotonic_ns() - self._begin_ns
        ):
            self._facts["other_threads_ratio"] = busy
        self._note_stored_results(timed.latency_ns.min() / calls)
        inputs, outputs = _tensors(target.inputs, "input"), _tensors(self._result, "output")
        torch = sys.modules.get("torch")
        computes = torch is not None and any(
            type(leaf).__module__.startswith("torch") for leaf in leaves(self._result)
        )
        threads = int(torch.get_num_threads()) if torch is not None and computes else None
        runtime = RuntimeInfo(
            name=job.FUNCTION_RUNTIME,
            package="python",
            version=platform.python_version(),
            backend=job.IN_PROCESS,
            threads=threads or 1,
            threads_reason="only PyTorch tells how many a function computes with"
            if threads is None
            else None,
            options={"device": self._device} if self._device else {},
            facts=self._facts,
        )
        # The latency of a query of several calls is their mean, in fractions of a nanosecond.
        latency_ns: Any = timed.latency_ns if calls == 1 else timed.latency_ns / calls
        code_file = getattr(getattr(target.function, "__code__", None), "co_filename", "")
        return Results(
            queries=replace(timed, latency_ns=latency_ns),
            model=Model(
                name=work.case.name or "function",
                sha256=work.sha256,
                file=Path(code_file or "function").name,
                size_bytes=0,
                task="unknown",
            ),
            runtime=runtime,
            precision=precision_of({tensor.dtype for tensor in (*inputs, *outputs)}),
            inputs=inputs,
            outputs=tuple(
                job.OutputTensor(name=tensor.name, shape=tensor.shape, dtype=tensor.dtype)
                for tensor in outputs
            ),
            dataset=DatasetInfo(
                name="inputs of the call", sha256=sha256_of(target.inputs), images=0
            ),
            output_check=OutputCheck(compared=0),
            reasons={"accuracy": "a function has no accuracy here: score what it returns"},
        )

    def _note_stored_results(self, call_ns: float) -> None:
        """Note that calls return an earlier result.

        It is from a cache, or the same object after a much longer first call.
        """
        first_ns = self.first_ns or 0
        longer = f"the first took {first_ns / 1e6:.3g} ms, later ones {call_ns / 1e6:.3g} ms"
        if hasattr(self._target.function, "cache_info"):
            self._facts["incomplete"] = f"the function stores its results (functools), {longer}"
        elif self._same_object and first_ns > max(LONG_FIRST * call_ns, LONG_FIRST_NS):
            self._facts["incomplete"] = f"each one returns the same {self._same_object}, {longer}"


def _calls_per_query(call: Callable[[], object], again_ns: int) -> int:
    """Return the number of calls that make a query long compared with reading the clock."""

    def spent_ns(call: Callable[[], object], calls: int) -> int:
        batched = _repeated(call, calls)
        durations = []
        for _ in range(3):
            start = time.monotonic_ns()
            batched()
            durations.append(time.monotonic_ns() - start)
        return min(durations)

    empty = partial(int)
    with no_collection():
        clock_ns = max(
            1, sorted(spent_ns(empty, 1) for _ in range(CLOCK_TRIALS))[CLOCK_TRIALS // 2]
        )
        calls = 1
        spent = (
            spent_ns(call, 1) if again_ns < SHORTEST_IN_CLOCKS * clock_ns * LONG_FIRST else again_ns
        )
        if spent >= SHORTEST_IN_CLOCKS * clock_ns:
            return 1
        while spent < BATCHED_IN_CLOCKS * clock_ns:
            calls = max(
                2 * calls,
                math.ceil(calls * min(100.0, BATCHED_IN_CLOCKS * clock_ns / max(1, spent))),
            )
            spent = spent_ns(call, calls)
        return calls


def _repeated(call: Callable[[], object], calls: int) -> Callable[[], object]:
    """Return the query of `calls` calls.

    Their results are freed within their time, as in a loop of the caller's.
    """
    if calls == 1:

        def query() -> None:
            call()

        return query

    def batch() -> None:
        for _ in repeat(None, calls):
            call()

    return batch


def _threads_started(alive: set[threading.Thread]) -> list[str]:
    """Return the names of the threads that have started, and add them to `alive`."""
    new = [thread for thread in threading.enumerate() if thread not in alive]
    alive.update(new)
    return [thread.name for thread in new]


def _snapshot(inputs: object) -> bytes | None:
    """Return the inputs as bytes that can be compared.

    None if they are large or cannot be pickled.
    """
    if (
        sum(getattr(leaf, "nbytes", 0) for leaf in leaves(inputs) if is_array(leaf))
        > COMPARED_BYTES
    ):
        return None
    with suppress(Exception):  # a file, a lock or a model may not be picklable
        return pickle.dumps(inputs)
    return None


def ran_ns(threads: Sequence[threading.Thread]) -> dict[str, int]:
    """Return the CPU time of these threads so far, by name and id.

    Empty if the kernel does not count it.
    """
    ran: dict[str, int] = {}
    for thread in threads:
        with suppress(OSError, ValueError, IndexError):
            ran[f"{thread.name}, thread {thread.native_id}"] = int(
                Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]
            )
    return ran


def busiest_threads(
    before_ns: Mapping[str, int], after_ns: Mapping[str, int], passed_ns: int
) -> str | None:
    """Return the share of the time in which other threads ran, and the busiest one.

    A thread that runs holds Python's lock.
    """
    shares = {
        name: (ran_ns - before_ns.get(name, ran_ns)) / passed_ns
        for name, ran_ns in after_ns.items()
    }
    if not shares:
        return None
    return f"{max(0.0, sum(shares.values())):.4f} {max(shares, key=lambda name: shares[name])}"


def _tensors(value: object, name: str) -> tuple[Tensor, ...]:
    """Return the arrays within `value` as a record describes tensors, `name_0`, `name_1`, ..."""
    arrays: list[Any] = [leaf for leaf in leaves(value) if is_array(leaf)]
    return tuple(
        Tensor(
            name=f"{name}_{index}",
            shape=tuple(map(int, array.shape)),
            dtype=str(array.dtype).removeprefix("torch."),
        )
        for index, array in enumerate(arrays)
    )
