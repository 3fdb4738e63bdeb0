"""Pairs of a block of ours and one of a peer's, until the interval of their ratio decides or the time is up.

Blocks are as short as what they measure allows: some milliseconds in one process, seconds where each starts processes of its own. Which of
a pair comes first is drawn, and the next pair has the other order. A pair of which others took part of the processor is measured again, by
the rules that make a run disturbed: a noisy machine costs time and not truth.

The interval is over neighbouring pairs in `GROUPS` groups, which are so long that most of what depends falls into one. Looking again and
again would find chance sooner or later, so looks are planned: after 1/8, 1/4 and 1/2 of the time, and at its end. The first three share an
error of 1%, the last has 4%: the intervals of all looks together hold the ratio in 95% of all lines, wherever a line stops.
"""

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeVar

import numpy as np

from edgemeter.agent.base.evidence import CONFIDENCE, RunValue, mean_of
from edgemeter.agent.engine.process_usage import read_scheduling, scheduling_between
from edgemeter.agent.machine.load import LOAD_RATIO, others_ratio, read_processes
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.verdict.condition_rules import WAITED_RATIO

Pair = tuple[float, float]
Value = TypeVar("Value")
# Fewer pairs have an interval that is too wide to say anything.
LEAST_PAIRS = 4
GROUPS = 24
EARLY_LOOKS, EARLY_ERROR = 3, 0.01
EARLY_CONFIDENCE, LAST_CONFIDENCE = 1 - EARLY_ERROR / EARLY_LOOKS, CONFIDENCE + EARLY_ERROR
LONGEST_LOG = 700.0
# From this length on, clock ticks tell what other processes used; to read all processes takes milliseconds. Pairs of blocks that have
# processes of their own are always told by ticks: such a process makes our threads wait too, and disturbs nothing.
LONG_PAIR_S = 1.0


@dataclass(frozen=True, slots=True)
class Paired:
    """Our median, the peer's, and the ratio with its 95% interval; `groups` are the medians of both in neighbouring pairs.

    `repeated` is how many pairs were disturbed and measured again; `has_quiet_pairs` is false where so few were not that all count.
    """

    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    groups: tuple[Pair, ...]
    pairs: int
    repeated: int = 0
    has_quiet_pairs: bool = True


class RatioInterval(NamedTuple):
    """The ends of the interval of a ratio."""

    low: float
    high: float


class Watch:
    """What others take from now on; `is_long` is whether the stretch will be so long that clock ticks tell something."""

    def __init__(self, *, is_long: bool) -> None:
        self._processes = read_processes(Machine()) if is_long else None
        self._scheduling = read_scheduling()

    def is_disturbed(self) -> bool:
        """Return whether our threads waited for a core, or other processes used the cores, for longer than a run may."""
        if self._processes:
            # The processes of a long block wait for each other, so only the time of others counts.
            return (others_ratio(self._processes, read_processes(Machine()), os.getpid()) or 0.0) > LOAD_RATIO
        scheduling = scheduling_between(self._scheduling, read_scheduling())
        return (scheduling.waited_ms or 0.0) > WAITED_RATIO * scheduling.window_ms


def in_turn(measured: Callable[[], Value], peer: Callable[[], Value], seed: int = 0) -> Callable[[], tuple[Value, Value]]:
    """Return what measures a pair, in an order that is drawn for every second pair and exchanged in the next."""
    draw, turns, is_peer_first = random.Random(seed), count(), False  # noqa: S311 - no secret

    def pair() -> tuple[Value, Value]:
        nonlocal is_peer_first
        is_peer_first = not is_peer_first if next(turns) % 2 else draw.random() < 0.5
        if is_peer_first:
            peer_value = peer()
            return measured(), peer_value
        return measured(), peer()

    return pair


def measure(
    pair: Callable[[], Pair],
    seconds: float,
    decides: Callable[[RatioInterval], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    watch: Callable[..., Watch] = Watch,
    has_processes: bool = False,
) -> Paired:
    """Return what pairs say when the interval of their ratio decides, or after `seconds`, four pairs at least.

    `has_processes` is whether processes that descend from this one work in the blocks.
    """
    quiet: list[Pair] = []
    disturbed: list[tuple[int, Pair]] = []
    looks = [seconds / 2**number for number in range(EARLY_LOOKS, 0, -1)]
    begin_s, took_s = clock(), 0.0
    while True:
        pair_begin_s, watching = clock(), watch(is_long=has_processes or took_s >= LONG_PAIR_S)
        values = pair()
        took_s = clock() - pair_begin_s
        if watching.is_disturbed():
            disturbed.append((len(quiet), values))
        else:
            quiet.append(values)
        passed_s = clock() - begin_s
        if passed_s >= seconds and len(quiet) + len(disturbed) >= LEAST_PAIRS:
            break
        due = [look for look in looks if look <= passed_s < seconds]
        looks = looks[len(due) :]
        if due and len(quiet) >= LEAST_PAIRS and decides(_interval(grouped_logs(quiet), is_last=False)):
            return summary(quiet, is_last=False, repeated=len(disturbed))
    if len(quiet) >= LEAST_PAIRS:
        return summary(quiet, repeated=len(disturbed))
    for number, (position, values) in enumerate(disturbed):
        quiet.insert(position + number, values)
    return summary(quiet, repeated=len(disturbed), has_quiet_pairs=False)


def summary(pairs: Sequence[Pair], *, is_last: bool = True, repeated: int = 0, has_quiet_pairs: bool = True) -> Paired:
    """Return what these pairs say, in the order of measuring; `is_last` is false at a look before the time is up."""
    logs = grouped_logs(pairs)
    interval = _interval(logs, is_last=is_last)
    parts = np.array_split(np.asarray(pairs), len(logs))
    return Paired(
        ours=statistics.median(value for value, _ in pairs),
        peer=statistics.median(value for _, value in pairs),
        ratio=math.exp(statistics.fmean(logs)),
        low=interval.low,
        high=interval.high,
        groups=tuple((float(values[0]), float(values[1])) for values in (np.median(part, axis=0) for part in parts)),
        pairs=len(pairs),
        repeated=repeated,
        has_quiet_pairs=has_quiet_pairs,
    )


def grouped_logs(pairs: Sequence[Pair]) -> list[float]:
    """Return the medians of the log ratios of neighbouring pairs, `GROUPS` at most."""
    logs = np.asarray([math.log(value / peer_value) for value, peer_value in pairs])
    return [float(np.median(group)) for group in np.array_split(logs, min(len(logs), GROUPS))]


def _interval(logs: Sequence[float], *, is_last: bool) -> RatioInterval:
    """Return the interval of the ratio that belongs to this look, from the log ratios of three pairs or groups and more."""
    evidence = mean_of([RunValue(value, "", 0) for value in logs])
    low, high = evidence.bounds(LAST_CONFIDENCE if is_last else EARLY_CONFIDENCE) or (-LONGEST_LOG, LONGEST_LOG)
    # A few pairs that scatter widely reach to where a float ends.
    return RatioInterval(math.exp(max(low, -LONGEST_LOG)), math.exp(min(high, LONGEST_LOG)))
