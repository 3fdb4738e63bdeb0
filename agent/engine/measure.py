"""One run, in this process: cold start, warm-up, idle, timed queries, idle, accuracy. The session does the rest."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.case_settings import OVERLAPPING, is_video
from edgemeter.agent.contract.model_formats import PYTHON
from edgemeter.agent.contract.record_figures import ColdStart, Memory
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import job, loading, meeting, process_usage
from edgemeter.agent.engine.predictions import Emit, Evaluation, check_results, evaluate
from edgemeter.agent.engine.process_usage import read_scheduling, resident_mb, scheduling_between
from edgemeter.agent.engine.request_loops import answered_ns
from edgemeter.agent.engine.scenarios import scenario, steady
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency, summarise_stage
from edgemeter.agent.engine.scenarios.scenario import QueryShape, join_batch, joined_batches, load_of_timed, query_shape
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan, TimingSubject
from edgemeter.agent.engine.served_queries import ServedSubject, warm_up_answered
from edgemeter.agent.engine.warm_up import Warmed, warm_up
from edgemeter.agent.runtimes import Array, Runtime

UNSURE_RATIO = 0.75


@dataclass(frozen=True, slots=True)
class _Start:
    """The cold start: the loaded model, the shape of its queries, its first item and first inputs, and what it took."""

    model: loading.LoadedModel
    queries: QueryShape
    item: list[list[Array]]
    first: list[Array]
    loaded_mb: float
    cold: ColdStart
    compiled_modules: int | None


@dataclass(frozen=True, slots=True)
class TimedPart:
    """The timed queries, and what directly surrounds them; `grown_mb` is the growth of the resident memory meanwhile."""

    warmed: Warmed
    timed: TimedQueries
    scheduled: job.Scheduling
    peak_mb: float
    idle_before: Window | None
    idle_after: Window | None
    grown_mb: float | None = None

    def surroundings(self) -> dict[str, Any]:
        """Return the fields of a measured run that are about what surrounds its queries."""
        return {
            "warm_up": self.warmed.in_record(), "scheduling": self.scheduled, "idle_before": self.idle_before,
            "idle_after": self.idle_after,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Timing:
    """The inputs that were timed, and the timed part."""

    prepared: list[list[Array]]
    is_by_item: bool
    part: TimedPart
    memory: Memory


def measure(
    work: job.RunJob,
    started_ns: int,
    emit: Emit,
    stop_counting: Callable[[], int] | None = None,
    meet: job.Meet | None = None,
) -> job.MeasuredRun:
    """Measure one run; `started_ns` is the monotonic clock at the start of this process.

    `stop_counting` returns how many modules were compiled since then, where that is counted. `meet` agrees with runs at the same
    time on what is timed.

    Raises:
        EdgemeterError: the run failed; its class shows what the caller can do.
    """
    runtime = runtimes.create(work.case.runtime)
    try:
        start = _start(work, started_ns, emit, runtime, stop_counting)
        if work.case.scenario == "steady" and work.case.rate_per_s is None and start.model.data is not None:
            work = msgspec.structs.replace(work, case=msgspec.structs.replace(work.case, rate_per_s=start.model.data.rate_per_s))
        timing = _time(work, start, emit, meet)
        start = _with_late_facts(start)
        outputs = loading.describe_outputs(start.model.loaded.outputs, _last_outputs(runtime))
        evaluated = evaluate(work, start.model, timing.prepared, timing.part.timed.kept, emit, is_by_item=timing.is_by_item)
        return _measured(work, start, timing, evaluated, outputs)
    finally:
        runtime.close()


def _last_outputs(runtime: Runtime) -> list[Array]:
    """Return the last outputs that a server gave: its last answer may be an error, which is read once, and the one before it is kept."""
    try:
        return runtime.outputs()
    except AnswerError:
        return runtime.outputs()


def _with_late_facts(start: _Start) -> _Start:
    """Return the start with what the runtime reports after the timed part."""
    model = start.model
    if not isinstance(model.runtime, runtimes.LateFacts):
        return start
    return replace(start, model=replace(model, loaded=model.runtime.with_late_facts(model.loaded)))


def _start(work: job.RunJob, started_ns: int, emit: Emit, runtime: Runtime, stop_counting: Callable[[], int] | None) -> _Start:
    emit(job.Phase(name="load"))
    model = loading.load_model(work.case, runtime)
    check_results(work.case, model)
    loaded_mb = resident_mb()
    queries = query_shape(work.case, model.loaded.inputs)
    item = model.calls_of(0, work.case.seed)
    first = join_batch([item[0]] * queries.joined)
    first_ns = answered_ns(partial(runtime.bind, first))
    declared = tuple(tuple(size or 1 for size in info.shape) for info in model.loaded.inputs)
    if model.loaded.first_ns is not None and loading.shapes_of(first) == declared:
        # Loading made the first call; one with inputs of other shapes is not of this run.
        first_ns = model.loaded.first_ns
    cold, compiled = loading.cold_start(work, started_ns, model.loaded, first_ns), stop_counting() if stop_counting else None
    return _Start(model, queries, item, first, loaded_mb, cold, compiled)


def _time(work: job.RunJob, start: _Start, emit: Emit, meet: job.Meet | None) -> _Timing:
    case, runtime = work.case, start.model.runtime
    emit(job.Phase(name="prepare"))
    ready = loading.prepare_calls(start.model, start.item, case.seed)
    prepared = joined_batches(ready.calls, start.queries.joined, loading.PREPARED_BYTES, case.seed)
    is_by_item = ready.is_by_item and start.queries.joined == 1
    first_ns = round(start.cold.first_ms * 1e6)
    if case.runtime == PYTHON:
        # Code that compiles does so for each shape before anything is timed; what this takes foretells the rest better than the first call.
        for inputs in {loading.shapes_of(inputs): inputs for inputs in prepared}.values():
            first_ns = min(first_ns, answered_ns(partial(runtime.bind, inputs)))
    subject: TimingSubject | ServedSubject = TimingSubject(runtime.bind, runtime.outputs, prepared)
    if isinstance(runtime, runtimes.ConcurrentRuntime) and case.scenario in ("single_stream", *OVERLAPPING):
        subject = ServedSubject(runtime, prepared)
    window = runtime.window if isinstance(runtime, runtimes.WatchedRuntime) else nullcontext
    part = time_queries(work, subject, start.queries, emit, first_ns, window, meet)
    memory = Memory(peak_mb=part.peak_mb, loaded_mb=start.loaded_mb, grown_mb=part.grown_mb)
    return _Timing(prepared, is_by_item, part, memory)


def time_queries(
    work: job.RunJob,
    subject: TimingSubject | ServedSubject,
    queries: QueryShape,
    emit: Emit,
    first_ns: int,
    window: Callable[[], AbstractContextManager[None]] = nullcontext,
    meet: job.Meet | None = None,
) -> TimedPart:
    """Warm up, idle, time the queries of the job's scenario, idle.

    `first_ns` is what the first query took. They are timed inside a `window`; those of a run that meets others at the same time, and only
    what lies in the time of all of them counts.
    """
    case = work.case
    plan = TimingPlan(
        case.queries, case.seconds, first_ns, work.seed, queries.batch, case.rate_per_s, case.concurrency,
        deadline_ns=None if case.deadline_ms is None else round(case.deadline_ms * 1e6),
    )  # fmt: skip
    how = scenario.SCENARIOS[case.scenario]
    if meet:
        meet(job.Encounter())
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds))
    limit_s = case.warm_up_seconds
    if isinstance(subject, ServedSubject):
        warmed = subject.warm_up(limit_s, plan.users)
    else:
        warmed = (warm_up_answered if case.runtime == "served" else warm_up)(subject, limit_s)
    plan = replace(plan, expected_ns=warmed.query_ns, in_order=is_video(case.data or ""))
    plan, begin_ns = meeting.agreed(plan, how.seconds, meet)
    idles = work.idle and (meet is not None or how.seconds(plan) >= UNSURE_RATIO * work.energy_from_s)
    plan = replace(plan, pauses=idles and work.pauses)
    idle_before = idle("idle before", case.idle_seconds, emit) if idles else None
    if isinstance(subject, ServedSubject):
        subject.make_ready(plan)
    emit(job.Phase(name="timed", seconds=how.seconds(plan)))
    with window(), meeting.begun_at(begin_ns):
        before, before_mb = read_scheduling(), resident_mb()
        timed = subject.run(plan) if isinstance(subject, ServedSubject) else how.run(subject, plan)
        scheduled = scheduling_between(before, read_scheduling())
        peak_mb = process_usage.peak_mb()
        timed = timed.within(meet(job.Encounter(timed=scenario.window(case.scenario, timed)))) if meet else timed
        moments = {id(array): array for array in (timed.starts_ns, timed.latency_ns, timed.arrived_ns)}
        kept_bytes = sum(array.nbytes for array in (*moments.values(), *chain(*timed.kept.values())))
        grown_mb = resident_mb() - before_mb - kept_bytes / 1e6
    idle_after = idle("idle after", case.idle_seconds if idles else 0.0, emit)
    return TimedPart(warmed, timed, scheduled, peak_mb, idle_before, idle_after, grown_mb)


def idle(name: Literal["idle before", "idle after"], seconds: float, emit: Emit) -> Window | None:
    """Sleep with the model loaded, for the idle power, and return when; None of 0 s, which the end of the timed part alone reports."""
    if seconds == 0 and name == "idle before":
        return None
    emit(job.Phase(name=name, seconds=seconds))
    if seconds == 0:
        return None
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return Window(begin, time.monotonic_ns())


def _with_compilation(start: _Start, part: TimedPart) -> ColdStart:
    """Return the cold start with what the first call took beyond later ones, where the model compiles in it."""
    if not start.model.loaded.compiles_at_call:
        return start.cold
    return msgspec.structs.replace(start.cold, compile_ms=max(0.0, start.cold.first_ms - part.warmed.query_ns / 1e6))


def _measured(
    work: job.RunJob, start: _Start, timing: _Timing, evaluated: Evaluation, outputs: Sequence[job.OutputTensor]
) -> job.MeasuredRun:
    model, timed = start.model, timing.part.timed
    load = load_of_timed(timed, start.queries.batch, work.case.rate_per_s)
    window = scenario.window(work.case.scenario, timed)
    throughput_per_s = scenario.throughput_per_s(work.case.scenario, timed, load.samples)
    return job.MeasuredRun(
        model=loading.describe_model(work, model),
        runtime=loading.describe_runtime(work.case, model.loaded, timing.prepared),
        precision=model.card.precision if model.card else loading.describe_precision(model.loaded),
        inputs=loading.describe_inputs(model.loaded.inputs, start.first),
        outputs=tuple(outputs),
        dataset=loading.describe_dataset(model.data, work.case.seed),
        latency=summarise_latency(timed.latency_ns, work.case.scenario),
        throughput_per_s=throughput_per_s,
        preprocess=summarise_stage(evaluated.preprocess_ns),
        postprocess=summarise_stage(evaluated.postprocess_ns),
        cold_start=_with_compilation(start, timing.part),
        compiled_modules=start.compiled_modules,
        memory=timing.memory,
        accuracy=evaluated.accuracy,
        reasons={} if evaluated.reason is None else {"accuracy": evaluated.reason},
        output_check=evaluated.check,
        answers=evaluated.answers,
        predictions=evaluated.predictions,
        samples=(
            *scenario.time_series(timed, window.start_ns),
            samples.pack("preprocess", "ns", evaluated.preprocess_ns),
            samples.pack("postprocess", "ns", evaluated.postprocess_ns),
        ),
        timed=window,
        guesses=model.guesses,
        batch=start.queries.batch,
        load=load,
        steady=steady.steady_of(timed),
        cpus=tuple(sorted(os.sched_getaffinity(0))) if work.case.cpus else None,
        **timing.part.surroundings(),
    )
