"""The plan of a timed part, the schedule of its frames, and the queries that were timed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.frame_times import frame_arrivals_ns, frame_numbers
from edgemeter.agent.energy.queries import Times, no_pauses
from edgemeter.agent.energy.window import Window

# Queries drawn ahead (uniformly, with replacement); the draw repeats after them.
DRAWN = 4096


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The length of the timed part: until both `queries` and `seconds` are reached.

    `expected_ns` is the time of a query as the warm-up saw it. `seed` draws the inputs (Mersenne Twister) and, with `rate_per_s`, the
    arrivals. `users` are those of a closed loop of several. With `pauses` a closed loop makes random pauses between queries. A run on
    prompts of a file ends at a multiple of `pass_queries`. The answer to a frame at a fixed rate is late `deadline_ns` after its arrival
    (None: when the next one arrives), and with `in_order` frame n takes input n, from the first again after the last.
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
        """Return so many queries, and as many as come in `seconds` at this time for each, up to whole passes."""
        fewest = max(queries, int(self.seconds / query_s)) if query_s else queries
        return -(-fewest // self.pass_queries) * self.pass_queries

    def drawn(self, inputs: int) -> Sequence[int]:
        """Return the index of the input that each call takes, out of `inputs`."""
        draw = random.Random(self.seed)  # noqa: S311 - a published, repeatable order is wanted
        return range(inputs) if self.in_order else [draw.randrange(inputs) for _ in range(DRAWN)]

    def likely_queries(self) -> int:
        """Return about how many queries there will be."""
        each_s = 1 / self.rate_per_s if self.rate_per_s else max(self.expected_ns, 1) / 1e9 / (self.users or 1)
        return max(self.queries, int(self.seconds / each_s))


@dataclass(frozen=True, slots=True)
class FrameSchedule:
    """Frames at a rate (`contract.frame_times` says when each arrives); the answer to one is due `deadline_ns` after its arrival.

    Of frames that the model has not begun the newest one waits.
    """

    rate_per_s: float
    deadline_ns: int
    frames: int

    @property
    def length_ns(self) -> int:
        """Return how long the schedule is: to the moment at which one more frame would arrive."""
        return int(frame_arrivals_ns(np.array(self.frames), self.rate_per_s))

    def arrivals_ns(self, numbers: Times | None = None) -> Times:
        """Return when frames of these numbers, or all of them, arrive after the beginning, int64 [n]."""
        return frame_arrivals_ns(np.arange(self.frames) if numbers is None else numbers, self.rate_per_s)

    def numbers(self, arrivals_ns: Times) -> Times:
        """Return the numbers of the frames that arrived at these moments after the beginning, int64 [n]."""
        return frame_numbers(arrivals_ns, self.rate_per_s)


@dataclass(frozen=True, slots=True)
class FailedQuery:
    """A query without an answer, in no statistic but its count by `kind`; its arrival and its end, monotonic ns."""

    kind: str
    number: int = 0
    arrival_ns: int = 0
    end_ns: int = 0


@dataclass(frozen=True, slots=True)
class TimedQueries:
    """The timed queries: number, start and latency of each, monotonic ns, int64 [n].

    The window reaches from `begin_ns` to `end_ns`. `arrivals_ns` are the scheduled moments of an open loop, int64 [n], from which its
    latencies count; `unserved` is the number of arrivals that it dropped. `overlap`: queries were served beside each other, in a closed
    loop those of so many `users`, whose first queries, which are not among these, ended at `ramp_up_ns`, int64 [m]. `pauses_ns` are begin
    and end of each pause between queries, int64 [n, 2]. `failures` are those without an answer, which are not among these.
    `schedule` is that of frames at a fixed rate.
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
        """Return the moments from which latencies count: the arrivals of an open loop, else the starts."""
        return self.starts_ns if self.arrivals_ns is None else self.arrivals_ns

    @property
    def busy_begin_ns(self) -> int:
        """Return the moment from which rates are taken: when the first query of each of several users was answered, else the beginning."""
        return int(self.ramp_up_ns.max(initial=self.begin_ns))

    @property
    def busy_ns(self) -> int:
        """Return how long rates are taken, at least 1."""
        return max(self.busy_end_ns - self.busy_begin_ns, 1)

    @property
    def busy_end_ns(self) -> int:
        """Return the moment until which rates are taken: when the first of several users had no query left, else the end."""
        if self.users is None or self.users > self.latency_ns.size:
            return self.end_ns
        return int(np.sort(self.starts_ns + self.latency_ns)[-self.users])

    @property
    def paused_ns(self) -> int:
        """Return how long all pauses took."""
        return int(np.diff(self.pauses_ns).sum())

    def within(self, window: Window) -> "TimedQueries":
        """Return what lies wholly within a window; raises MeasurementError if no query does.

        Frames of a schedule count from its beginning, that of all runs of a block: one before the window would be a dropped one.
        """
        ends_ns = self.arrived_ns + self.latency_ns
        start_ns = window.start_ns if self.schedule is None else self.begin_ns
        counts = (self.arrived_ns >= start_ns) & (ends_ns <= window.end_ns)
        if not counts.any():
            raise MeasurementError(
                f"no query lay wholly within the {window.length_ns / 1e9:.3g} s in which all models were timed: "
                "use a longer mode (--mode normal)"
            )
        end_ns = int(ends_ns[counts].max())
        schedule, unserved = self.schedule, self.unserved
        if schedule is not None:
            frames = int(schedule.numbers(self.arrived_ns[counts] - self.begin_ns).max()) + 1
            schedule, unserved = replace(schedule, frames=frames), frames - int(counts.sum())
            # The last frame has its share of the idle time, too.
            end_ns = max(end_ns, min(window.end_ns, self.begin_ns + schedule.length_ns))
        pauses_ns = self.pauses_ns[(self.pauses_ns[:, 0] >= window.start_ns) & (self.pauses_ns[:, 1] <= end_ns)]
        failures = [failed for failed in self.failures if start_ns <= failed.arrival_ns and failed.end_ns <= window.end_ns]
        return replace(
            self.only(counts), begin_ns=max(self.begin_ns, start_ns), end_ns=end_ns, unserved=unserved, schedule=schedule,
            pauses_ns=pauses_ns, failures=failures,
        )  # fmt: skip

    def only(self, counts: NDArray[np.bool_]) -> "TimedQueries":
        """Return these of the queries, bool [n], in the same window."""
        return replace(
            self,
            starts_ns=self.starts_ns[counts],
            latency_ns=self.latency_ns[counts],
            arrivals_ns=None if self.arrivals_ns is None else self.arrivals_ns[counts],
            numbers=self.numbers[counts] if self.numbers.size else self.numbers,
        )
