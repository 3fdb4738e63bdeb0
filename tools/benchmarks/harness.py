"""Lines of `make bench`: ours next to a peer's or a bare limit's.

Both are measured in pairs of blocks, until the interval of their ratio decides.

Machines are shared, and one is six times slower than it was yesterday: ratios are judged, and
figures only if they have a limit, such as sizes in memory and on disk. Blocks are as short as what
they measure allows: some milliseconds in one process, seconds where each starts processes. Which of
a pair comes first is drawn, and the next pair has the other order. A pair during which others took
part of the processor is measured again, by the rules that make a run disturbed: a noisy machine
costs time and not truth.

The interval is over neighbouring pairs in `GROUPS` groups, which are so long that most of what
depends falls into one. Looking again and again would find chance sooner or later, so looks are
planned: after 1/8, 1/4 and 1/2 of the time, and at its end. The first three share an error of 1%,
the last has 4%: the intervals of all looks together hold the ratio in 95% of all lines, wherever a
line stops.
"""

import math
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from edgemeter.agent.base.evidence import CONFIDENCE, RunValue, mean_of
from edgemeter.agent.engine.process_usage import read_scheduling, scheduling_between
from edgemeter.agent.machine.load import LOAD_RATIO, ProcessTable, read_processes
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.verdict.condition_rules import WAITED_RATIO

Pair = tuple[float, float]
Verdict = Literal["met", "missed", "not sure"]
Value = TypeVar("Value")

ROOT = Path(__file__).resolve().parents[2]
# Fewer pairs have an interval that is too wide to say anything.
LEAST_PAIRS = 4
GROUPS = 24
EARLY_LOOKS, EARLY_ERROR = 3, 0.01
EARLY_CONFIDENCE, LAST_CONFIDENCE = 1 - EARLY_ERROR / EARLY_LOOKS, CONFIDENCE + EARLY_ERROR
LONGEST_LOG = 700.0
# From this length on, clock ticks show what other processes used; to read all processes takes
# milliseconds. Pairs of blocks that have processes of their own are always judged by ticks: such a
# process makes our threads wait too, and disturbs nothing.
LONG_PAIR_S = 1.0


class LeftOutError(Exception):
    """A part, or the remainder of it, cannot run here; the message names what is missing."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The limit of a ratio or figure, its largest value or its smallest.

    `reach` is how far the interval may reach to each side for the goal to be met.
    """

    limit: float
    is_largest: bool = True
    reach: float | None = None

    def __str__(self) -> str:
        text = f"{'at most' if self.is_largest else 'at least'} {self.limit:g}"
        return text if self.reach is None else f"{text}, to ±{self.reach:g}"

    def verdict(self, low: float, high: float) -> Verdict:
        """Return the verdict on an interval.

        It is `not sure` if the limit lies within the interval, or if that is wider than it should
        be.
        """
        if low > self.limit if self.is_largest else high < self.limit:
            return "missed"
        is_within = high <= self.limit if self.is_largest else low >= self.limit
        is_narrow = self.reach is None or high - low <= 2 * self.reach
        return "met" if is_within and is_narrow else "not sure"


def at_most(limit: float, reach: float | None = None) -> Goal:
    """Return the goal of at most `limit`.

    Its interval should reach at most so far to each side.
    """
    return Goal(limit, reach=reach)


def at_least(limit: float) -> Goal:
    """Return the goal of at least `limit`."""
    return Goal(limit, is_largest=False)


@dataclass(frozen=True, slots=True)
class Line:
    """A comparison: its unit, its peer, and the goal of the ratio."""

    name: str
    unit: str
    peer: str
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Our figure in `unit` and the peer's, with their ratio and its 95% interval.

    A figure without a peer may have an interval too. The ratio is that of `pairs`; `repeated` more
    were disturbed by others, and measured again. `verdict` is None without a goal.
    """

    name: str
    unit: str
    value: float
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    goal: Goal | None = None
    verdict: Verdict | None = None
    pairs: int = 0
    repeated: int = 0

    def cells(self) -> tuple[str, ...]:
        """Return the cells of a row.

        They are name, our figure, peer, the peer's, ratio, pairs, goal, verdict.
        """
        value, bounds = f"{self.value:.4g} {self.unit}", ""
        if self.low is not None and self.high is not None:
            bounds = f" ({digits(self.low)} to {digits(self.high)})"
        pairs = (
            f"{self.pairs}, {self.repeated} more disturbed"
            if self.repeated
            else str(self.pairs or "")
        )
        goal = "" if self.goal is None else str(self.goal)
        if self.ratio is None:
            return (
                self.name,
                value + bounds,
                "",
                "",
                "",
                pairs,
                f"{goal} {self.unit}" if goal else "",
                self.verdict or "",
            )
        ratio = digits(self.ratio) + bounds
        return (
            self.name,
            value,
            self.peer or "",
            f"{self.peer_value:.4g} {self.unit}",
            ratio,
            pairs,
            goal,
            self.verdict or "",
        )

    def __str__(self) -> str:
        name, value, peer, peer_value, ratio, pairs, goal, verdict = self.cells()
        text = f"{name}: {value}" + (f" / {peer} {peer_value} = {ratio}" if ratio else "")
        return (
            text + (f"; {goal}: {verdict}" if goal else "") + (f"; {pairs} pairs" if pairs else "")
        )


def digits(value: float) -> str:
    """Return a ratio with as many digits as the narrowest goal needs."""
    return f"{value:.5g}" if value >= 1 else f"{value:.4g}"


class Watch:
    """A watch over the processor time that others take from now on.

    `is_long` is whether the stretch will be so long that clock ticks show something.
    """

    def __init__(self, *, is_long: bool) -> None:
        self._processes = read_processes(Machine()) if is_long else None
        self._scheduling = read_scheduling()

    def is_disturbed(self) -> bool:
        """Return whether others disturbed for longer than a run may be disturbed.

        Our threads waited for a core, or other processes used the cores.
        """
        if self._processes:
            # The processes of a long block wait for each other, so only the time of others counts:
            # theirs, and not what ours leave of the whole, because nobody has the time of a process
            # that ended in a sandbox.
            now = read_processes(Machine())
            own_pids = {*self._processes.tree(os.getpid()), *now.tree(os.getpid())}
            return _ticks_without(now, own_pids) - _ticks_without(
                self._processes, own_pids
            ) > LOAD_RATIO * (now.total - self._processes.total)
        scheduling = scheduling_between(self._scheduling, read_scheduling())
        return (scheduling.waited_ms or 0.0) > WAITED_RATIO * scheduling.window_ms


def _ticks_without(table: ProcessTable, pids: Collection[int]) -> int:
    """Return the clock ticks of all processes but these, with those of their finished children.

    Those of init's children are left out: it has adopted processes of a sandbox too.
    """
    return sum(
        ticks + (table.children[pid] if pid != 1 else 0)
        for (pid, _), ticks in table.ticks.items()
        if pid not in pids
    )


def in_turn(
    measured: Callable[[], Value], peer: Callable[[], Value], seed: int = 0
) -> Callable[[], tuple[Value, Value]]:
    """Return a function that measures a pair.

    The order is drawn for every second pair and exchanged in the next.
    """
    draw, turns, is_peer_first = random.Random(seed), count(), False  # noqa: S311 - no secret

    def pair() -> tuple[Value, Value]:
        nonlocal is_peer_first
        is_peer_first = not is_peer_first if next(turns) % 2 else draw.random() < 0.5
        if is_peer_first:
            peer_value = peer()
            return measured(), peer_value
        return measured(), peer()

    return pair


def compared(
    line: Line,
    pair: Callable[[], Pair],
    seconds: float,
    *,
    has_processes: bool = False,
    clock: Callable[[], float] = time.monotonic,
    watch: Callable[..., Watch] | None = Watch,
) -> Comparison:
    """Return the ratio of pairs, which end when their interval decides the goal.

    They also end after `seconds`, but after four pairs at least. `has_processes` is whether
    processes that descend from this one work in the blocks. Without a `watch` no pair is disturbed,
    as of sizes.
    """
    quiet: list[Pair] = []
    disturbed: list[tuple[int, Pair]] = []
    looks = [seconds / 2**number for number in range(EARLY_LOOKS, 0, -1)]
    begin_s, took_s = clock(), 0.0
    while True:
        pair_begin_s = clock()
        watching = watch(is_long=has_processes or took_s >= LONG_PAIR_S) if watch else None
        values = pair()
        took_s = clock() - pair_begin_s
        if watching and watching.is_disturbed():
            disturbed.append((len(quiet), values))
        else:
            quiet.append(values)
        passed_s = clock() - begin_s
        if passed_s >= seconds and len(quiet) + len(disturbed) >= LEAST_PAIRS:
            break
        due = [look for look in looks if look <= passed_s < seconds]
        looks = looks[len(due) :]
        if due and len(quiet) >= LEAST_PAIRS:
            early = _judged(line, quiet, len(disturbed), EARLY_CONFIDENCE)
            if early.verdict in ("met", "missed"):
                return early
    if len(quiet) >= LEAST_PAIRS:
        return _judged(line, quiet, len(disturbed), LAST_CONFIDENCE)
    # So few are left that all count, and nothing is sure.
    for number, (position, values) in enumerate(disturbed):
        quiet.insert(position + number, values)
    judged = _judged(line, quiet, len(disturbed), LAST_CONFIDENCE)
    return replace(judged, verdict="not sure" if line.goal else None)


def _judged(line: Line, pairs: Sequence[Pair], repeated: int, confidence: float) -> Comparison:
    logs = grouped([math.log(value / peer_value) for value, peer_value in pairs])
    low, high = _bounds(logs, confidence)
    low, high = math.exp(max(low, -LONGEST_LOG)), math.exp(min(high, LONGEST_LOG))
    value, peer_value = (statistics.median(values) for values in zip(*pairs, strict=True))
    return Comparison(
        *(
            line.name,
            line.unit,
            value,
            line.peer,
            peer_value,
            math.exp(statistics.fmean(logs)),
            low,
            high,
            line.goal,
        ),
        verdict=line.goal.verdict(low, high) if line.goal else None,
        pairs=len(pairs),
        repeated=repeated,
    )


def grouped(values: Sequence[float]) -> list[float]:
    """Return the medians of neighbouring values, `GROUPS` at most."""
    return [
        float(np.median(group))
        for group in np.array_split(np.asarray(values), min(len(values), GROUPS))
    ]


def _bounds(values: Sequence[float], confidence: float) -> tuple[float, float]:
    return mean_of([RunValue(value, "", 0) for value in values]).bounds(confidence) or (
        -math.inf,
        math.inf,
    )


def figure(
    name: str, unit: str, values: float | Sequence[float], goal: Goal | None = None
) -> Comparison:
    """Return a figure that has no peer.

    Of several values in the order of measuring, it is their mean with its interval.
    """
    if isinstance(values, Sequence):
        medians = grouped(values)
        value, (low, high) = statistics.fmean(medians), _bounds(medians, CONFIDENCE)
        return Comparison(
            name,
            unit,
            value,
            low=low,
            high=high,
            goal=goal,
            verdict=goal.verdict(low, high) if goal else None,
        )
    return Comparison(
        name, unit, values, goal=goal, verdict=goal.verdict(values, values) if goal else None
    )


def real_models() -> Path:
    """Return the folder of real models that are not part of the project.

    Raises:
        LeftOutError: it is not there.
    """
    models = (
        Path(os.environ.get("EDGEMETER_REALDATA") or ROOT.parent / "shared" / "realdata") / "models"
    )
    if not models.is_dir():
        raise LeftOutError(f"{models} is not there (set EDGEMETER_REALDATA)")
    return models


def this_machine() -> str:
    """Return what the figures were taken on."""
    # Linux only, like the agent.
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return (
        f"{names[0] if names else platform.processor()} x {len(names)}, Python "
        f"{platform.python_version()}"
    )
