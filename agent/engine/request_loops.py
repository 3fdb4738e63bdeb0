"""Requests to what may leave some unanswered: one after the other, of several users, or at arrivals; before them the warm-up.

A query of a language model has a moment for each token, one of a served model a single moment: its end.
"""

import itertools
import statistics
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from edgemeter.agent.base.errors import AnswerError, MeasurementError
from edgemeter.agent.energy.window import Window
from edgemeter.agent.engine.scenarios import concurrent, poisson
from edgemeter.agent.engine.scenarios.timing import NONE_WITHIN, TimedQueries, TimingPlan, no_collection
from edgemeter.agent.engine.warm_up import Warmed, looks_settled
from edgemeter.agent.runtimes import Array, Runtime

# A server that is busy asks to wait; longer than this nobody does.
LONGEST_WAIT_S = 60.0
WARM_ATTEMPTS = 10
GONE_WAIT_S = 0.1
# The warm-up ends with its limit, but has at least this many whole queries; the cold one before it does not count.
FEWEST_WARM_UP = 2
SHORTEST_WARM_UP_S = 0.5
HALVES_QUERIES = 4
LAST_TWO_RATIO = 0.02


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One query: its number, its start and its scheduled arrival (monotonic ns), the moment of each token after the arrival, its answer.

    In a closed loop a query arrives when it starts. The last moment is that of the whole answer.
    """

    number: int
    start_ns: int
    arrival_ns: int
    token_ns: tuple[int, ...]
    answer: Any = None

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


@dataclass(slots=True, kw_only=True)
class RequestSubject(ABC):
    """The queries that are asked, by number: timed ones are numbered from 0 and those before them from -1 down."""

    warmed: int = 0

    @abstractmethod
    def bind_alone(self, number: int) -> Callable[..., Any]:
        """Return the bare query of one who asks alone."""

    @abstractmethod
    def bind(self, number: int, user: int | None = None) -> Callable[..., Any]:
        """Return the bare query of a user, or of an arrival, which is called in a thread of its own."""

    @abstractmethod
    def attempt(self, number: int, call: Callable[..., Any], arrival_ns: int | None = None) -> TimedRequest | FailedRequest:
        """Run a bare query, which arrived at `arrival_ns` or arrives now; its moments count from the arrival."""

    def attempt_next(self, number: int, user: int | None = None) -> TimedRequest | FailedRequest:
        """Bind and attempt query `number`: alone, or of a user beside others."""
        bind = partial(self.bind_alone, number) if user is None else partial(self.bind, number, user)
        return attempt_bound(number, bind, self.attempt)

    def warm(self) -> TimedRequest:
        """Run the next query that does not count; one that a server does not answer is tried again as another."""
        return until_answered(self._attempt_warm)

    def _attempt_warm(self) -> TimedRequest | FailedRequest:
        self.warmed += 1
        return self.attempt_next(-self.warmed)

    def warm_users(self, users: int, each: int = 1) -> list[TimedRequest]:
        """Run the next queries of several users at once, so many of each on average; raises MeasurementError if none is answered."""
        first = self.warmed + 1
        self.warmed += users * each
        _, outcomes = concurrent.serve(users, users * each, 0.0, lambda number, user: self.attempt_next(-first - number, user))
        return _parted(outcomes)[0]


def until_answered(attempt: Callable[[], TimedRequest | FailedRequest]) -> TimedRequest:
    """Return the first attempt that a server answers; raises the error of the last of `WARM_ATTEMPTS`."""
    for attempts in itertools.count(1):
        if isinstance(request := attempt(), TimedRequest):
            return request
        if attempts == WARM_ATTEMPTS:
            raise request.error
        wait_after(request.error)
    raise AssertionError


def attempt_call(number: int, call: Callable[[], object], arrival_ns: int | None = None) -> TimedRequest | FailedRequest:
    """Make a bare call whose answer has one moment: its end, which counts from `arrival_ns` or from now."""
    start_ns = time.monotonic_ns()
    arrival_ns = start_ns if arrival_ns is None else arrival_ns
    try:
        answer = call()
    except AnswerError as error:
        return FailedRequest(number, start_ns, arrival_ns, time.monotonic_ns(), error)
    return TimedRequest(number, start_ns, arrival_ns, (time.monotonic_ns() - arrival_ns,), answer)


def attempt_bound(
    number: int,
    bind: Callable[[], Callable[..., Any]],
    attempt: Callable[[int, Callable[..., Any]], TimedRequest | FailedRequest] = attempt_call,
) -> TimedRequest | FailedRequest:
    """Bind and attempt a call; a server that cannot be reached has failed it."""
    start_ns = time.monotonic_ns()
    try:
        call = bind()
    except AnswerError as error:
        return FailedRequest(number, start_ns, start_ns, time.monotonic_ns(), error)
    return attempt(number, call)


def answered_ns(bind: Callable[[], Callable[[], object]]) -> int:
    """Return how long the bare call takes that `bind` returns, ns; one that a server does not answer is made again."""
    return until_answered(partial(attempt_bound, 0, bind)).token_ns[0]


def outputs_of(runtime: Runtime, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of a call of `inputs`; one that a server does not answer, or not as it declares, is made again."""

    def bind() -> Callable[[], list[Array]]:
        call = runtime.bind(inputs)

        def query() -> list[Array]:
            call()
            return runtime.outputs()

        return query

    outputs: list[Array] = until_answered(partial(attempt_bound, 0, bind)).answer
    return outputs


def wait_after(error: AnswerError) -> tuple[int, int] | None:
    """Wait as long as the server asked for, `LONGEST_WAIT_S` at most; return when that began and ended, None if there was no reason to.

    A server that is gone asks for nothing, nor do some that are busy; users who tried on at once would fail 10,000 times a second.
    """
    if not error.retry_after_s and not error.is_busy:
        return None
    begin_ns = time.monotonic_ns()
    time.sleep(min(error.retry_after_s or GONE_WAIT_S, LONGEST_WAIT_S))
    return begin_ns, time.monotonic_ns()


@dataclass(frozen=True, slots=True)
class TimedRequests:
    """The timed queries in the order of arrival, and when the first was due (monotonic ns).

    `unserved` arrivals found no room; `overlap`: queries were answered beside each other, in a closed loop those of so many `users`.
    `failures` are in no statistic, `waits_ns` (begin and end) are the pauses after refusals. The first query of each of several
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

    def within(self, window: Window) -> "TimedRequests":
        """Return what lies wholly within a window; raises MeasurementError if no query does."""
        queries = [
            query
            for query in self.queries
            if query.arrival_ns >= window.start_ns and query.arrival_ns + query.token_ns[-1] <= window.end_ns
        ]
        if not queries:
            raise MeasurementError(NONE_WITHIN.format(seconds=window.length_ns / 1e9))
        failures = [failure for failure in self.failures if window.start_ns <= failure.arrival_ns and failure.end_ns <= window.end_ns]
        waits_ns = [wait_ns for wait_ns in self.waits_ns if window.start_ns <= wait_ns[0] and wait_ns[1] <= window.end_ns]
        return replace(self, queries=queries, begin_ns=max(self.begin_ns, window.start_ns), failures=failures, waits_ns=waits_ns)

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
            failures=dict(Counter(failure.kind for failure in self.failures)),
        )


def run(subject: RequestSubject, plan: TimingPlan) -> TimedRequests:
    """Run the queries of a plan: of its users, at its arrivals, or one after the other."""
    if plan.users is not None:
        return run_users(subject, plan.users, plan.queries, plan.seconds, plan.pass_queries)
    if plan.rate_per_s is not None:
        return run_open_loop(subject, poisson.schedule_ns(plan).tolist())
    return run_queries(subject, plan.queries, plan.seconds, plan.pass_queries)


def run_queries(subject: RequestSubject, count: int, seconds: float, pass_queries: int = 1) -> TimedRequests:
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
            if (wait_ns := wait_after(request.error)) is not None:
                waits_ns.append(wait_ns)
                deadline += wait_ns[1] - wait_ns[0]
    begin_ns = requests[0].start_ns
    return TimedRequests(requests, begin_ns, failures=failures, waits_ns=[wait_ns for wait_ns in waits_ns if wait_ns[0] > begin_ns])


def raise_failures(requests: Sequence[TimedRequest], failures: Sequence[FailedRequest]) -> NoReturn:
    """Raise that too many queries failed, with their kinds and the last reason."""
    kinds = ", ".join(f"{kind}: {count}" for kind, count in Counter(failure.kind for failure in failures).most_common())
    raise MeasurementError(
        f"{len(failures)} of {len(failures) + len(requests)} queries were not answered ({kinds}): {failures[-1].error}"
    ) from failures[-1].error


def run_open_loop(subject: RequestSubject, offsets_ns: Sequence[int]) -> TimedRequests:
    """Run queries at these moments after the beginning, beside each other; their moments count from the arrival.

    Raises:
        ConfigError: it answers one query after the other.
        EdgemeterError: a query failed.
    """
    calls = [subject.bind(number) for number in range(len(offsets_ns))]
    begin_ns, outcomes = poisson.serve(offsets_ns, lambda number, arrival_ns: subject.attempt(number, calls[number], arrival_ns))
    requests, failures = _parted(outcomes)
    unserved = len(offsets_ns) - len(outcomes)
    return TimedRequests(requests, begin_ns, unserved, overlap=True, failures=failures)


def run_users(subject: RequestSubject, users: int, count: int, seconds: float, pass_queries: int = 1) -> TimedRequests:
    """Run the queries of so many users, each of whom has one at a time; see `run_queries`, and `run_open_loop` for what is raised.

    The first of each of several, sent at once, is numbered as those before the timed ones; if it fails, that counts as nothing.
    """
    waits_ns: list[tuple[int, int]] = []
    ramp_up_ns: list[int] = []
    before = subject.warmed + 1
    subject.warmed += users

    def attempt(number: int, user: int) -> TimedRequest | FailedRequest:
        outcome = subject.attempt_next(number, user)
        if isinstance(outcome, FailedRequest) and (wait_ns := wait_after(outcome.error)) is not None:
            waits_ns.append(wait_ns)
        return outcome

    def ramp_up(user: int) -> None:
        if isinstance(first := attempt(-before - user, user), TimedRequest):
            ramp_up_ns.append(first.start_ns + first.token_ns[-1])

    queries = concurrent.queries_in_all(count, users)
    begin_ns, outcomes = concurrent.serve(users, queries, seconds, attempt, ramp_up if users > 1 else None, _has_failed, pass_queries)
    requests, failures = _parted(outcomes)
    return TimedRequests(
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


def warm_up(subject: RequestSubject, limit_s: float, users: int | None = None, each: int = 1) -> Warmed:
    """Run whole queries until TTFT and TPOT have settled, for `limit_s` but at least two, and return what was seen.

    With `users` each of them runs `each` in a row, and what has to settle is their mean. Both have settled where `looks_settled` says so
    of four or more queries, or where the last two of fewer are within 2% of each other.
    """
    first_ns: list[int] = []
    each_ns: list[int] = []
    begin = time.monotonic_ns()
    spent_s, settled = 0.0, False
    with no_collection():
        while len(first_ns) < FEWEST_WARM_UP or (not settled and spent_s < limit_s):
            queries = [subject.warm()] if users is None else subject.warm_users(users, each)
            first_ns.append(round(statistics.mean(query.token_ns[0] for query in queries)))
            each_ns.append(round(statistics.mean(query.tpot_ns for query in queries)))
            spent_s = (time.monotonic_ns() - begin) / 1e9
            settled = spent_s >= min(SHORTEST_WARM_UP_S, limit_s) and has_settled(first_ns) and has_settled(each_ns)
    is_steady = settled or (has_settled(first_ns) and has_settled(each_ns))
    rounds, spent_ns = len(first_ns), round(spent_s * 1e9)
    return Warmed(rounds * (users or 1) * each, spent_ns, is_steady, round(spent_ns / rounds / each))


def has_settled(durations_ns: Sequence[int]) -> bool:
    """Return whether the times of the queries so far look settled; of two or three, whether the last two are within 2%."""
    if len(durations_ns) < FEWEST_WARM_UP:
        return False
    if len(durations_ns) >= HALVES_QUERIES:
        return looks_settled(durations_ns)
    before, last = durations_ns[-2:]
    return abs(last - before) <= LAST_TWO_RATIO * before
