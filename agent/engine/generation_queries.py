"""Timed queries of a language model: one after the other, or as users arrive; their prompts, and the moments of their tokens.

Prompts are synthetic: seeded random tokens of exact length, another for each query, so that no cache of prefixes can help.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.case_identity import USUAL_KV_TYPE
from edgemeter.agent.contract.record import Series
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.engine.scenarios import poisson, scenario
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.timing import TimedQueries, TimingPlan, no_collection
from edgemeter.agent.generators import ChatMessage, ConcurrentGenerator, Generated, Limits, LoadedGenerator, Query

# Words for generators that take texts only; each is about one token to most tokenisers.
WORDS = (
    "time", "water", "light", "house", "river", "paper", "stone", "green", "north", "field", "night", "music", "table", "glass", "cloud",
    "bread", "metal", "round", "small", "early", "power", "board", "model", "query", "price", "garden", "summer", "window", "street",
    "market", "letter", "number", "simple", "quiet", "heavy", "bright",
)  # fmt: skip


def prompts_dataset(loaded: LoadedGenerator, lengths: str, seed: int) -> DatasetInfo:
    """Return how such prompts are named in a record: all that must be equal for two runs to have done the same work.

    These are the lengths (`512+128 tokens`) and the seed, and where they are not the usual ones the type of the cache, speculation, the
    end of a query, and that a server answered.
    """
    able = loaded.abilities
    unusual = [
        f"kv {loaded.kv_type}" if loaded.kv_type not in (None, USUAL_KV_TYPE) else "",
        f"speculative {loaded.speculative}" if loaded.speculative else "",
        "" if able.ignores_end else "to the end of text",
        "" if able.is_local else "served",
    ]
    name = ", ".join([f"synthetic {lengths}", *filter(None, unusual)])
    return DatasetInfo(name=name, sha256=hashlib.sha256(f"{name} {seed}".encode()).hexdigest(), images=0, annotated=False)


class SyntheticPrompts:
    """Makes the prompt of each query by its number."""

    def __init__(self, loaded: LoadedGenerator, prompt_tokens: int, seed: int) -> None:
        self._loaded, self._tokens, self._seed = loaded, prompt_tokens, seed
        fixed = len(loaded.first_tokens)
        if loaded.text_tokens.size and prompt_tokens <= fixed:
            raise ConfigError(f"a prompt of {prompt_tokens} tokens has no room beside the {fixed} that the model begins with: give more")

    def of(self, number: int) -> list[int] | str:
        """Return the prompt of query `number` (0, 1, ... or -1, -2, ...): tokens, or a text where the generator takes no tokens.

        The first token that is not fixed differs from those of the other queries, until the vocabulary is used up.
        """
        draw = np.random.default_rng((self._seed, abs(number), number < 0))
        text_tokens = self._loaded.text_tokens
        if not text_tokens.size:
            return " ".join([f"{number}:", *(WORDS[index] for index in draw.integers(0, len(WORDS), max(1, self._tokens - 2)))])
        fixed = list(self._loaded.first_tokens)
        begin = int(text_tokens[(self._seed * 7919 + number) % text_tokens.size])
        following = text_tokens[draw.integers(0, text_tokens.size, self._tokens - len(fixed) - 1)]
        return [*fixed, begin, *map(int, following)]


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


class QuerySource(Protocol):
    """What answers the queries: a generator, or one behind a context that was filled before; see `Generator`."""

    def encode(self, prompt: str | Sequence[ChatMessage]) -> list[int]:
        """Return the tokens of a text or a chat."""

    def bind(self, prompt: Sequence[int] | str, limits: Limits) -> Query:
        """Return the bare query."""


@dataclass(slots=True)
class GenerationSubject:
    """A loaded generator with the prompts and limits of a case.

    Timed queries are numbered from 0 and those before them from -1 down, so that the timed prompts of a case are the same in every run.
    """

    generator: QuerySource
    loaded: LoadedGenerator
    prompts: SyntheticPrompts
    limits: Limits
    warmed: int = 0

    def warm(self) -> TimedRequest:
        """Run the next query that does not count; see `query`."""
        self.warmed += 1
        return self.query(-self.warmed)

    def query(self, number: int) -> TimedRequest:
        """Run a query; raises MeasurementError if it gave no token."""
        return self.answer(number, self.generator.bind(self.prompts.of(number), self.limits))

    def answer(self, number: int, call: Query, arrival_ns: int | None = None) -> TimedRequest:
        """Run a bare query, which arrived at `arrival_ns` or arrives now; see `query`."""
        stamps = Stamps(self.limits.output_tokens + 1)
        start = time.monotonic_ns()
        answer = call(stamps)
        if not stamps.taken:
            raise MeasurementError("a query gave no token: try another prompt length, or another model")
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


def run_open_loop(subject: GenerationSubject, plan: TimingPlan) -> TimedGeneration:
    """Run queries at their scheduled arrivals, beside each other; their moments count from the arrival.

    Raises:
        ConfigError: the generator answers one query after the other.
        EdgemeterError: a query failed.
    """
    generator = subject.generator
    if not isinstance(generator, ConcurrentGenerator):
        raise ConfigError(f"{subject.loaded.package} answers one query after the other: leave scenario poisson out, or measure a server")
    offsets_ns = poisson.schedule_ns(plan).tolist()
    calls = [generator.bind_concurrent(subject.prompts.of(number), subject.limits) for number in range(len(offsets_ns))]
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
