"""Timed queries of a language model: one after the other, of several users, or at arrivals; prompts, and the moments of tokens.

What is asked is in `edgemeter.agent.engine.prompts`.
"""

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import Series
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.conversations import Conversations
from edgemeter.agent.engine.prompts.trace import TracePrompts
from edgemeter.agent.engine.scenarios import concurrent, poisson, scenario
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments
from edgemeter.agent.engine.scenarios.timing import TimedQueries, no_collection
from edgemeter.agent.generators import ChatMessage, ConcurrentGenerator, Generated, Limits, LoadedGenerator, Prompt, Query

# A server that is busy asks to wait; longer than this nobody does.
LONGEST_WAIT_S = 60.0
WARM_ATTEMPTS = 5
GONE_WAIT_S = 0.1
BUSY = ("http 429", "http 503")
IN_ONE = "in one piece"


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


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """One query without an answer: its number, start, scheduled arrival and end (monotonic ns), and the error."""

    number: int
    start_ns: int
    arrival_ns: int
    end_ns: int
    error: AnswerError

    @property
    def kind(self) -> str:
        """The kind of the failure."""
        return self.error.kind


class QuerySource(Protocol):
    """A source of answers: a generator, or one behind a context that was filled before; see `Generator`."""

    def encode(self, prompt: str | Sequence[ChatMessage]) -> list[int]:
        """Return the tokens of a text or a chat."""

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Return the bare query."""


@dataclass(slots=True)
class GenerationSubject:
    """A loaded generator with the prompts and limits of a case.

    Timed queries are numbered from 0 and those before them from -1 down, so that the timed prompts of a case are the same in every run.
    """

    generator: QuerySource
    loaded: LoadedGenerator
    prompts: Prompts
    limits: Limits
    warmed: int = 0

    def warm(self) -> TimedRequest:
        """Run the next query that does not count; one that a server does not answer is tried again as another."""
        for attempts in itertools.count(1):
            self.warmed += 1
            request = self.attempt_next(-self.warmed)
            if isinstance(request, TimedRequest):
                return request
            if attempts == WARM_ATTEMPTS:
                raise request.error
            wait_after(request)
        raise AssertionError

    def attempt_next(self, number: int) -> "TimedRequest | FailedRequest":
        """Bind and attempt query `number` after dropping every cache; see `attempt`."""
        start_ns = time.monotonic_ns()
        try:
            call = self.generator.bind(self.prompts.of(number), self.prompts.limits(number, self.limits))
        except AnswerError as error:
            return FailedRequest(number, start_ns, start_ns, time.monotonic_ns(), error)
        return self.attempt(number, call)

    def warm_users(self, users: int) -> list[TimedRequest]:
        """Run the next query of each of several users, all at once; raises MeasurementError if none is answered."""
        first = self.warmed + 1
        self.warmed += users
        _, outcomes = concurrent.serve(
            users, users, 0.0, lambda number, user: self.attempt(-first - number, self.bind(-first - number, user))
        )
        return _parted(outcomes)[0]

    def bind(self, number: int, user: int | None = None) -> Query:
        """Return the bare query of a user, on the connection of that user; see `ConcurrentGenerator.bind_concurrent`."""
        return self.concurrent().bind_concurrent(self.prompts.of(number), self.prompts.limits(number, self.limits), user)

    def concurrent(self) -> ConcurrentGenerator:
        """Return the generator as one of several queries at once; raises ConfigError if it answers one after the other."""
        if not isinstance(self.generator, ConcurrentGenerator):
            raise ConfigError(
                f"{self.loaded.package} answers one query after the other: leave out concurrency and poisson, or measure a server"
            )
        return self.generator

    def attempt(self, number: int, call: Query, arrival_ns: int | None = None) -> "TimedRequest | FailedRequest":
        """Run a bare query, which arrived at `arrival_ns` or arrives now; its moments count from the arrival."""
        stamps = Stamps(self.limits.output_tokens + 1)
        start = time.monotonic_ns()
        arrival = start if arrival_ns is None else arrival_ns
        try:
            answer = call(stamps)
        except AnswerError as error:
            return FailedRequest(number, start, arrival, time.monotonic_ns(), error)
        if not stamps.taken:
            raise MeasurementError("a query gave no token: try another prompt length, or another model")
        self.prompts.answered(number, answer)
        tokens = answer.stamped_tokens or stamps.tokens
        moments = [moment - arrival for index, moment in enumerate(stamps.moments_ns[: stamps.taken]) for _ in range(tokens[index])]
        return TimedRequest(number, start, arrival, tuple(moments), answer)


def wait_after(failure: FailedRequest) -> tuple[int, int] | None:
    """Wait as long as the server asked for, `LONGEST_WAIT_S` at most; return when that began and ended, None if it asked for nothing.

    A server that is gone asks for nothing, nor do some that are busy; users who tried on at once would fail 10,000 times a second.
    """
    if not failure.error.retry_after_s:
        if failure.kind in BUSY or isinstance(failure.error.__cause__, ConnectionRefusedError):
            time.sleep(GONE_WAIT_S)
        return None
    begin_ns = time.monotonic_ns()
    time.sleep(min(failure.error.retry_after_s, LONGEST_WAIT_S))
    return begin_ns, time.monotonic_ns()


@dataclass(frozen=True, slots=True)
class TimedGeneration:
    """The timed queries in the order of arrival, and when the first was due (monotonic ns).

    `unserved` arrivals found no room; `overlap`: queries were answered beside each other, in a closed loop those of so many `users`.
    `failures` are in no statistic, `waits_ns` (begin and end) are the pauses that a server asked for. The first query of each of several
    users is not among these: it was answered at `ramp_up_ns`.
    """

    queries: Sequence[TimedRequest]
    begin_ns: int
    unserved: int = 0
    overlap: bool = False
    users: int | None = None
    failures: Sequence[FailedRequest] = ()
    waits_ns: Sequence[tuple[int, int]] = ()
    ramp_up_ns: Sequence[int] = ()

    def timed(self) -> TimedQueries:
        """Return them as every other scenario does."""
        starts_ns, arrivals_ns, latency_ns = np.array(
            [(query.start_ns, query.arrival_ns, query.token_ns[-1]) for query in self.queries], dtype=np.int64
        ).T.copy()
        end_ns = int((arrivals_ns + latency_ns).max())
        return TimedQueries(
            starts_ns=starts_ns,
            latency_ns=latency_ns,
            kept={},
            begin_ns=self.begin_ns,
            end_ns=end_ns,
            arrivals_ns=arrivals_ns if self.overlap and self.users is None else None,
            unserved=self.unserved,
            overlap=self.overlap,
            users=self.users,
            # A wait may outlast the last query.
            pauses_ns=np.minimum(np.array(self.waits_ns, dtype=np.int64).reshape(-1, 2), end_ns),
            ramp_up_ns=np.array(self.ramp_up_ns, dtype=np.int64),
        )


def run_queries(subject: GenerationSubject, count: int, seconds: float, pass_queries: int = 1) -> TimedGeneration:
    """Run queries one after the other until both `count` and `seconds` are reached; caches are dropped before each, outside the clock.

    After a query that failed comes the next, once the server's time to wait is over, which counts towards nothing. The number of those
    that were asked, failed ones too, is a multiple of `pass_queries`.

    Raises:
        MeasurementError: most queries fail.
    """
    requests: list[TimedRequest] = []
    failures: list[FailedRequest] = []
    waits_ns: list[tuple[int, int]] = []
    with no_collection():
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        while len(requests) < count or (len(requests) + len(failures)) % pass_queries or time.monotonic_ns() < deadline:
            request = subject.attempt_next(len(requests) + len(failures))
            if isinstance(request, TimedRequest):
                requests.append(request)
                continue
            failures.append(request)
            if len(failures) > len(requests) + concurrent.GIVE_UP_FAILURES:
                raise_failures(requests, failures)
            if (wait_ns := wait_after(request)) is not None:
                waits_ns.append(wait_ns)
                deadline += wait_ns[1] - wait_ns[0]
    begin_ns = requests[0].start_ns
    return TimedGeneration(requests, begin_ns, failures=failures, waits_ns=[wait_ns for wait_ns in waits_ns if wait_ns[0] > begin_ns])


def raise_failures(requests: Sequence[TimedRequest], failures: Sequence[FailedRequest]) -> NoReturn:
    """Raise that too many queries failed, with their kinds and the last reason."""
    kinds = ", ".join(f"{kind}: {count}" for kind, count in Counter(failure.kind for failure in failures).most_common())
    raise MeasurementError(
        f"{len(failures)} of {len(failures) + len(requests)} queries were not answered ({kinds}): {failures[-1].error}"
    ) from failures[-1].error


def run_open_loop(subject: GenerationSubject, offsets_ns: Sequence[int]) -> TimedGeneration:
    """Run queries at these moments after the beginning, beside each other; their moments count from the arrival.

    Raises:
        ConfigError: the generator answers one query after the other.
        EdgemeterError: a query failed.
    """
    calls = [subject.bind(number) for number in range(len(offsets_ns))]
    begin_ns, outcomes = poisson.serve(offsets_ns, lambda number, arrival_ns: subject.attempt(number, calls[number], arrival_ns))
    requests, failures = _parted(outcomes)
    unserved = len(offsets_ns) - len(outcomes)
    return TimedGeneration(requests, begin_ns, unserved, overlap=True, failures=failures)


def run_users(subject: GenerationSubject, users: int, count: int, seconds: float, pass_queries: int = 1) -> TimedGeneration:
    """Run the queries of so many users, each of whom has one at a time; see `run_queries`, and `run_open_loop` for what is raised.

    The first of each of several, sent at once, is numbered as those before the timed ones; if it fails, that counts as nothing.
    """
    waits_ns: list[tuple[int, int]] = []
    ramp_up_ns: list[int] = []
    before = subject.warmed + 1
    subject.warmed += users

    def attempt(number: int, user: int) -> TimedRequest | FailedRequest:
        outcome = subject.attempt(number, subject.bind(number, user))
        if isinstance(outcome, FailedRequest) and (wait_ns := wait_after(outcome)) is not None:
            waits_ns.append(wait_ns)
        return outcome

    def ramp_up(user: int) -> None:
        if isinstance(first := attempt(-before - user, user), TimedRequest):
            ramp_up_ns.append(first.start_ns + first.token_ns[-1])

    queries = concurrent.queries_in_all(count, users)
    begin_ns, outcomes = concurrent.serve(users, queries, seconds, attempt, ramp_up if users > 1 else None, _has_failed, pass_queries)
    requests, failures = _parted(outcomes)
    return TimedGeneration(
        requests, begin_ns, overlap=True, users=users, failures=failures, waits_ns=sorted(waits_ns), ramp_up_ns=sorted(ramp_up_ns)
    )


def _has_failed(outcome: TimedRequest | FailedRequest) -> bool:
    return isinstance(outcome, FailedRequest)


def _parted(outcomes: Sequence[TimedRequest | FailedRequest]) -> tuple[list[TimedRequest], list[FailedRequest]]:
    """Return the answered requests, and those that failed; raises the error of the first where all did."""
    requests = [outcome for outcome in outcomes if isinstance(outcome, TimedRequest)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, FailedRequest)]
    if not requests:
        raise_failures(requests, failures)
    return requests, failures


def without_unstreamed(generation: TimedGeneration) -> TimedGeneration:
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


def with_cached(generation: TimedGeneration) -> TimedGeneration:
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
    """Return the moments of all tokens as arrays; no picture's where no prompt has one."""
    encode_ns = _stated([query.answer.image_encode_ns for query in queries])
    return TokenMoments(
        first_ns=np.array([query.token_ns[0] for query in queries], dtype=np.int64),
        latency_ns=np.array([query.token_ns[-1] for query in queries], dtype=np.int64),
        output_tokens=np.array([len(query.token_ns) for query in queries], dtype=np.int64),
        image_encode_ns=encode_ns if encode_ns is not None and encode_ns.any() else None,
        token_ns=np.array([moment for query in queries for moment in query.token_ns], dtype=np.int64),
    )


def _stated(values: Sequence[int | None]) -> NDArray[np.int64] | None:
    """Return values that all queries state; None where one does not."""
    return None if not values or None in values else np.array(values, dtype=np.int64)


def counts_of(queries: Sequence[TimedRequest], prompts: Prompts, limits: Limits) -> dict[str, NDArray[np.int64]]:
    """Return the counts of each query, of turns and of the requests of a trace, as far as they are stated."""
    if isinstance(prompts, TracePrompts):
        return {"asked_tokens": np.array([prompts.limits(query.number, limits).output_tokens for query in queries], np.int64)}
    if not isinstance(prompts, Conversations):
        return {}
    counts = {
        "turn": _stated([prompts.turn_of(query.number) + 1 for query in queries]),
        "prompt_tokens": _stated([query.answer.prompt_tokens for query in queries]),
        "cached_tokens": _stated([query.answer.cached_tokens for query in queries]),
    }
    return {name: values for name, values in counts.items() if values is not None}


def series_of(timed: TimedQueries, moments: TokenMoments, counts: Mapping[str, NDArray[np.int64]], begin_ns: int) -> tuple[Series, ...]:
    """Return the raw samples of a record whose time counts from `begin_ns`."""
    return (
        *scenario.time_series(timed, begin_ns),
        samples.pack("first_token", "ns", moments.first_ns),
        samples.pack("token", "ns", moments.token_ns),
        samples.pack("output_tokens", "tokens", moments.output_tokens),
        *(samples.pack(name, "turns" if name == "turn" else "tokens", values) for name, values in counts.items()),
        *([] if moments.image_encode_ns is None else [samples.pack("image_encode", "ns", moments.image_encode_ns)]),
    )
