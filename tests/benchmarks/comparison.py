"""One line of a benchmark: our figure beside a peer's or a bare limit's, taken in the same run, interleaved.

Machines are shared, and one is six times slower than it was yesterday: only ratios are judged. What has no peer is a figure, printed and
never judged, but for sizes in memory and on disk, which the load of a machine does not change.
"""

import itertools
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from edgemeter.agent.base import run_statistics

ROOT = Path(__file__).resolve().parents[2]
# Fewer pairs have an interval that is too wide to say anything.
LEAST_PAIRS = 4
COVERAGE = (0.93, 0.97)


class LeftOutError(Exception):
    """A part, or the rest of it, cannot run here; the message says what is missing."""


def real_models() -> Path:
    """Return the folder of real models that are not part of the project.

    Raises:
        LeftOutError: it is not there.
    """
    models = Path(os.environ.get("EDGEMETER_REALDATA") or ROOT.parent / "shared" / "realdata") / "models"
    if not models.is_dir():
        raise LeftOutError(f"{models} is not there (set EDGEMETER_REALDATA)")
    return models


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` is ours / peer, with its 95% interval where it was taken in pairs; `goal` says in words what it should be.

    `is_sure` is false where the goal lies within the interval: another time the answer may be another. `met` is None where nothing is
    judged. `rounds` are our values and the peer's, pair by pair, in `unit`.
    """

    name: str
    unit: str
    ours: float
    peer: str | None
    peer_value: float | None
    ratio: float | None
    goal: str | None
    machine: str
    met: bool | None
    ratio_low: float | None = None
    ratio_high: float | None = None
    is_sure: bool = True
    rounds: tuple[tuple[float, float], ...] = ()

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `not sure`, or nothing where there is no goal."""
        if self.met is None:
            return ""
        return "not sure" if not self.is_sure else "met" if self.met else "missed"


@dataclass(frozen=True, slots=True)
class Paired:
    """Our median, the peer's, and the ratio of neighbours with its 95% interval over pairs."""

    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    pairs: tuple[tuple[float, float], ...]


def this_machine() -> str:
    """Return what the figures were taken on."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - Linux only, like the agent
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} x {len(names)}, Python {platform.python_version()}"


def interleaved(measured: Callable[[], float], peer: Callable[[], float], rounds: int, seconds: float = math.inf) -> Paired:
    """Return what pairs of runs say, in the order ours-peer-peer-ours: `rounds`, or as many as fit into `seconds`, four at least."""
    turns = itertools.count()

    def pair() -> tuple[float, float]:
        if next(turns) % 2:
            other = peer()
            return measured(), other
        return measured(), peer()

    return paired_by(pair, rounds, seconds)


def paired_by(pair: Callable[[], tuple[float, float]], rounds: int, seconds: float = math.inf) -> Paired:
    """Return what pairs say that one measurement each gives: `rounds`, or as many as fit into `seconds`, four at least."""
    pairs: list[tuple[float, float]] = []
    end_s = time.monotonic() + seconds
    while len(pairs) < rounds and (len(pairs) < LEAST_PAIRS or time.monotonic() <= end_s):
        pairs.append(pair())
    logs = [math.log(mine / other) for mine, other in pairs]
    interval = run_statistics.pair_interval(logs)
    if interval is None:
        message = f"{rounds} pair has no interval: ask for two and more"
        raise ValueError(message)
    return Paired(
        ours=statistics.median(mine for mine, _ in pairs),
        peer=statistics.median(other for _, other in pairs),
        ratio=math.exp(run_statistics.centre(logs)),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
        pairs=tuple(pairs),
    )


def at_most(name: str, unit: str, peer: str, paired: Paired, limit: float) -> Comparison:
    """Return the comparison whose ratio should be at most `limit`; whether that is sure is told by the interval."""
    return _judged(
        name, unit, peer, paired, f"ratio <= {limit:g}", met=paired.ratio <= limit, is_sure=not paired.low <= limit < paired.high
    )


def at_least(name: str, unit: str, peer: str, paired: Paired, limit: float) -> Comparison:
    """Return the comparison whose ratio should be at least `limit`; whether that is sure is told by the interval."""
    return _judged(
        name, unit, peer, paired, f"ratio >= {limit:g}", met=paired.ratio >= limit, is_sure=not paired.low < limit <= paired.high
    )


def within(name: str, unit: str, peer: str, paired: Paired, share: float) -> Comparison:
    """Return the comparison whose ratio should be 1 to within a share; whether that is sure is told by the interval."""
    low, high = 1 - share, 1 + share
    met = low <= paired.ratio <= high
    is_sure = low <= paired.low and paired.high <= high if met else paired.high < low or high < paired.low
    return _judged(name, unit, peer, paired, f"ratio within {share:.0%} of 1", met=met, is_sure=is_sure)


def unjudged(name: str, unit: str, peer: str, paired: Paired) -> Comparison:
    """Return the comparison of which nothing is asked."""
    return _judged(name, unit, peer, paired, None, met=None, is_sure=True)


def _judged(name: str, unit: str, peer: str, paired: Paired, goal: str | None, *, met: bool | None, is_sure: bool) -> Comparison:
    return Comparison(
        name, unit, paired.ours, peer, paired.peer, paired.ratio, goal, this_machine(), met, paired.low, paired.high, is_sure, paired.pairs
    )


def figure(name: str, unit: str, value: float) -> Comparison:
    """Return a figure that has no peer and is not judged."""
    return Comparison(name, unit, value, None, None, None, None, this_machine(), None)


def against(name: str, unit: str, value: float, peer: tuple[str, float], goal: str, *, met: bool) -> Comparison:
    """Return the comparison of a value with a peer's, by name and value, that was not taken in pairs."""
    ratio = value / peer[1] if peer[1] else math.inf
    return Comparison(name, unit, value, *peer, ratio, goal, this_machine(), met)


def size_within(name: str, ours_mb: float, limit_mb: float) -> Comparison:
    """Return the comparison of a size in memory or on disk with the most that it may be."""
    return against(name, "MB", ours_mb, ("limit", limit_mb), f"<= {limit_mb:g} MB", met=ours_mb <= limit_mb)


def covered(name: str, share: float, reason: str | None = None) -> Comparison:
    """Return the share of intervals that hold the truth, which should be 93 to 97%; with the `reason` why they may be wide to 100%."""
    low, high = COVERAGE[0], 1.0 if reason else COVERAGE[1]
    goal = f"{low:.0%} to {high:.0%}" + (f" ({reason})" if reason else "")
    return against(name, "of the runs", share, ("stated", 0.95), goal, met=low <= share <= high)


def as_rows(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """Return the comparisons as they are written to the results file."""
    return [asdict(comparison) for comparison in comparisons]
