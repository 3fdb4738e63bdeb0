"""One run of a language model, in this process: cold start, warm-up by whole queries, idle, timed queries, idle, and some of them again."""

import hashlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent import generators
from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import Model, Tensor
from edgemeter.agent.contract.record_figures import Memory
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER, SYNTHETIC, Generation, LanguageModel
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
from edgemeter.agent.engine.scenarios.goodput import goodput_of
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from edgemeter.agent.engine.scenarios.scenario import load_of_timed
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan
from edgemeter.agent.generators import Generated, Generator, Limits, LoadedGenerator
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Options

# A text that is tokenised for `encode_ms`, again and again until it is about as long as a prompt.
SENTENCE = "The board on the bench answers each query, and the meter beside it counts what that costs. "
ENCODINGS = 5
# At the end of a file's name: all quantisations of a model share the rest.
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
        before_mb = resident_mb()
        prompts, subject = _load(work.case, generator, emit)
        loaded_mb = resident_mb()
        first_ns = subject.warm().token_ns[-1]
        cold = cold_start(work, started_ns, subject.loaded, first_ns, stop_counting)
        generation, peak_mb, surroundings = _time(work, subject, emit, first_ns / 1e9, prompts, meet)
        check = check_answers(subject, generation)
        memory = Memory(peak_mb=peak_mb, before_load_mb=before_mb, loaded_mb=loaded_mb)
        return _measured(work, prompts, subject, generation, cold_start=cold, memory=memory, output_check=check, **surroundings)
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
    work: job.RunJob, subject: generation_queries.GenerationSubject, emit: Emit, first_s: float, prompts: CasePrompts, meet: job.Meet | None
) -> tuple[request_loops.TimedRequests, float, dict[str, Any]]:
    """Return the timed part, the peak memory in MB, and the fields of a measured run that are about what surrounds its queries."""
    case = work.case
    plan = TimingPlan(
        prompts.queries, prompts.seconds, 0, work.seed, rate_per_s=case.rate_per_s, users=case.concurrency,
        pass_queries=prompts.pass_queries,
    )  # fmt: skip
    if plan.users is not None:
        subject.concurrent()

    def timed_s(query_s: float) -> float:
        return scenario.SCENARIOS[case.scenario].seconds(replace(plan, expected_ns=round(query_s * 1e9)))

    if meet:
        meet(job.Encounter())
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds, later_s={"timed": timed_s(first_s)}))
    warmed, query_s = request_loops.warm_up(subject, case.warm_up_seconds, plan.users)
    begin_ns = None
    if meet:
        expected = replace(plan, expected_ns=round(query_s * 1e9))
        plan, begin_ns = meeting.agreed(expected, scenario.SCENARIOS[case.scenario].seconds, meet)
    expected_s = timed_s(query_s)
    idles = work.idle and (meet is not None or expected_s >= UNSURE_RATIO * work.energy_from_s)
    before = idle("idle before", case.idle_seconds, emit, {"timed": expected_s}) if idles else None
    emit(job.Phase(name="timed", seconds=expected_s))
    with meeting.begun_at(begin_ns):
        counted = read_scheduling()
        generation = request_loops.run(subject, plan)
        scheduled = scheduling_between(counted, read_scheduling())
    peak_mb = process_usage.peak_mb()
    if meet:
        generation = generation.within(meet(job.Encounter(timed=scenario.window(case.scenario, generation.timed()))))
    after = idle("idle after", case.idle_seconds, emit) if idles else None
    return generation, peak_mb, {"warm_up": warmed, "scheduling": scheduled, "idle_before": before, "idle_after": after}


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
    described = _generation(prompts, subject, generation, moments, timed)
    accuracy, no_accuracy = _score(prompts, generation)
    # Those of a file have no length in common.
    prompt_tokens = None if described.prompts != SYNTHETIC else queries[0].answer.prompt_tokens
    prompt = Tensor(name="prompt", shape=(1,) if prompt_tokens is None else (1, prompt_tokens), dtype="int32")
    return job.MeasuredRun(
        model=_describe_model(work, loaded),
        runtime=describe_runtime(case, loaded),
        precision=case.precision or loaded.precision or "unknown",
        inputs=(prompt,),
        outputs=(Tensor(name="output", shape=(1, subject.limits.output_tokens), dtype="int32"),),
        dataset=prompts.dataset(loaded),
        latency=summarise_latency(moments.latency_ns),
        throughput_per_s=scenario.throughput_per_s(case.scenario, timed, len(queries)),
        accuracy=accuracy,
        accuracy_reason=no_accuracy,
        samples=generation_queries.series_of(timed, moments, window.start_ns),
        timed=window,
        load=load_of_timed(timed, samples_per_query=1, calls_per_query=1, rate_per_s=case.rate_per_s),
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
) -> Generation:
    loaded, output_tokens = subject.loaded, subject.limits.output_tokens
    answers = [query.answer for query in generation.queries]
    # The engine's timings of queries that overlap add up to more than the time that passed.
    own_prefill, own_decode = (None, None) if timed.overlap else _own_rates(answers)
    encode_ms, encode_tokens = _encoding(subject, answers[0].prompt_tokens or 1)
    prompt_counts = np.array([answer.prompt_tokens for answer in answers if answer.prompt_tokens is not None])
    states_prompts = prompt_counts.size == len(answers)
    processed = int(prompt_counts.sum()) - sum(answer.cached_tokens or 0 for answer in answers)
    hidden = max((answer.hidden_reasoning_tokens or 0 for answer in answers), default=0)
    # The time to the first token is none of the prefill where thoughts came before it.
    prefilled = processed if states_prompts and (timed.overlap or not hidden) else None
    unstreamed = next((answer.unstreamed for answer in answers if answer.unstreamed), None)
    described = generation_statistics.with_times(
        Generation(
            prompt_tokens=_most([answer.prompt_tokens for answer in answers]),
            prompt_lengths=lengths_of(prompt_counts) if states_prompts and np.ptp(prompt_counts) else None,
            output_tokens=output_tokens,
            context_tokens=loaded.context_tokens,
            **prompts.described(loaded),
            sampling="greedy",
            ends_at="length" if loaded.abilities.ignores_end and subject.limits.ignore_end else "end_of_text",
            counts=loaded.abilities.counts,
            is_local=loaded.abilities.is_local,
            stamped_tokens_max=moments.stamped_tokens_max(),
            cached_tokens=_most([answer.cached_tokens for answer in answers]),
            ended_early=moments.ended_early(output_tokens),
            hidden_reasoning_tokens=hidden or None,
            template_tokens=loaded.template_tokens or None,
            failed_queries=len(generation.failures),
            failures=dict(timed.failures),
            speculative=loaded.speculative,
            drafted_tokens=_stated_total([answer.drafted_tokens for answer in answers]),
            accepted_tokens=_stated_total([answer.accepted_tokens for answer in answers]),
            own_prefill_tokens_per_s=own_prefill,
            own_decode_tokens_per_s=own_decode,
            encode_ms=encode_ms,
            encode_tokens=encode_tokens,
            network_round_trip_ms=loaded.network_round_trip_ms,
            model=_language_model(loaded),
        ),
        moments,
        prefilled,
        timed,
        unstreamed,
    )
    rate = scenario.throughput_per_s(prompts.case.scenario, timed, len(answers))
    return msgspec.structs.replace(described, goodput=goodput_of(described, moments, timed, prompts.case.slo, rate))


def _most(counts: Sequence[int | None]) -> int | None:
    """Return the most of what is stated; None where not all of it is."""
    values = [count for count in counts if count is not None]
    return max(values) if len(values) == len(counts) else None


def _stated_total(counts: Sequence[int | None]) -> int | None:
    """Return the sum of what is stated, None of nothing: servers leave out the counts of an answer for which nothing was drafted."""
    values = [count for count in counts if count is not None]
    return sum(values) if values else None


def _own_rates(answers: Sequence[Generated]) -> tuple[float | None, float | None]:
    """Return the engine's own rates over all queries, of prefill and of decoding; None where it does not state all of them."""
    timings = [answer.own for answer in answers if answer.own is not None]
    if len(timings) < len(answers):
        return None, None
    prefill_ms, decode_ms = sum(timing.prefill_ms for timing in timings), sum(timing.decode_ms for timing in timings)
    return (
        sum(timing.prefilled_tokens for timing in timings) * 1e3 / prefill_ms if prefill_ms > 0 else None,
        sum(timing.decoded_tokens for timing in timings) * 1e3 / decode_ms if decode_ms > 0 else None,
    )


def _encoding(subject: generation_queries.GenerationSubject, prompt_tokens: int) -> tuple[float | None, int | None]:
    """Return how long the tokenisation of a text takes that is about as long as a prompt, ms, and its tokens; None if it cannot be told."""
    try:
        per_sentence = max(1, len(subject.generator.encode(SENTENCE)))
        text = SENTENCE * -(-prompt_tokens // per_sentence)
        spent_ms, tokens = [], 0
        for _ in range(ENCODINGS):
            start = time.monotonic_ns()
            tokens = len(subject.generator.encode(text))
            spent_ms.append((time.monotonic_ns() - start) / 1e6)
    except (UnavailableError, TransientError):
        return None, None
    return statistics.median(spent_ms), tokens


def _language_model(loaded: LoadedGenerator) -> LanguageModel:
    template = loaded.chat_template
    sha256 = None if template is None else hashlib.sha256(template.encode()).hexdigest()
    return msgspec.structs.replace(msgspec.convert(loaded, LanguageModel, from_attributes=True), chat_template_sha256=sha256)


def _describe_model(work: job.RunJob, loaded: LoadedGenerator) -> Model:
    path = Path(work.case.model)
    return Model(
        name=work.case.name or recognise.language_model_name(path),
        sha256=work.sha256,
        file=path.name,
        format=path.suffix.lstrip(".").lower(),
        size_bytes=work.size_bytes,
        task="generation",
        family=loaded.architecture or "unknown",
    )
