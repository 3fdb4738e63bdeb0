"""One run, in this process: cold start, warm-up, idle, timed queries, idle, accuracy. What surrounds it is the session's business."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from edgemeter.agent import records, runtimes, samples
from edgemeter.agent.engine import described, job, loading, memory, statistics
from edgemeter.agent.engine.answers import agreement
from edgemeter.agent.engine.answers import collect as answers
from edgemeter.agent.engine.answers.collect import Emit
from edgemeter.agent.engine.observing import scheduling
from edgemeter.agent.engine.scenarios import batching, offered_load, scenario
from edgemeter.agent.engine.scenarios.timing import Plan, Subject, Timed
from edgemeter.agent.engine.verdict import gate
from edgemeter.agent.engine.warm_up import Warmed, warm_up
from edgemeter.agent.runtimes import Array


@dataclass(frozen=True, slots=True)
class _Start:
    """The cold start: the loaded model, the shape of its queries, its first item and first inputs, and what it took."""

    model: loading.Model
    queries: batching.Shape
    item: list[Array]
    first: list[Array]
    before_mb: float
    loaded_mb: float
    cold: records.ColdStart


@dataclass(frozen=True, slots=True)
class _Timing:
    """The timed part and what stands directly around it."""

    prepared: list[list[Array]]
    warmed: Warmed
    timed: Timed
    scheduled: records.Scheduling
    peak_mb: float
    idle_before: job.Window | None
    idle_after: job.Window | None


def measure(work: job.Job, started_ns: int, emit: Emit) -> job.Measured:
    """Measure one run and return what was found; `started_ns` is the monotonic clock at the start of this process.

    Raises:
        EdgemeterError: by what the caller has to do about it.
    """
    runtime = runtimes.create(work.case.runtime)
    try:
        start = _start(work, started_ns, emit, runtime)
        taken = _time(work, start, emit)
        outputs = described.tensors(start.model.loaded.outputs, runtime.outputs())
        answered = answers.answer(work, start.model, taken.prepared, taken.timed.kept, emit, is_joined=start.queries.joined > 1)
        measured = _measured(work, start, taken, answered, outputs)
    finally:
        # Before the reference loads the model too: a small board may not hold both.
        runtime.close()
    agreed, why_not = _agree(work, start, taken, measured.latency.p50_ms or measured.latency.mean_ms, emit)
    return msgspec.structs.replace(measured, agreement=agreed, agreement_reason=why_not)


def _agree(work: job.Job, start: _Start, taken: _Timing, p50_ms: float, emit: Emit) -> tuple[records.Agreement | None, str | None]:
    if not work.agreement:
        return None, 'agreement with a reference was not asked of this repeat (agreement = "first" or "never")'
    emit(job.Phase(name="agreement", seconds=agreement.LIMIT_S))
    queries = [agreement.Timed(item, taken.prepared[item], outputs) for item, outputs in sorted(taken.timed.kept.items())]
    same_answer = start.model.work.same_answer if start.model.work and start.queries.joined == 1 else None
    return agreement.agree(work.case, start.model.loaded, p50_ms, queries, same_answer)


def _start(work: job.Job, started_ns: int, emit: Emit, runtime: runtimes.Runtime) -> _Start:
    emit(job.Phase(name="load"))
    before_mb = memory.resident_mb()
    model = loading.load(work.case, runtime)
    loaded_mb = memory.resident_mb()
    queries = batching.shape(work.case, model.loaded.inputs)
    item = model.inputs_of(0, work.case.seed)
    first = batching.join([item] * queries.joined)
    call = runtime.bind(first)
    begin = time.monotonic_ns()
    call()
    first_ns = time.monotonic_ns() - begin
    cold = records.ColdStart(
        process_ms=(started_ns - work.spawned_ns) / 1e6,
        import_ms=model.loaded.import_ns / 1e6,
        load_ms=model.loaded.load_ns / 1e6,
        first_ms=first_ns / 1e6,
    )
    return _Start(model, queries, item, first, before_mb, loaded_mb, cold)


def _time(work: job.Job, start: _Start, emit: Emit) -> _Timing:
    case, runtime = work.case, start.model.runtime
    emit(job.Phase(name="prepare"))
    items = loading.prepare(start.model, start.item, case.seed)
    prepared = batching.joined(items, start.queries.joined, loading.PREPARED_BYTES, case.seed)
    subject = Subject(runtime.bind, runtime.outputs, prepared)
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds))
    warmed = warm_up(subject, case.warm_up_seconds)
    idle_before = _idle("idle before", work, emit)
    plan = Plan(
        queries=case.queries,
        seconds=case.seconds,
        expected_ns=warmed.median_ns,
        seed=work.seed,
        batch=start.queries.batch,
        calls=start.queries.calls,
        rate_per_s=case.rate_per_s,
    )
    how = scenario.SCENARIOS[case.scenario]
    emit(job.Phase(name="timed", seconds=how.seconds(plan)))
    before = scheduling.read()
    timed = how.run(subject, plan)
    scheduled = scheduling.between(before, scheduling.read())
    peak_mb = memory.peak_mb()
    return _Timing(prepared, warmed, timed, scheduled, peak_mb, idle_before, _idle("idle after", work, emit))


def _idle(name: str, work: job.Job, emit: Emit) -> job.Window | None:
    """Sleep with the model loaded, for the idle power; without a sensor there is nothing to wait for."""
    if not work.idle or work.case.idle_seconds == 0:
        return None
    emit(job.Phase(name=name, seconds=work.case.idle_seconds))  # type: ignore[arg-type]
    begin = time.monotonic_ns()
    time.sleep(work.case.idle_seconds)
    return job.Window(begin, time.monotonic_ns())


def _measured(work: job.Job, start: _Start, taken: _Timing, answered: answers.Answered, outputs: Sequence[records.Tensor]) -> job.Measured:
    model, timed, warmed = start.model, taken.timed, taken.warmed
    load = offered_load.load(work.case, start.queries, timed)
    window = scenario.window(work.case.scenario, timed)
    return job.Measured(
        model=described.model(work, model.card),
        runtime=described.runtime(work.case, model.loaded),
        precision=work.case.precision or (model.card.precision if model.card else described.precision(model.loaded)),
        inputs=described.tensors(model.loaded.inputs, start.first),
        outputs=tuple(outputs),
        dataset=described.dataset(model.data, work.case.seed),
        latency=statistics.summarise(timed.latency_ns),
        throughput_per_s=scenario.throughput_per_s(work.case.scenario, timed, load.samples),
        preprocess=statistics.stage(answered.preprocess_ns),
        postprocess=statistics.stage(answered.postprocess_ns),
        cold_start=start.cold,
        warm_up=records.WarmUp(queries=warmed.queries, duration_ms=warmed.duration_ns / 1e6, steady=warmed.steady),
        memory=_memory(start, taken),
        accuracy=answered.accuracy,
        accuracy_reason=answered.reason,
        output_check=answered.check,
        answers=answered.looks,
        accuracy_gate=gate.gate(answered.accuracy, model.card, work.case.reference_accuracy, work.case.gate),
        samples=_series(timed, window, answered),
        timed=window,
        scheduling=taken.scheduled,
        idle_before=taken.idle_before,
        idle_after=taken.idle_after,
        thirds_p50_ms=_thirds_p50_ms(timed),
        guesses=model.guesses,
        batch=start.queries.batch,
        load=load,
        cpus=tuple(sorted(os.sched_getaffinity(0))) if work.case.cpus else None,
    )


def _memory(start: _Start, taken: _Timing) -> records.Memory:
    return records.Memory(
        peak_mb=taken.peak_mb,
        before_load_mb=start.before_mb,
        loaded_mb=start.loaded_mb,
        prepared_inputs_mb=sum(array.nbytes for arrays in taken.prepared for array in arrays) / 1e6,
    )


def _thirds_p50_ms(timed: Timed) -> tuple[float, ...]:
    """Return the medians of each third of the queries, without the time that they waited for others."""
    calls_ns = timed.latency_ns if timed.arrivals_ns is None else timed.latency_ns - (timed.starts_ns - timed.arrivals_ns)
    return tuple(float(np.median(third)) / 1e6 for third in np.array_split(calls_ns, min(3, calls_ns.size)))


def _series(timed: Timed, window: job.Window, answered: answers.Answered) -> tuple[records.Series, ...]:
    arrivals = () if timed.arrivals_ns is None else (samples.pack("arrival", "ns", timed.arrivals_ns - window.start_ns),)
    return (
        samples.pack("latency", "ns", timed.latency_ns),
        samples.pack("query_start", "ns", timed.starts_ns - window.start_ns),
        *arrivals,
        samples.pack("preprocess", "ns", answered.preprocess_ns),
        samples.pack("postprocess", "ns", answered.postprocess_ns),
    )
