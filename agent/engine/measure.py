"""One run, in this process: cold start, warm-up, idle, timed queries, idle, accuracy. What surrounds it is the session's business."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from edgemeter.agent import records, runtimes, samples
from edgemeter.agent.engine import agreement, answers, described, gate, job, loading, memory, statistics, timing
from edgemeter.agent.engine.answers import Emit
from edgemeter.agent.runtimes import Array


@dataclass(frozen=True, slots=True)
class _Start:
    """The cold start: the loaded model, its first inputs, and what it took."""

    model: loading.Model
    first: list[Array]
    before_mb: float
    loaded_mb: float
    cold: records.ColdStart


@dataclass(frozen=True, slots=True)
class _Timing:
    """The timed part and what stands directly around it."""

    prepared: list[list[Array]]
    warmed: timing.Warmed
    timed: timing.Timed
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
        answered = answers.answer(work, start.model, taken.prepared, taken.timed.kept, emit)
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
    same_answer = start.model.work.same_answer if start.model.work else None
    return agreement.agree(work.case, start.model.loaded, p50_ms, queries, same_answer)


def _start(work: job.Job, started_ns: int, emit: Emit, runtime: runtimes.Runtime) -> _Start:
    emit(job.Phase(name="load"))
    before_mb = memory.resident_mb()
    model = loading.load(work.case, runtime)
    loaded_mb = memory.resident_mb()
    first = model.inputs_of(0, work.case.seed)
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
    return _Start(model, first, before_mb, loaded_mb, cold)


def _time(work: job.Job, start: _Start, emit: Emit) -> _Timing:
    case, runtime = work.case, start.model.runtime
    emit(job.Phase(name="prepare"))
    prepared = loading.prepare(start.model, start.first, case.seed)
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds))
    warmed = timing.warm_up(runtime.bind, prepared, case.warm_up_seconds)
    idle_before = _idle("idle before", work, emit)
    emit(job.Phase(name="timed", seconds=max(case.seconds, case.queries * warmed.median_ns / 1e9)))
    timed = timing.single_stream(
        runtime.bind,
        runtime.outputs,
        prepared,
        queries=case.queries,
        seconds=case.seconds,
        expected_ns=warmed.median_ns,
        seed=work.seed,
    )
    peak_mb = memory.peak_mb()
    return _Timing(prepared, warmed, timed, peak_mb, idle_before, _idle("idle after", work, emit))


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
    latency = timed.latency_ns
    return job.Measured(
        model=described.model(work, model.card),
        runtime=described.runtime(work.case, model.loaded),
        precision=work.case.precision or (model.card.precision if model.card else described.precision(model.loaded)),
        inputs=described.tensors(model.loaded.inputs, start.first),
        outputs=tuple(outputs),
        dataset=described.dataset(model.data, work.case.seed),
        latency=statistics.summarise(latency),
        throughput_per_s=latency.size / (float(latency.sum()) / 1e9),
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
        samples=_series(timed, answered),
        timed=job.Window(int(timed.starts_ns[0]), timed.end_ns),
        idle_before=taken.idle_before,
        idle_after=taken.idle_after,
        thirds_p50_ms=tuple(float(np.median(third)) / 1e6 for third in np.array_split(latency, min(3, latency.size))),
        guesses=model.guesses,
    )


def _memory(start: _Start, taken: _Timing) -> records.Memory:
    return records.Memory(
        peak_mb=taken.peak_mb,
        before_load_mb=start.before_mb,
        loaded_mb=start.loaded_mb,
        prepared_inputs_mb=sum(array.nbytes for arrays in taken.prepared for array in arrays) / 1e6,
    )


def _series(timed: timing.Timed, answered: answers.Answered) -> tuple[records.Series, ...]:
    return (
        samples.pack("latency", "ns", timed.latency_ns),
        samples.pack("query_start", "ns", timed.starts_ns - timed.starts_ns[0]),
        samples.pack("preprocess", "ns", answered.preprocess_ns),
        samples.pack("postprocess", "ns", answered.postprocess_ns),
    )
