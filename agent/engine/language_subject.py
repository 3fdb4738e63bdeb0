"""A language model with its prompts, and the time of each token.

The prompts are in `edgemeter.agent.engine.prompts`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgemeter.agent import generators
from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import Model, Tensor
from edgemeter.agent.contract.record_generation import (
    EMPTY_ANSWER,
    SYNTHETIC,
    UNSTREAMED,
    Generation,
    LanguageModel,
)
from edgemeter.agent.engine import job
from edgemeter.agent.engine.loading import describe_runtime, options_of
from edgemeter.agent.engine.output_check import check_answers
from edgemeter.agent.engine.prompts.case_prompts import CasePrompts
from edgemeter.agent.engine.scenarios import generation_statistics, poisson
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments, lengths_of
from edgemeter.agent.engine.scenarios.timing import FailedQuery, TimedQueries, TimingPlan
from edgemeter.agent.engine.stopwatch import Stopwatch
from edgemeter.agent.engine.subject import ARRIVAL, Emit, Results, Subject
from edgemeter.agent.generators import ConcurrentGenerator, Generated, Limits, Query
from edgemeter.agent.recognition import recognise

IN_ONE = "in one piece"
NOTHING_TO_SCORE = "the prompts are synthetic: there is nothing to score"


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """The answer to a query, with the time of each token, monotonic ns."""

    generated: Generated
    token_ns: tuple[int, ...]


class LanguageSubject(Subject):
    """A loaded generator with the prompts of a case.

    The same number has the same prompt in every run.
    """

    has_tokens = True

    def __init__(self, work: job.RunJob) -> None:
        self.work, self.case = work, work.case
        self.generator = generators.create(work.case.runtime)
        self.is_concurrent = isinstance(self.generator, ConcurrentGenerator)
        self.answers: dict[int, TextAnswer] = {}
        self._arrivals: dict[int, Callable[[], Any]] = {}

    def load(self) -> None:
        """Prepare the prompts, whose lengths loading needs, and load the model.

        See `Subject.load`.
        """
        case = self.case
        self.case_prompts = prompts = CasePrompts.of_case(case)
        self.limits = Limits(prompts.output_tokens, ignore_end=prompts.file is None)
        self.loaded = self.generator.load(
            Path(case.model), options_of(case), prompts.context_tokens
        )
        self.import_ns, self.load_ns, self.process = (
            self.loaded.import_ns,
            self.loaded.load_ns,
            self.loaded.process,
        )
        self.prompt = prompts.of(self.loaded)

    def plan(self, work: job.RunJob) -> TimingPlan:
        """Return the plan; the questions of a file are asked in whole passes."""
        return replace(super().plan(work), pass_queries=self.case_prompts.pass_queries)

    def ready(self, plan: TimingPlan) -> None:
        """Prepare the requests of arrivals, outside their time."""
        if plan.rate_per_s is not None:
            self._arrivals = {
                number: self.bind(number, ARRIVAL)
                for number in range(len(poisson.schedule_ns(plan)))
            }

    def bind(
        self, number: int, user: int | None = None
    ) -> Callable[[], tuple[Generated, list[tuple[int, int]]]]:
        """Return the bare query.

        A query that is asked alone clears every cache first (see `Generator.bind`).
        """
        if user == ARRIVAL and number in self._arrivals:
            return self._arrivals.pop(number)
        query: Query = (
            self.generator.bind(self.prompt(number), self.limits)
            if user is None or not isinstance(self.generator, ConcurrentGenerator)
            else self.generator.bind_concurrent(
                self.prompt(number), self.limits, None if user == ARRIVAL else user
            )
        )
        # Times, each with the number of tokens that came.
        stamps: list[tuple[int, int]] = []
        clock = time.monotonic_ns
        return lambda: (query(lambda count: stamps.append((clock(), count))), stamps)

    def finish(
        self, number: int, result: tuple[Generated, list[tuple[int, int]]], end_ns: int
    ) -> int:
        """Keep the answer with the times of its tokens, and return the last."""
        del end_ns
        generated, stamps = result
        if not stamps:
            raise MeasurementError(
                "a query gave no token: try another prompt length, or another model"
            )
        counts = generated.stamped_tokens or [count for _, count in stamps]
        token_ns = tuple(
            moment for (moment, _), count in zip(stamps, counts, strict=False) for _ in range(count)
        )
        self.answers[number] = TextAnswer(generated, token_ns)
        return token_ns[-1]

    def paces_ns(self, queries: Sequence[tuple[int, int, int]]) -> tuple[float, ...]:
        """Return the mean times to the first token and for each further one.

        For a single token, the first comes twice.
        """
        first_ns, each_ns = [], []
        for number, start_ns, _ in queries:
            token_ns = self.answers[number].token_ns
            first_ns.append(token_ns[0] - start_ns)
            steps = len(token_ns) - 1
            each_ns.append((token_ns[-1] - token_ns[0]) / steps if steps else first_ns[-1])
        return sum(first_ns) / len(first_ns), sum(each_ns) / len(each_ns)

    def results(self, timed: TimedQueries, emit: Emit) -> Results:
        """Return the model, the times of its tokens, and whether its answers are repeatable."""
        del emit
        loaded, prompts = self.loaded, self.case_prompts
        answers = with_cached({number: self.answers[number] for number in timed.numbers.tolist()})
        timed = without_unstreamed(timed, answers)
        answers = {number: answers[number] for number in timed.numbers.tolist()}
        moments = moments_of(timed, answers)
        generated = {number: answer.generated for number, answer in answers.items()}
        described, no_times = self._generation([*generated.values()], moments, timed)
        check = check_answers(generated, self._repeat, loaded.abilities, overlap=timed.overlap)
        accuracy, no_accuracy = self._score(answers, timed.failures)
        # The prompts of a file differ in length.
        prompt_tokens = (
            None
            if described.prompts != SYNTHETIC
            else next(iter(answers.values())).generated.prompt_tokens
        )
        path = Path(self.case.model)
        return Results(
            queries=timed,
            model=Model(
                name=self.case.name or recognise.language_model_name(path),
                sha256=self.work.sha256,
                file=path.name,
                size_bytes=self.work.size_bytes,
                task="generation",
            ),
            runtime=describe_runtime(self.case, loaded),
            precision=loaded.precision or "unknown",
            inputs=(
                Tensor(
                    name="prompt",
                    shape=(1,) if prompt_tokens is None else (1, prompt_tokens),
                    dtype="int32",
                ),
            ),
            outputs=(
                job.OutputTensor(
                    name="output", shape=(1, self.limits.output_tokens), dtype="int32"
                ),
            ),
            dataset=prompts.dataset(loaded),
            output_check=check,
            accuracy=accuracy,
            reasons={
                name: reason
                for name, reason in (("accuracy", no_accuracy), (UNSTREAMED, no_times))
                if reason
            },
            generation=described,
            series=(
                samples.pack("first_token", "ns", moments.first_ns),
                samples.pack("token", "ns", moments.token_ns),
                samples.pack("output_tokens", "tokens", moments.output_tokens),
            ),
        )

    def _repeat(self, number: int) -> Generated | None:
        return self.answers[number].generated if Stopwatch(self).ask(number) is None else None

    def _score(
        self, answers: dict[int, TextAnswer], failures: Sequence[FailedQuery]
    ) -> tuple[Accuracy | None, str | None]:
        """Return the score of the answers to the questions of a file; else None and why."""
        if self.case_prompts.file is None:
            return None, NOTHING_TO_SCORE
        texts = [(number, answer.generated.text) for number, answer in answers.items()]
        # A model that ends its text at once gave an empty answer.
        texts += [(failed.number, "") for failed in failures if failed.kind == EMPTY_ANSWER]
        return self.case_prompts.file.score(self.case.seed, sorted(texts))

    def _generation(
        self, answers: Sequence[Generated], moments: TokenMoments, timed: TimedQueries
    ) -> tuple[Generation, str | None]:
        """Return the part of the record, and why it has no times of single tokens, or None."""
        loaded, output_tokens = self.loaded, self.limits.output_tokens
        prompt_counts = np.array(
            [answer.prompt_tokens for answer in answers if answer.prompt_tokens is not None]
        )
        states_prompts = prompt_counts.size == len(answers)
        processed = int(prompt_counts.sum()) - sum(answer.cached_tokens or 0 for answer in answers)
        hidden = max((answer.hidden_reasoning_tokens or 0 for answer in answers), default=0)
        # Servers omit the counts for an answer without drafts.
        drafted = sum(answer.drafted_tokens or 0 for answer in answers)
        # If reasoning came before the first token, the time to it is not the prefill.
        prefilled = processed if states_prompts and (timed.overlap or not hidden) else None
        return generation_statistics.with_times(
            Generation(
                prompt_tokens=_most([answer.prompt_tokens for answer in answers]),
                prompt_lengths=lengths_of(prompt_counts)
                if states_prompts and np.ptp(prompt_counts)
                else None,
                output_tokens=output_tokens,
                **self.case_prompts.described(),
                counts=loaded.abilities.counts,
                is_local=loaded.abilities.is_local,
                cached_tokens=_most([answer.cached_tokens for answer in answers]),
                ended_early=moments.ended_early(output_tokens),
                hidden_reasoning_tokens=hidden or None,
                template_tokens=loaded.template_tokens or None,
                speculative=loaded.speculative,
                accepted_ratio=sum(answer.accepted_tokens or 0 for answer in answers) / drafted
                if drafted
                else None,
                model=msgspec.convert(loaded, LanguageModel, from_attributes=True),
            ),
            moments,
            prefilled,
            timed,
            next((answer.unstreamed for answer in answers if answer.unstreamed), None),
        )

    def close(self) -> None:
        """Let the model go."""
        self.generator.close()


def _most(counts: Sequence[int | None]) -> int | None:
    """Return the largest count; None if one is unknown."""
    values = [count for count in counts if count is not None]
    return max(values) if len(values) == len(counts) else None


def without_unstreamed(timed: TimedQueries, answers: dict[int, TextAnswer]) -> TimedQueries:
    """Return the queries, with the few that were not streamed as failures.

    If most were streamed, those whose answers came in one piece become failures.
    """
    is_streamed = np.array(
        [answers[number].generated.unstreamed is None for number in timed.numbers.tolist()]
    )
    if np.count_nonzero(is_streamed) <= is_streamed.size / 2:
        return timed
    failures = [
        FailedQuery(
            IN_ONE,
            int(timed.numbers[index]),
            int(timed.arrived_ns[index]),
            int(timed.arrived_ns[index] + timed.latency_ns[index]),
        )
        for index in np.flatnonzero(~is_streamed)
    ]
    return replace(timed.only(is_streamed), failures=[*timed.failures, *failures])


def with_cached(answers: dict[int, TextAnswer]) -> dict[int, TextAnswer]:
    """Return the answers with 0 for an unknown number of cached tokens.

    It is so if any answer has one: servers omit a 0.

    Source: vLLM's entrypoints/openai (`if self.enable_prompt_tokens_details and
    num_cached_tokens`).
    """
    counts = [answer.generated.cached_tokens for answer in answers.values()]
    if counts.count(None) in (0, len(counts)):
        return answers
    return {
        number: replace(
            answer,
            generated=replace(answer.generated, cached_tokens=answer.generated.cached_tokens or 0),
        )
        for number, answer in answers.items()
    }


def moments_of(timed: TimedQueries, answers: dict[int, TextAnswer]) -> TokenMoments:
    """Return the times of all tokens as arrays, each from the arrival of its query."""
    lengths = np.array(
        [len(answers[number].token_ns) for number in timed.numbers.tolist()], np.int64
    )
    absolute_ns = np.array(
        [moment for number in timed.numbers.tolist() for moment in answers[number].token_ns],
        np.int64,
    )
    token_ns = absolute_ns - np.repeat(timed.arrived_ns, lengths)
    return TokenMoments(token_ns[np.cumsum(lengths) - lengths], timed.latency_ns, lengths, token_ns)
