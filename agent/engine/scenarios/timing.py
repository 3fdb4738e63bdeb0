"""The inputs and results of timing a scenario. Between two clock reads there is nothing but the runtime's own call."""

import gc
import random
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import MeasurementError
from edgemeter.agent.contract.frame_times import frame_arrivals_ns, frame_numbers
from edgemeter.agent.energy.queries import Times, no_pauses
from edgemeter.agent.energy.window import Window

Array = NDArray[Any]
Bind = Callable[[Sequence[Array]], Callable[[], object]]
Clock = Callable[[], int]
# Queries drawn ahead (uniformly, with replacement); the draw repeats after them.
DRAWN = 4096
NONE_WITHIN = "no query lay wholly within the {seconds:.3g} s in which all models were timed: use a longer mode (--mode normal)"
KEPT_OUTPUTS = 8


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect what is garbage now, set the rest aside (`gc.freeze`), and switch the collector off until the end of the block.

    Switched off it never runs, so setting aside makes no query quicker: with a 0.2 ms model p50 was 0.1% above that without (95%: 0.0
    to 0.3%, 250 interleaved rounds). It is for libraries that call `gc.collect()` by themselves: that takes 5 us then, not 40 ms.
    Memory freed by reference counts is freed as always. Within another block it changes nothing.
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


@dataclass(frozen=True, slots=True)
class TimingSubject:
    """The loaded model as a scenario sees it. `inputs` are ready: one list of arrays for each call that may be drawn."""

    bind: Bind
    outputs: Callable[[], list[Array]]
    inputs: Sequence[Sequence[Array]]
    clock: Clock = field(default_factory=lambda: time.monotonic_ns)
    sleep: Callable[[float], None] = field(default_factory=lambda: time.sleep)


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The length of the timed part: until both `queries` and `seconds` are reached.

    A query is a call of `batch` samples. `expected_ns`, its time as the warm-up saw it, sizes the arrays and spreads the kept outputs.
    `seed` draws the inputs (Mersenne Twister) and, with `rate_per_s`, the arrivals. `users` are those of a closed loop of several. With
    `pauses` a closed loop makes random pauses between queries. A run on prompts of a file ends at a multiple of `pass_queries`. The answer
    to a frame at a fixed rate is late `deadline_ns` after its arrival (None: when the next one arrives), and with `in_order` frame n takes
    input n, from the first again after the last.
    """

    queries: int
    seconds: float
    expected_ns: int
    seed: int
    batch: int = 1
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

    def drawn(self, inputs: int) -> list[int]:
        """Return the index of the input that each call takes, out of `inputs`."""
        draw = random.Random(self.seed)  # noqa: S311 - a published, repeatable order is wanted
        return [draw.randrange(inputs) for _ in range(DRAWN)]

    def capacity(self) -> int:
        """Return how many queries are likely, and a quarter more."""
        return max(self.queries, int(self.seconds * 1e9 / max(self.expected_ns, 1))) * 5 // 4 + 64


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
class TimedQueries:
    """The timed queries: start and latency of each, monotonic ns, int64 [n]; `kept` holds the outputs of a few, by input index.

    The window reaches from `begin_ns` to `end_ns`. `arrivals_ns` are the scheduled moments of an open loop, int64 [n], from which its
    latencies count; `unserved` is the number of arrivals that it dropped. `overlap`: queries were served beside each other, in a closed
    loop those of so many `users`, whose first queries, which are not among these, ended at `ramp_up_ns`, int64 [m]. `pauses_ns` are begin
    and end of each pause between queries, int64 [n, 2]. `failures` counts queries without an answer by kind; they are not among these.
    `schedule` is that of frames at a fixed rate.
    """

    starts_ns: Times
    latency_ns: Times
    kept: dict[int, list[Array]]
    begin_ns: int
    end_ns: int
    arrivals_ns: Times | None = None
    unserved: int = 0
    overlap: bool = False
    users: int | None = None
    pauses_ns: Times = field(default_factory=no_pauses)
    ramp_up_ns: Times = field(default_factory=lambda: np.empty(0, np.int64))
    failures: Mapping[str, int] = field(default_factory=dict)
    schedule: FrameSchedule | None = None

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
            raise MeasurementError(NONE_WITHIN.format(seconds=window.length_ns / 1e9))
        end_ns = int(ends_ns[counts].max())
        schedule, unserved = self.schedule, self.unserved
        if schedule is not None:
            frames = int(schedule.numbers(self.arrived_ns[counts] - self.begin_ns).max()) + 1
            schedule, unserved = replace(schedule, frames=frames), frames - int(counts.sum())
            # The last frame has its share of the idle time, too.
            end_ns = max(end_ns, min(window.end_ns, self.begin_ns + schedule.length_ns))
        pauses_ns = self.pauses_ns[(self.pauses_ns[:, 0] >= window.start_ns) & (self.pauses_ns[:, 1] <= end_ns)]
        return replace(
            self,
            starts_ns=self.starts_ns[counts],
            latency_ns=self.latency_ns[counts],
            begin_ns=max(self.begin_ns, start_ns),
            end_ns=end_ns,
            unserved=unserved,
            schedule=schedule,
            arrivals_ns=None if self.arrivals_ns is None else self.arrivals_ns[counts],
            pauses_ns=pauses_ns,
        )


class Moments:
    """Moments of queries in an array that was allocated before them; it grows only when far more come than were expected."""

    def __init__(self, capacity: int) -> None:
        self.values = array("q", bytes(8 * capacity))

    def grow(self) -> None:
        """Double the room."""
        self.values.extend(array("q", bytes(8 * len(self.values))))

    def taken(self, count: int) -> Times:
        """Return the first `count` of them, int64 [count]."""
        return np.array(self.values[:count], dtype=np.int64)


class KeptOutputs:
    """Outputs of a few queries spread over the run, copied outside the clock, to be compared with a later repetition."""

    def __init__(self, outputs: Callable[[], list[Array]], likely: int) -> None:
        self.by_input: dict[int, list[Array]] = {}
        self._outputs = outputs
        self._every = max(1, likely // KEPT_OUTPUTS)

    def wants(self, query: int, item: int) -> bool:
        """Return whether the outputs of query `query`, which took input `item`, are to be kept."""
        return query % self._every == 0 and len(self.by_input) < KEPT_OUTPUTS and item not in self.by_input

    def keep(self, item: int) -> None:
        """Copy the outputs of the last call."""
        self.by_input[item] = self._outputs()
