"""Timed queries of a language model: one after the other, or as users arrive; their prompts, and the moments of their tokens.

What is asked is in `edgemeter.agent.engine.prompts`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.scenarios import poisson, scenario
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.timing import TimedQueries, no_collection
from edgemeter.agent.generators import ConcurrentGenerator, Generated, Generator, Limits, LoadedGenerator, Query

class Stamps:
    """The moments of one query's stamps, in lists that were made before it; they grow if an engine gives more than it was asked for."""

    def __init__(self, capacity: int) -> None:
        self.moments_ns = [0] * capacity
        self.tokens = [0] * capacity
        self.taken = 0

    def __call__(self, count: int) -> None:
        """Note the moment at which `count` more tokens are there."""
        now = time.monotonic_ns()
        if self.taken == len(self.moments_ns):
            self.moments_ns.append(0)
            self.tokens.append(0)
        self.moments_ns[self.taken] = now
        self.tokens[self.taken] = count
        self.taken += 1


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One query: its number, its start and its scheduled arrival (monotonic ns), the moment of each token after the arrival, its answer.

    In a closed loop a query arrives when it starts.
    """

    number: int
    start_ns: int
    arrival_ns: int
    token_ns: tuple[int, ...]
    answer: Generated

    @property
    def tpot_ns(self) -> float:
        """Return the mean time per token after the first; the time of the first where it is the only one."""
        steps = len(self.token_ns) - 1
        return (self.token_ns[-1] - self.token_ns[0]) / steps if steps else float(self.token_ns[0])


@dataclass(slots=True)
class GenerationSubject:
    """A loaded generator with the prompts and limits of a case.

    Timed queries are numbered from 0 and those before them from -1 down, so that the timed prompts of a case are the same in every run.
    """

    generator: Generator
    loaded: LoadedGenerator
    prompts: Prompts
    limits: Limits
    warmed: int = 0

    def warm(self) -> TimedRequest:
        """Run the next query that does not count; see `query`."""
        self.warmed += 1
        return self.query(-self.warmed)

    def query(self, number: int) -> TimedRequest:
        """Run a query; raises MeasurementError if it gave no token."""
        return self.answer(number, self.generator.bind(self.prompts.of(number), self.limits_of(number)))

    def limits_of(self, number: int) -> Limits:
        """Return when a query ends."""
        return self.prompts.limits(number, self.limits)

    def answer(self, number: int, call: Query, arrival_ns: int | None = None) -> TimedRequest:
        """Run a bare query, which arrived at `arrival_ns` or arrives now; see `query`."""
        stamps = Stamps(self.limits.output_tokens + 1)
        start = time.monotonic_ns()
        answer = call(stamps)
        if not stamps.taken:
            raise MeasurementError("a query gave no token: try another prompt length, or another model")
        self.prompts.answered(number, answer)
        arrival = start if arrival_ns is None else arrival_ns
        moments = [moment - arrival for index, moment in enumerate(stamps.moments_ns[: stamps.taken]) for _ in range(stamps.tokens[index])]
        return TimedRequest(number, start, arrival, tuple(moments), answer)


@dataclass(frozen=True, slots=True)
class TimedGeneration:
    """The timed queries in the order of arrival, and when the first was due (monotonic ns).

    `unserved` arrivals found no room; `overlap`: queries were answered beside each other.
    """

    queries: Sequence[TimedRequest]
    begin_ns: int
    unserved: int = 0
    overlap: bool = False

    def timed(self) -> TimedQueries:
        """Return them as every other scenario does."""
        starts_ns, arrivals_ns, latency_ns = np.array(
            [(query.start_ns, query.arrival_ns, query.token_ns[-1]) for query in self.queries], dtype=np.int64
        ).T.copy()
        return TimedQueries(
            starts_ns=starts_ns,
            latency_ns=latency_ns,
            kept={},
            begin_ns=self.begin_ns,
            end_ns=int((arrivals_ns + latency_ns).max()),
            arrivals_ns=arrivals_ns if self.overlap else None,
            unserved=self.unserved,
            overlap=self.overlap,
        )


def run_queries(subject: GenerationSubject, count: int, seconds: float) -> TimedGeneration:
    """Run queries one after the other until both `count` and `seconds` are reached; caches are dropped before each, outside the clock."""
    requests: list[TimedRequest] = []
    with no_collection():
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        while len(requests) < count or time.monotonic_ns() < deadline:
            requests.append(subject.query(len(requests)))
    return TimedGeneration(requests, requests[0].start_ns)


def run_open_loop(subject: GenerationSubject, offsets_ns: Sequence[int]) -> TimedGeneration:
    """Run queries at these moments after the beginning, beside each other; their moments count from the arrival.

    Raises:
        ConfigError: the generator answers one query after the other.
        EdgemeterError: a query failed.
    """
    generator = subject.generator
    if not isinstance(generator, ConcurrentGenerator):
        raise ConfigError(f"{subject.loaded.package} answers one query after the other: use scenario single_stream, or measure a server")
    calls = [generator.bind_concurrent(subject.prompts.of(number), subject.limits_of(number)) for number in range(len(offsets_ns))]
    begin_ns, requests = poisson.serve(offsets_ns, lambda number, arrival_ns: subject.answer(number, calls[number], arrival_ns))
    return TimedGeneration(requests, begin_ns, unserved=len(offsets_ns) - len(requests), overlap=True)


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
