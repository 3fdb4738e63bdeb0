"""Measures one run in this process; the session does the rest.

It has the cold start, warm-up, idle, timed queries, idle, and the check of the outputs.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.case_settings import OVERLAPPING
from edgemeter.agent.contract.record_figures import ColdStart, Memory, WarmUp
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine import closed_loop, job, process_usage, schedule, users
from edgemeter.agent.engine.process_usage import read_scheduling, resident_mb, scheduling_between
from edgemeter.agent.engine.scenarios import poisson, scenario, steady
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency, summarise_stage
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch, no_collection
from edgemeter.agent.engine.subject import Emit, Results, Subject
from edgemeter.agent.engine.warm_up import warm_up

UNSURE_RATIO = 0.75
# For each scenario: the expected duration of a plan, and the loop that runs it.
LOOPS: Mapping[
    str, tuple[Callable[[TimingPlan], float], Callable[[Stopwatch, TimingPlan], TimedQueries]]
] = {
    "single_stream": (closed_loop.seconds, closed_loop.run),
    "offline": (closed_loop.seconds, closed_loop.run),
    "poisson": (poisson.seconds, schedule.run_poisson),
    "steady": (steady.seconds, schedule.run_steady),
    "concurrent": (users.seconds, users.run),
}


class TimedPart(NamedTuple):
    """The timed queries, the duration of a warm one, and the time around them.

    `surroundings` are fields of a measured run.
    """

    timed: TimedQueries
    query_ns: int
    surroundings: dict[str, Any]


def measure(
    work: job.RunJob, started_ns: int, emit: Emit, meet: job.Meet | None = None
) -> job.MeasuredRun:
    """Measure a run of a job; for the arguments see `measure_subject`."""
    # Imported here, because an unused import would take time and memory of the run.
    if work.case.output_tokens is not None:
        from edgemeter.agent.engine.language_subject import LanguageSubject  # noqa: PLC0415

        return measure_subject(work, LanguageSubject(work), started_ns, emit, meet)
    from edgemeter.agent.engine.model_subject import ModelSubject  # noqa: PLC0415

    return measure_subject(work, ModelSubject(work), started_ns, emit, meet)


def measure_subject(
    work: job.RunJob,
    subject: Subject,
    started_ns: int | None,
    emit: Emit,
    meet: job.Meet | None = None,
) -> job.MeasuredRun:
    """Measure one run.

    `started_ns` is the monotonic clock at the start of this process, None if the process is the
    caller's. `meet` agrees on a window with runs at the same time.

    Raises:
        EdgemeterError: the run failed.
    """
    try:
        emit(job.Phase(name="load"))
        subject.load()
        if (
            work.case.scenario in (OVERLAPPING if subject.has_tokens else ("concurrent",))
            and not subject.is_concurrent
        ):
            raise ConfigError(
                f"{work.case.model!r} answers one query after the other: leave out concurrency "
                "and poisson, or measure a server"
            )
        loaded_mb = resident_mb(subject.process)
        first_ns = Stopwatch(subject).first() if subject.first_ns is None else subject.first_ns
        # Modules whose bytecode could not be written are compiled in each cold start. `torch.ops`
        # has an attribute of any name.
        cached = [getattr(module, "__cached__", None) for module in [*sys.modules.values()]]
        compiled = sum(isinstance(path, str) and not Path(path).exists() for path in cached)
        emit(job.Phase(name="prepare"))
        subject.prepare()
        timed, query_ns, surroundings = time_queries(work, subject, emit, meet)
        emit(job.Phase(name="accuracy"))
        results = subject.results(timed, emit)
        cold_start = ColdStart(
            process_ms=None if started_ns is None else (started_ns - work.spawned_ns) / 1e6,
            import_ms=None if subject.import_ns is None else subject.import_ns / 1e6,
            load_ms=None if subject.load_ns is None else subject.load_ns / 1e6,
            first_ms=first_ns / 1e6,
            # The time of the first call beyond that of later ones.
            compile_ms=max(0.0, (first_ns - query_ns) / 1e6) if subject.compiles_at_call else None,
        )
        surroundings["memory"] = Memory(loaded_mb=loaded_mb, **surroundings["memory"])
        return _measured(
            work, subject, results, cold_start=cold_start, compiled_modules=compiled, **surroundings
        )
    finally:
        subject.close()


def agreed(
    plan: TimingPlan, seconds: Callable[[TimingPlan], float], meet: job.Meet | None
) -> tuple[TimingPlan, int | None]:
    """Return the plan for the common window, and its beginning, monotonic ns.

    A run alone has its own plan and None.
    """
    if meet is None:
        return plan, None
    window = meet(
        job.Encounter(seconds=plan.seconds, queries_s=seconds(replace(plan, seconds=0.0)))
    )
    return replace(plan, queries=1, seconds=window.length_ns / 1e9, pass_queries=1), window.start_ns


def time_queries(
    work: job.RunJob, subject: Subject, emit: Emit, meet: job.Meet | None
) -> TimedPart:
    """Warm up, idle, time the queries of the job's scenario, idle.

    With `meet`, the queries are timed at the same time as those of other runs, and only those in
    the common window count.
    """
    case = work.case
    seconds, run = LOOPS[case.scenario]
    if meet:
        meet(job.Encounter())
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds))
    warmed = warm_up(Stopwatch(subject), case.warm_up_seconds, case.concurrency)
    plan, begin_ns = agreed(replace(subject.plan(work), expected_ns=warmed.query_ns), seconds, meet)
    idles = work.idle and (meet is not None or seconds(plan) >= UNSURE_RATIO * work.energy_from_s)
    plan = replace(plan, pauses=idles and work.pauses)
    idle_before = idle("idle before", case.idle_seconds, emit) if idles else None
    subject.ready(plan)
    watch = Stopwatch(subject)
    emit(job.Phase(name="timed", seconds=seconds(plan)))
    with no_collection():
        if begin_ns is not None:
            watch.wait_until(begin_ns)
        before, before_mb = read_scheduling(), resident_mb()
        timed = run(watch, plan)
        scheduled, peak_mb = (
            scheduling_between(before, read_scheduling()),
            process_usage.peak_mb(subject.process),
        )
        if meet:
            timed = timed.within(meet(job.Encounter(timed=scenario.window(case.scenario, timed))))
        grown_mb = None
        if subject.kept_bytes is not None:
            # Number, start, end and latency of each query are kept, and its arrival in an open
            # loop.
            moments_bytes = timed.latency_ns.nbytes * (4 if timed.arrivals_ns is None else 5)
            grown_mb = resident_mb() - before_mb - (subject.kept_bytes + moments_bytes) / 1e6
    surroundings = {
        "warm_up": WarmUp(duration_ms=warmed.duration_ns / 1e6, steady=warmed.steady),
        "scheduling": scheduled,
        "memory": {"peak_mb": peak_mb, "grown_mb": grown_mb},
        "idle_before": idle_before,
        "idle_after": idle("idle after", case.idle_seconds if idles else 0.0, emit),
    }
    return TimedPart(timed, warmed.query_ns, surroundings)


def idle(name: Literal["idle before", "idle after"], seconds: float, emit: Emit) -> Window | None:
    """Sleep with the model loaded, for the idle power, and return the window, None for 0 s.

    The phase after timing is always reported.
    """
    if seconds == 0 and name == "idle before":
        return None
    emit(job.Phase(name=name, seconds=seconds))
    if seconds == 0:
        return None
    begin = time.monotonic_ns()
    time.sleep(seconds)
    return Window(begin, time.monotonic_ns())


def _measured(
    work: job.RunJob, subject: Subject, results: Results, **surroundings: Any
) -> job.MeasuredRun:
    case, timed = work.case, results.queries
    load = scenario.load_of_timed(timed, subject.samples, case.rate_per_s)
    window = scenario.window(case.scenario, timed)
    series = scenario.time_series(timed, window.start_ns) + results.series
    if results.generation is None:
        stages = {"preprocess": results.preprocess_ns, "postprocess": results.postprocess_ns}
        series += tuple(
            samples.pack(name, "ns", durations_ns) for name, durations_ns in stages.items()
        )
    return job.MeasuredRun(
        **{
            name: getattr(results, name)
            for name in results.__struct_fields__
            if name in job.MeasuredRun.__struct_fields__
        },
        latency=summarise_latency(timed.latency_ns, case.scenario),
        throughput_per_s=scenario.throughput_per_s(
            case.scenario, timed, load.samples * results.batch // subject.samples
        ),
        preprocess=summarise_stage(results.preprocess_ns),
        postprocess=summarise_stage(results.postprocess_ns),
        samples=series,
        timed=window,
        load=load,
        steady=steady.steady_of(timed),
        cpus=tuple(sorted(os.sched_getaffinity(0))) if case.cpus else None,
        **surroundings,
    )
