"""Queries of a language model: prompts, and the moments of tokens.

What is asked is in `edgemeter.agent.engine.prompts`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.request_loops import FailedRequest, RequestSubject, TimedRequest, TimedRequests
from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from edgemeter.agent.generators import ConcurrentGenerator, Generator, Limits, LoadedGenerator, Query

IN_ONE = "in one piece"


class Stamps:
    """The moments of one query's stamps, in lists that were made before it; they grow if an engine gives more than it was asked for."""

    __slots__ = ("moments_ns", "taken", "tokens")

    def __init__(self, capacity: int) -> None:
        self.moments_ns = [0] * capacity
        self.tokens = [0] * capacity
        self.taken = 0

    def take(self, count: int) -> None:
        """Note the moment at which `count` more tokens are there; as a method, not `__call__`, for Python calls that without C."""
        now = time.monotonic_ns()
        if self.taken == len(self.moments_ns):
            self.moments_ns.append(0)
            self.tokens.append(0)
        self.moments_ns[self.taken] = now
        self.tokens[self.taken] = count
        self.taken += 1


@dataclass(slots=True)
class GenerationSubject(RequestSubject):
    """A loaded generator with the prompts and limits of a case.

    By their numbers the timed prompts of a case are the same in every run.
    """

    generator: Generator
    loaded: LoadedGenerator
    prompts: Prompts
    limits: Limits

    def bind_alone(self, number: int) -> Query:
        """Return the bare query after dropping every cache; see `Generator.bind`."""
        return self.generator.bind(self.prompts.of(number), self.limits)

    def bind(self, number: int, user: int | None = None) -> Query:
        """Return the bare query of a user, on the connection of that user; see `ConcurrentGenerator.bind_concurrent`."""
        return self.concurrent().bind_concurrent(self.prompts.of(number), self.limits, user)

    def concurrent(self) -> ConcurrentGenerator:
        """Return the generator as one of several queries at once; raises ConfigError if it answers one after the other."""
        if not isinstance(self.generator, ConcurrentGenerator):
            raise ConfigError(
                f"{self.loaded.package} answers one query after the other: leave out concurrency and poisson, or measure a server"
            )
        return self.generator

    def attempt(self, number: int, call: Query, arrival_ns: int | None = None) -> TimedRequest | FailedRequest:
        """Run a bare query, which arrived at `arrival_ns` or arrives now; its moments count from the arrival."""
        stamps = Stamps(self.limits.output_tokens + 1)
        start = time.monotonic_ns()
        arrival = start if arrival_ns is None else arrival_ns
        try:
            answer = call(stamps.take)
        except AnswerError as error:
            return FailedRequest(number, start, arrival, time.monotonic_ns(), error)
        if not stamps.taken:
            raise MeasurementError("a query gave no token: try another prompt length, or another model")
        tokens = answer.stamped_tokens or stamps.tokens
        moments = [moment - arrival for index, moment in enumerate(stamps.moments_ns[: stamps.taken]) for _ in range(tokens[index])]
        return TimedRequest(number, start, arrival, tuple(moments), answer)


def without_unstreamed(generation: TimedRequests) -> TimedRequests:
    """Return the generation with the answers that came in one piece as failures, where most were streamed."""
    streamed = [query for query in generation.queries if query.answer.unstreamed is None]
    if len(streamed) <= len(generation.queries) / 2:
        return generation
    failures = []
    for query in generation.queries:
        if query.answer.unstreamed is not None:
            error, end_ns = AnswerError(query.answer.unstreamed, kind=IN_ONE), query.arrival_ns + query.token_ns[-1]
            failures.append(FailedRequest(query.number, query.start_ns, query.arrival_ns, end_ns, error))
    return replace(generation, queries=streamed, failures=[*generation.failures, *failures])


def with_cached(generation: TimedRequests) -> TimedRequests:
    """Return the generation with 0 cached tokens of each answer that states none, if any states some: servers leave out a 0.

    Source: vLLM's entrypoints/openai (`if self.enable_prompt_tokens_details and num_cached_tokens`).
    """
    counts = [query.answer.cached_tokens for query in generation.queries]
    if counts.count(None) in (0, len(counts)):
        return generation
    answers = [replace(query.answer, cached_tokens=count or 0) for query, count in zip(generation.queries, counts, strict=True)]
    queries = [replace(query, answer=answer) for query, answer in zip(generation.queries, answers, strict=True)]
    return replace(generation, queries=queries)


def moments_of(queries: Sequence[TimedRequest]) -> TokenMoments:
    """Return the moments of all tokens as arrays."""
    return TokenMoments(
        first_ns=np.array([query.token_ns[0] for query in queries], dtype=np.int64),
        latency_ns=np.array([query.token_ns[-1] for query in queries], dtype=np.int64),
        output_tokens=np.array([len(query.token_ns) for query in queries], dtype=np.int64),
        token_ns=np.array([moment for query in queries for moment in query.token_ns], dtype=np.int64),
    )


def series_of(timed: TimedQueries, moments: TokenMoments, begin_ns: int) -> tuple[Series, ...]:
    """Return the raw samples of a record whose time counts from `begin_ns`."""
    return (
        *scenario.time_series(timed, begin_ns),
        samples.pack("first_token", "ns", moments.first_ns),
        samples.pack("token", "ns", moments.token_ns),
        samples.pack("output_tokens", "tokens", moments.output_tokens),
    )
