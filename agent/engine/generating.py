"""One run of a language model, in this process: cold start, warm-up by whole queries, idle, timed queries, idle, and some of them again."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent import generators
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import Model, Tensor
from edgemeter.agent.contract.record_figures import Memory
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER, SYNTHETIC, UNSTREAMED, Generation, LanguageModel
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import generation_queries, job, meeting, process_usage, request_loops
from edgemeter.agent.engine.loading import cold_start, describe_runtime
from edgemeter.agent.engine.measure import UNSURE_RATIO, idle
from edgemeter.agent.engine.predictions import Emit
from edgemeter.agent.engine.process_usage import read_scheduling, resident_mb, scheduling_between
from edgemeter.agent.engine.prompts import case_prompts
from edgemeter.agent.engine.prompts.case_prompts import CasePrompts
from edgemeter.agent.engine.prompts.file_prompts import score
from edgemeter.agent.engine.repeated_answers import check_answers
from edgemeter.agent.engine.scenarios import generation_statistics, scenario
from edgemeter.agent.engine.scenarios.generation_statistics import lengths_of
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from edgemeter.agent.engine.scenarios.scenario import load_of_timed
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.generators import Generator, Limits
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Options

NOTHING_TO_SCORE = "the prompts are synthetic: there is nothing to score"


def measure_generation(
    work: job.RunJob, started_ns: int, emit: Emit, stop_counting: Callable[[], int] | None = None, meet: job.Meet | None = None
) -> job.MeasuredRun:
    """Measure one run of a generator; for the arguments see `measure.measure`.

    Raises:
        EdgemeterError: the run failed; its class shows what the caller can do.
    """
    generator = generators.create(work.case.runtime)
    try:
        prompts, subject = _load(work.case, generator, emit)
        loaded_mb = resident_mb()
        first_ns = subject.warm().token_ns[-1]
        cold, compiled = cold_start(work, started_ns, subject.loaded, first_ns), stop_counting() if stop_counting else None
        generation, peak_mb, surroundings = _time(work, subject, emit, prompts, meet)
        check = check_answers(subject, generation)
        return _measured(
            work, prompts, subject, generation, cold_start=cold, compiled_modules=compiled,
            memory=Memory(peak_mb=peak_mb, loaded_mb=loaded_mb), output_check=check, **surroundings,
        )  # fmt: skip
    finally:
        generator.close()


def _load(case: Case, generator: Generator, emit: Emit) -> tuple[CasePrompts, generation_queries.GenerationSubject]:
    emit(job.Phase(name="load"))
    options = Options(threads=case.threads, backend=case.backend, extra=case.options, sha256=case.sha256)
    prompts = case_prompts.prepare(case, options)
    limits = Limits(prompts.output_tokens, ignore_end=prompts.file is None)
    loaded = generator.load(Path(case.model), options, prompts.context_tokens)
    loaded = replace(loaded, import_ns=max(loaded.import_ns, prompts.import_ns))
    return prompts, generation_queries.GenerationSubject(generator, loaded, prompts.of(loaded), limits)


def _time(
    work: job.RunJob, subject: generation_queries.GenerationSubject, emit: Emit, prompts: CasePrompts, meet: job.Meet | None
) -> tuple[request_loops.TimedRequests, float, dict[str, Any]]:
    """Return the timed part, the peak memory in MB, and the fields of a measured run that are about what surrounds its queries."""
    case = work.case
    plan = TimingPlan(
        prompts.queries, prompts.seconds, 0, work.seed, rate_per_s=case.rate_per_s, users=case.concurrency,
        pass_queries=prompts.pass_queries,
    )  # fmt: skip
    if plan.users is not None:
        subject.concurrent()

    if meet:
        meet(job.Encounter())
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds))
    warmed = request_loops.warm_up(subject, case.warm_up_seconds, plan.users)
    begin_ns, seconds = None, scenario.SCENARIOS[case.scenario].seconds
    if meet:
        plan, begin_ns = meeting.agreed(replace(plan, expected_ns=warmed.query_ns), seconds, meet)
    expected_s = seconds(replace(plan, expected_ns=warmed.query_ns))
    idles = work.idle and (meet is not None or expected_s >= UNSURE_RATIO * work.energy_from_s)
    before = idle("idle before", case.idle_seconds, emit) if idles else None
    emit(job.Phase(name="timed", seconds=expected_s))
    with meeting.begun_at(begin_ns):
        counted = read_scheduling()
        generation = request_loops.run(subject, plan)
        scheduled = scheduling_between(counted, read_scheduling())
    peak_mb = process_usage.peak_mb()
    if meet:
        generation = generation.within(meet(job.Encounter(timed=scenario.window(case.scenario, generation.timed()))))
    after = idle("idle after", case.idle_seconds, emit) if idles else None
    return generation, peak_mb, {"warm_up": warmed.in_record(), "scheduling": scheduled, "idle_before": before, "idle_after": after}


def _measured(
    work: job.RunJob,
    prompts: CasePrompts,
    subject: generation_queries.GenerationSubject,
    generation: request_loops.TimedRequests,
    **surroundings: Any,
) -> job.MeasuredRun:
    case, loaded = work.case, subject.loaded
    generation = generation_queries.without_unstreamed(generation_queries.with_cached(generation))
    queries, timed = generation.queries, generation.timed()
    moments, window = generation_queries.moments_of(queries), scenario.window(case.scenario, timed)
    moments = replace(moments, is_local=loaded.abilities.is_local)
    described, no_times = _generation(prompts, subject, generation, moments, timed)
    accuracy, no_accuracy = _score(prompts, generation)
    # Those of a file have no length in common.
    prompt_tokens = None if described.prompts != SYNTHETIC else queries[0].answer.prompt_tokens
    prompt = Tensor(name="prompt", shape=(1,) if prompt_tokens is None else (1, prompt_tokens), dtype="int32")
    return job.MeasuredRun(
        model=_describe_model(work),
        runtime=describe_runtime(case, loaded),
        precision=loaded.precision or "unknown",
        inputs=(prompt,),
        outputs=(job.OutputTensor(name="output", shape=(1, subject.limits.output_tokens), dtype="int32"),),
        dataset=prompts.dataset(loaded),
        latency=summarise_latency(moments.latency_ns, case.scenario),
        throughput_per_s=scenario.throughput_per_s(case.scenario, timed, len(queries)),
        accuracy=accuracy,
        reasons={name: reason for name, reason in (("accuracy", no_accuracy), (UNSTREAMED, no_times)) if reason},
        samples=generation_queries.series_of(timed, moments, window.start_ns),
        timed=window,
        load=load_of_timed(timed, samples_per_query=1, rate_per_s=case.rate_per_s),
        generation=described,
        cpus=tuple(sorted(os.sched_getaffinity(0))) if case.cpus else None,
        **surroundings,
    )


def _score(prompts: CasePrompts, generation: request_loops.TimedRequests) -> tuple[Accuracy | None, str | None]:
    """Return the score of the answers to the questions of a file; else None and why."""
    if prompts.file is None:
        return None, NOTHING_TO_SCORE
    answers = [(query.number, query.answer.text) for query in generation.queries]
    # A model that ends its text at once has answered nothing.
    answers += [(failure.number, "") for failure in generation.failures if failure.kind == EMPTY_ANSWER]
    return score(prompts.file, prompts.case.seed, sorted(answers), opens_thought=prompts.opens_thought)


def _generation(
    prompts: CasePrompts,
    subject: generation_queries.GenerationSubject,
    generation: request_loops.TimedRequests,
    moments: generation_statistics.TokenMoments,
    timed: TimedQueries,
) -> tuple[Generation, str | None]:
    """Return the part of the record, and why it has no times of single tokens, if so."""
    loaded, output_tokens = subject.loaded, subject.limits.output_tokens
    answers = [query.answer for query in generation.queries]
    prompt_counts = np.array([answer.prompt_tokens for answer in answers if answer.prompt_tokens is not None])
    states_prompts = prompt_counts.size == len(answers)
    processed = int(prompt_counts.sum()) - sum(answer.cached_tokens or 0 for answer in answers)
    hidden = max((answer.hidden_reasoning_tokens or 0 for answer in answers), default=0)
    # Servers leave out the counts of an answer for which nothing was drafted.
    drafted = sum(answer.drafted_tokens or 0 for answer in answers)
    # The time to the first token is none of the prefill where thoughts came before it.
    prefilled = processed if states_prompts and (timed.overlap or not hidden) else None
    unstreamed = next((answer.unstreamed for answer in answers if answer.unstreamed), None)
    return generation_statistics.with_times(
        Generation(
            prompt_tokens=_most([answer.prompt_tokens for answer in answers]),
            prompt_lengths=lengths_of(prompt_counts) if states_prompts and np.ptp(prompt_counts) else None,
            output_tokens=output_tokens,
            **prompts.described(),
            counts=loaded.abilities.counts,
            is_local=loaded.abilities.is_local,
            cached_tokens=_most([answer.cached_tokens for answer in answers]),
            ended_early=moments.ended_early(output_tokens),
            hidden_reasoning_tokens=hidden or None,
            template_tokens=loaded.template_tokens or None,
            speculative=loaded.speculative,
            accepted_ratio=sum(answer.accepted_tokens or 0 for answer in answers) / drafted if drafted else None,
            model=msgspec.convert(loaded, LanguageModel, from_attributes=True),
        ),
        moments,
        prefilled,
        timed,
        unstreamed,
    )


def _most(counts: Sequence[int | None]) -> int | None:
    """Return the most of what is stated; None where not all of it is."""
    values = [count for count in counts if count is not None]
    return max(values) if len(values) == len(counts) else None


def _describe_model(work: job.RunJob) -> Model:
    path = Path(work.case.model)
    return Model(
        name=work.case.name or recognise.language_model_name(path),
        sha256=work.sha256,
        file=path.name,
        size_bytes=work.size_bytes,
        task="generation",
    )
