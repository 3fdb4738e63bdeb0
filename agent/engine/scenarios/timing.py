"""The plan of a timed part, the schedule of its frames, and the timed queries."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.frame_times import frame_arrivals_ns, frame_numbers
from edgemeter.agent.energy.queries import Times, no_pauses
from edgemeter.agent.energy.window import Window

# The number of inputs drawn ahead (uniformly, with replacement); then the draw repeats.
DRAWN = 4096


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The length of the timed part: until both `queries` and `seconds` are reached.

    `expected_ns` is the duration of a query in the warm-up. `seed` draws the inputs (Mersenne
    Twister) and, with `rate_per_s`, the arrivals. `users` is the number of users of a closed loop;
    with `pauses` it has random pauses between queries. The number of queries is a multiple of
    `pass_queries`. The answer to a frame is late `deadline_ns` after its arrival (None: when the
    next frame arrives). With `in_order`, frame n takes input n, and after the last input the first
    one again.
    """

    queries: int
    seconds: float
    expected_ns: int
    seed: int
    rate_per_s: float | None = None
    users: int | None = None
    pauses: bool = False
    pass_queries: int = 1
    deadline_ns: int | None = None
    in_order: bool = False

    def whole(self, queries: int, query_s: float = 0.0) -> int:
        """Return the number of queries, up to whole passes.

        They are at least `queries`, or as many of `query_s` as fill `seconds`.
        """
        fewest = max(queries, int(self.seconds / query_s)) if query_s else queries
        return -(-fewest // self.pass_queries) * self.pass_queries

    def drawn(self, inputs: int) -> Sequence[int]:
        """Return the indices, below `inputs`, of the inputs of the calls."""
        draw = random.Random(self.seed)  # noqa: S311 - a published, repeatable order is wanted
        return range(inputs) if self.in_order else [draw.randrange(inputs) for _ in range(DRAWN)]

    def likely_queries(self) -> int:
        """Return the expected number of queries."""
        each_s = (
            1 / self.rate_per_s
            if self.rate_per_s
            else max(self.expected_ns, 1) / 1e9 / (self.users or 1)
        )
        return max(self.queries, int(self.seconds / each_s))


@dataclass(frozen=True, slots=True)
class FrameSchedule:
    """Frames at a rate, which arrive by `contract.frame_times`.

    An answer is due `deadline_ns` after the arrival.
    """

    rate_per_s: float
    deadline_ns: int
    frames: int

    @property
    def length_ns(self) -> int:
        """The length of the schedule, up to the arrival of the frame after the last."""
        return int(frame_arrivals_ns(np.array(self.frames), self.rate_per_s))

    def arrivals_ns(self, numbers: Times | None = None) -> Times:
        """Return the arrivals of the frames of these numbers, or of all, int64 [n].

        They count from the beginning.
        """
        return frame_arrivals_ns(
            np.arange(self.frames) if numbers is None else numbers, self.rate_per_s
        )

    def numbers(self, arrivals_ns: Times) -> Times:
        """Return the numbers of the frames with these arrivals from the beginning, int64 [n]."""
        return frame_numbers(arrivals_ns, self.rate_per_s)


@dataclass(frozen=True, slots=True)
class FailedQuery:
    """A query without an answer, which only its count by `kind` includes.

    Arrival and end are monotonic, ns.
    """

    kind: str
    number: int = 0
    arrival_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True, slots=True)
class TimedQueries:
    """The timed queries: number, start and latency of each, monotonic ns, int64 [n].

    The window is from `begin_ns` to `end_ns`. In an open loop, latencies count from the scheduled
    `arrivals_ns`, int64 [n], and `unserved` arrivals were dropped. `overlap`: several queries were
    in flight at once. In a closed loop with `users`, the first query of each is the ramp-up, which
    is not among these and ended at `ramp_up_ns`, int64 [m]. `pauses_ns` are start and end of each
    pause, int64 [n, 2]. `failures` have no answer and are not among these. `schedule` is that of
    frames.
    """

    starts_ns: Times
    latency_ns: Times
    begin_ns: int
    end_ns: int
    arrivals_ns: Times | None = None
    unserved: int = 0
    overlap: bool = False
    users: int | None = None
    pauses_ns: Times = field(default_factory=no_pauses)
    ramp_up_ns: Times = field(default_factory=lambda: np.empty(0, np.int64))
    failures: Sequence[FailedQuery] = ()
    schedule: FrameSchedule | None = None
    numbers: Times = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def arrived_ns(self) -> Times:
        """The times from which latencies count: arrivals in an open loop, else starts."""
        return self.starts_ns if self.arrivals_ns is None else self.arrivals_ns

    @property
    def busy_begin_ns(self) -> int:
        """The beginning of the window of rates: the end of the ramp-up, or the beginning."""
        return int(self.ramp_up_ns.max(initial=self.begin_ns))

    @property
    def busy_ns(self) -> int:
        """The length of the window of rates, at least 1."""
        return max(self.busy_end_ns - self.busy_begin_ns, 1)

    @property
    def busy_end_ns(self) -> int:
        """The end of the window of rates.

        It is when the first of several users has no query left, or the end.
        """
        if self.users is None or self.users > self.latency_ns.size:
            return self.end_ns
        return int(np.sort(self.starts_ns + self.latency_ns)[-self.users])

    @property
    def paused_ns(self) -> int:
        """The length of all pauses together."""
        return int(np.diff(self.pauses_ns).sum())

    def within(self, window: Window) -> "TimedQueries":
        """Return the queries that lie wholly within a window; raises MeasurementError if none does.

        Frames count from the beginning of their schedule, even before the window: otherwise they
        would count as dropped.
        """
        ends_ns = self.arrived_ns + self.latency_ns
        start_ns = window.start_ns if self.schedule is None else self.begin_ns
        counts = (self.arrived_ns >= start_ns) & (ends_ns <= window.end_ns)
        if not counts.any():
            raise MeasurementError(
                f"no query lay wholly within the {window.length_ns / 1e9:.3g} s in which all "
                "models were timed: "
                "use a longer mode (--mode normal)"
            )
        end_ns = int(ends_ns[counts].max())
        schedule, unserved = self.schedule, self.unserved
        if schedule is not None:
            frames = int(schedule.numbers(self.arrived_ns[counts] - self.begin_ns).max()) + 1
            schedule, unserved = replace(schedule, frames=frames), frames - int(counts.sum())
            # The last frame has its share of idle time.
            end_ns = max(end_ns, min(window.end_ns, self.begin_ns + schedule.length_ns))
        pauses_ns = self.pauses_ns[
            (self.pauses_ns[:, 0] >= window.start_ns) & (self.pauses_ns[:, 1] <= end_ns)
        ]
        failures = [
            failed
            for failed in self.failures
            if start_ns <= failed.arrival_ns and failed.end_ns <= window.end_ns
        ]
        return replace(
            self.only(counts), begin_ns=max(self.begin_ns, start_ns), end_ns=end_ns,
            unserved=unserved, schedule=schedule, pauses_ns=pauses_ns, failures=failures,
        )  # fmt: skip

    def only(self, counts: NDArray[np.bool_]) -> "TimedQueries":
        """Return the queries selected by `counts`, bool [n], in the same window."""
        return replace(
            self,
            starts_ns=self.starts_ns[counts],
            latency_ns=self.latency_ns[counts],
            arrivals_ns=None if self.arrivals_ns is None else self.arrivals_ns[counts],
            numbers=self.numbers[counts] if self.numbers.size else self.numbers,
        )
