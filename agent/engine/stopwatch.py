"""The stopwatch: the one place where the clock is read around a call.

Only the call itself is between the two reads.
"""

import gc
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from edgemeter.agent.base.errors import AnswerError, MeasurementError
from edgemeter.agent.engine.scenarios.timing import FailedQuery, TimedQueries
from edgemeter.agent.engine.subject import Subject

# A sleep ends up to about 0.1 ms late, so the last part of a wait is spun.
SPIN_NS = 200_000
# The longest wait that a busy server may ask for.
LONGEST_WAIT_S = 60.0
# The wait for a server that is gone, or busy without naming a time: without it users would fail
# 10,000 times a second.
GONE_WAIT_S = 0.1
ATTEMPTS = 10

T = TypeVar("T")


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect garbage, and switch the collector off until the end of the block.

    The remaining objects are frozen (`gc.freeze`).

    Freezing is for libraries that call `gc.collect()` themselves, which then takes 5 us instead of
    40 ms. It makes no other query quicker: with a 0.2 ms model, p50 was 0.1% higher than without
    (95%: 0.0 to 0.3%, 250 interleaved rounds). A nested block does nothing.
    """
    was_on = gc.isenabled()
    if not was_on and gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def retry_s(error: AnswerError) -> float:
    """Return the time to wait after a query that was not answered."""
    if not error.retry_after_s and not error.is_busy:
        return 0.0
    return min(error.retry_after_s or GONE_WAIT_S, LONGEST_WAIT_S)


def until_answered(attempt: Callable[[], T]) -> T:
    """Return the result of `attempt`, after at most `ATTEMPTS` attempts."""
    for _ in range(ATTEMPTS - 1):
        try:
            return attempt()
        except AnswerError as error:
            time.sleep(retry_s(error))
    return attempt()


class Stopwatch:
    """Times the queries of a subject, sequentially or in several threads.

    It keeps the start and end of each.
    """

    def __init__(
        self,
        subject: Subject,
        clock: Callable[[], int] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.subject = subject
        self.clock = clock or time.monotonic_ns
        self.sleep = sleep or time.sleep
        self.failures: list[FailedQuery] = []
        # Start and end of each pause between queries.
        self.pauses_ns: list[tuple[int, int]] = []
        self._bind, self._finish = subject.bind, subject.finish
        self._lock = threading.Lock()
        self._numbers, self._starts, self._ends, self._arrivals = (array("q") for _ in range(4))
        self._last_error: AnswerError | None = None

    def ask(
        self, number: int, user: int | None = None, arrival_ns: int | None = None
    ) -> AnswerError | None:
        """Time a query, which starts at its arrival or later.

        Returns why it was not answered, or None.
        """
        clock = self.clock
        asked_ns = clock() if arrival_ns is None else arrival_ns
        try:
            call = self._bind(number, user)
            if arrival_ns is not None:
                self.wait_until(arrival_ns)
            start_ns = clock()
            result = call()
            end_ns = clock()
            end_ns = self._finish(number, result, end_ns)
        except AnswerError as error:
            self.failures.append(FailedQuery(error.kind, number, asked_ns, clock()))
            self._last_error = error
            return error
        with self._lock:
            self._numbers.append(number)
            self._starts.append(start_ns)
            self._ends.append(end_ns)
            if arrival_ns is not None:
                self._arrivals.append(arrival_ns)
        return None

    def first(self) -> int:
        """Ask a warm-up query, and return its duration.

        If it is not answered, another one is asked.
        """

        def attempt() -> int:
            if (error := self.ask(self.subject.warm_up_number())) is not None:
                raise error
            return self._ends[-1] - self._starts[-1]

        return until_answered(attempt)

    @property
    def answered(self) -> int:
        """The number of queries that were answered."""
        return len(self._ends)

    def since(self, answered: int) -> list[tuple[int, int, int]]:
        """Return number, start and end of the queries after the first `answered` ones."""
        return list(
            zip(
                self._numbers[answered:],
                self._starts[answered:],
                self._ends[answered:],
                strict=True,
            )
        )

    def wait_until(self, moment_ns: int) -> None:
        """Return at this moment, or at once if it has passed."""
        clock = self.clock
        rest_ns = moment_ns - clock()
        if rest_ns > SPIN_NS:
            self.sleep((rest_ns - SPIN_NS) / 1e9)
        while clock() < moment_ns:
            pass

    def pause_after(self, error: AnswerError) -> int:
        """Wait as long as the server asks for, and return the length of the wait, ns."""
        if not (seconds := retry_s(error)):
            return 0
        begin_ns = self.clock()
        self.sleep(seconds)
        self.pauses_ns.append((begin_ns, self.clock()))
        return self.pauses_ns[-1][1] - begin_ns

    def give_up(self) -> MeasurementError:
        """Return the error that too many queries were not answered.

        It has their kinds and the last reason.
        """
        kinds = ", ".join(
            f"{kind}: {count}"
            for kind, count in Counter(failed.kind for failed in self.failures).most_common()
        )
        failures = len(self.failures)
        error = MeasurementError(
            f"{failures} of {failures + self.answered} queries were not answered ({kinds}): "
            f"{self._last_error}"
        )
        error.__cause__ = self._last_error
        return error

    def timed(self, begin_ns: int, end_ns: int = 0, **facts: Any) -> TimedQueries:
        """Return the timed queries by their numbers, from `begin_ns` to the last end.

        The end may also be `end_ns`. Queries with negative numbers are the ramp-up. It raises if
        there are none.
        """
        if not any(number >= 0 for number in self._numbers):
            raise self.give_up()
        moments = (self._numbers, self._starts, self._ends, self._arrivals or self._starts)
        numbers, starts_ns, ends_ns, arrivals_ns = (
            np.frombuffer(values, np.int64) for values in moments
        )
        ramp_up_ns = np.sort(ends_ns[numbers < 0])
        order = np.argsort(numbers, kind="stable")[ramp_up_ns.size :]
        if order.size < numbers.size or np.any(np.diff(order) != 1):
            numbers, starts_ns, ends_ns, arrivals_ns = (
                values[order] for values in (numbers, starts_ns, ends_ns, arrivals_ns)
            )
        end_ns = max(int(ends_ns.max()), end_ns)
        return TimedQueries(
            starts_ns=starts_ns,
            latency_ns=ends_ns - arrivals_ns,
            begin_ns=begin_ns,
            end_ns=end_ns,
            arrivals_ns=arrivals_ns if self._arrivals else None,
            # A wait may outlast the last query.
            pauses_ns=np.minimum(np.array(sorted(self.pauses_ns), np.int64).reshape(-1, 2), end_ns),
            ramp_up_ns=ramp_up_ns,
            failures=[failed for failed in self.failures if failed.number >= 0],
            numbers=numbers,
            **facts,
        )
