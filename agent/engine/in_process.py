"""A function measured in the process of its caller, by the clock, warm-up and statistics of every run.

A process of its own keeps runs apart from everything else; here the caller's threads, imports and garbage are part of the process. What
can mislead is looked for in the first calls, and stated as facts of the run that rules of the verdict read (`in_process_rules.py`).
"""

import gc
import math
import platform
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import EdgemeterError, MeasurementError, one_line
from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.contract.record_conditions import DatasetInfo, Model, Tensor
from edgemeter.agent.contract.record_figures import ColdStart, Memory
from edgemeter.agent.engine import call_trial, job
from edgemeter.agent.engine.call_trial import LONG_FIRST, CallTrial, FunctionCall
from edgemeter.agent.engine.callables import sha256_of
from edgemeter.agent.engine.loading import describe_precision, describe_runtime
from edgemeter.agent.engine.measure import TimedPart, time_queries
from edgemeter.agent.engine.predictions import Emit
from edgemeter.agent.engine.process_usage import resident_mb
from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from edgemeter.agent.engine.scenarios.scenario import QueryShape, load_of_timed
from edgemeter.agent.engine.scenarios.timing import TimingSubject, no_collection
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.runtimes.call_results import leaves, tensors

# Reading the clock twice is to be at most 1% of a query; queries that are shorter are made of so many calls that it is 0.1%.
SHORTEST_IN_CLOCKS, BATCHED_IN_CLOCKS = 100, 1000
CLOCK_TRIALS = 200
# What a call leaves in cycles is freed between queries, this often: the collector is off while they are timed.
COLLECTED_EVERY_NS = 100_000_000


def measure_call(work: job.RunJob, target: FunctionCall, emit: Emit) -> job.MeasuredRun:
    """Measure a function in this process; `emit` is called in its thread, never between two clock reads.

    Raises:
        ConfigError: it cannot be called with these inputs, or a call leaves its work to be done later.
        MeasurementError: a call failed.
    """
    other_threads = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    emit(job.Phase(name="load"))
    try:
        trial = call_trial.try_call(target)
        loaded_mb = resident_mb()
        calls = _calls_per_query(trial)
        cpu_before_ns = call_trial.ran_ns(other_threads)
        begin_ns = time.monotonic_ns()
        part = time_queries(work, _subject(trial, calls), QueryShape(calls, 1), emit, trial.again_ns * calls)
        passed_ns = time.monotonic_ns() - begin_ns
        # There is none; the phase ends what is sampled beside the run.
        emit(job.Phase(name="accuracy", seconds=0.0))
    except EdgemeterError:
        raise
    except Exception as error:  # the function is the caller's, and may raise anything
        raise MeasurementError(f"the function raised {type(error).__name__}: {one_line(error)}: correct it, or its inputs") from error
    call_trial.note_threads(trial, cpu_before_ns, call_trial.ran_ns(other_threads), passed_ns)
    call_trial.note_stored_results(trial, target, part.timed.latency_ns.min() / calls)
    memory = Memory(peak_mb=part.peak_mb, loaded_mb=loaded_mb)
    return _measured(work, target, trial, part, calls, memory)


def _calls_per_query(trial: CallTrial) -> int:
    """Return how many calls make a query that is long against reading the clock."""

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
        clock_ns = max(1, sorted(spent_ns(empty, 1) for _ in range(CLOCK_TRIALS))[CLOCK_TRIALS // 2])
        calls = 1
        spent = spent_ns(trial.call, 1) if trial.again_ns < SHORTEST_IN_CLOCKS * clock_ns * LONG_FIRST else trial.again_ns
        if spent >= SHORTEST_IN_CLOCKS * clock_ns:
            return 1
        while spent < BATCHED_IN_CLOCKS * clock_ns:
            calls = max(2 * calls, math.ceil(calls * min(100.0, BATCHED_IN_CLOCKS * clock_ns / max(1, spent))))
            spent = spent_ns(trial.call, calls)
        return calls


def _repeated(call: Callable[[], object], calls: int) -> Callable[[], object]:
    if calls == 1:
        return call

    def batch() -> None:
        for _ in repeat(None, calls):
            call()

    return batch


def _subject(trial: CallTrial, calls: int) -> TimingSubject:
    """Return what the scenarios time; between queries it frees what calls left in cycles."""
    query = _repeated(trial.call, calls)
    due_ns = 0

    def bind(_: object) -> Callable[[], object]:
        nonlocal due_ns
        if trial.leaves_garbage and time.monotonic_ns() >= due_ns:
            gc.collect()
            due_ns = time.monotonic_ns() + COLLECTED_EVERY_NS
        return query

    return TimingSubject(bind, list, [[]])


def _measured(work: job.RunJob, target: FunctionCall, trial: CallTrial, part: TimedPart, calls: int, memory: Memory) -> job.MeasuredRun:
    samples = int(part.timed.latency_ns.size) * calls
    throughput_per_s = scenario.throughput_per_s(work.case.scenario, part.timed, samples)
    # Of a query of several calls the latency is that of one: their mean, in fractions of a nanosecond.
    latency_ns: Any = part.timed.latency_ns if calls == 1 else part.timed.latency_ns / calls
    timed = replace(part.timed, latency_ns=latency_ns)
    window = scenario.window(work.case.scenario, timed)
    loaded = _loaded(target, trial)
    threads = _threads(trial)
    case = msgspec.structs.replace(work.case, threads=threads or 1, options={"device": trial.device} if trial.device else {})
    return job.MeasuredRun(
        model=_model(work, target),
        runtime=msgspec.structs.replace(
            describe_runtime(case, loaded), threads_reason=None if threads else "only PyTorch tells how many a function computes with"
        ),
        precision=describe_precision(loaded),
        inputs=tuple(Tensor(name=info.name, shape=_shape(info), dtype=info.dtype) for info in loaded.inputs),
        outputs=tuple(job.OutputTensor(name=info.name, shape=_shape(info), dtype=info.dtype) for info in loaded.outputs),
        dataset=DatasetInfo(name="inputs of the call", sha256=sha256_of(target.inputs), images=0),
        latency=summarise_latency(timed.latency_ns, case.scenario),
        throughput_per_s=throughput_per_s,
        cold_start=ColdStart(process_ms=None, import_ms=None, load_ms=None, first_ms=trial.first_ns / 1e6),
        memory=memory,
        reasons={"accuracy": "a function has no accuracy here: score what it returns"},
        output_check=OutputCheck(compared=0),
        samples=scenario.time_series(timed, window.start_ns),
        timed=window,
        load=load_of_timed(part.timed, calls, None),
        **part.surroundings(),
    )


def _loaded(target: FunctionCall, trial: CallTrial) -> Loaded:
    return Loaded(
        package="python",
        version=platform.python_version(),
        backend=job.IN_PROCESS,
        inputs=tensors(target.inputs, "input"),
        outputs=tensors(trial.result, "output"),
        metadata={},
        import_ns=0,
        load_ns=0,
        facts=trial.facts,
    )


def _threads(trial: CallTrial) -> int | None:
    """Return the threads that PyTorch computes with, where it is in the results; of other libraries they are not known: None."""
    torch = sys.modules.get("torch")
    computes = torch is not None and any(type(leaf).__module__.startswith("torch") for leaf in leaves(trial.result))
    return int(torch.get_num_threads()) if torch is not None and computes else None


def _shape(info: TensorInfo) -> tuple[int, ...]:
    return tuple(size or 0 for size in info.shape)


def _model(work: job.RunJob, target: FunctionCall) -> Model:
    return Model(
        name=work.case.name or "function",
        sha256=work.sha256,
        file=Path(getattr(getattr(target.function, "__code__", None), "co_filename", "") or "function").name,
        size_bytes=0,
        task="unknown",
    )
