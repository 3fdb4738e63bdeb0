"""One line of a benchmark: our figure beside a peer's or a bare limit's, taken in the same run, interleaved.

Machines are shared, and one is six times slower than it was yesterday: only ratios are judged. What has no peer is a figure, printed and
never judged, but for sizes in memory and on disk, which the load of a machine does not change.
"""

import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks import interleaving
from tests.benchmarks.interleaving import RatioInterval

ROOT = Path(__file__).resolve().parents[2]


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
class Goal:
    """Bounds of a ratio, in words too; `reach` is how far its interval may reach to each side for the goal to be met."""

    text: str
    low: float = 0.0
    high: float = math.inf
    reach: float = math.inf

    @property
    def limit(self) -> float:
        """The bound of a goal that has one; the upper of two."""
        return self.high if math.isfinite(self.high) else self.low

    def is_decided_by(self, interval: RatioInterval) -> bool:
        """Return whether the interval lies within the bounds, and is narrow enough, or lies outside."""
        if interval.high < self.low or interval.low > self.high:
            return True
        return self.low <= interval.low and interval.high <= self.high and interval.high - interval.low <= 2 * self.reach


@dataclass(frozen=True, slots=True)
class Line:
    """What is compared in which unit, with which peer, and what is asked of the ratio; nothing is without a goal."""

    name: str
    unit: str
    peer: str
    goal: Goal | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio` is ours / peer, with its 95% interval where it was taken in pairs; `goal` says in words what it should be.

    `is_sure` is false where the goal lies within the interval: another time the answer may be another. `met` is None where nothing is
    judged. `limit` is the goal's bound. `rounds` are our values and the peer's in `unit`, the medians of neighbouring pairs where there are
    many. Of `pairs` the ratio is; `repeated` more were disturbed by others, and measured again.
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
    rounds: tuple[interleaving.Pair, ...] = ()
    pairs: int = 0
    repeated: int = 0
    limit: float | None = None

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `not sure`, or nothing where there is no goal."""
        if self.met is None:
            return ""
        return "not sure" if not self.is_sure else "met" if self.met else "missed"


def this_machine() -> str:
    """Return what the figures were taken on."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - Linux only, like the agent
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} x {len(names)}, Python {platform.python_version()}"


def at_most(limit: float, reach: float = math.inf) -> Goal:
    """Return the goal of a ratio of at most `limit`, whose interval should reach at most so far to each side."""
    return Goal(f"ratio <= {limit:g}" + (f", to ±{reach:g}" if math.isfinite(reach) else ""), high=limit, reach=reach)


def at_least(limit: float) -> Goal:
    """Return the goal of a ratio of at least `limit`."""
    return Goal(f"ratio >= {limit:g}", low=limit)


def compared(line: Line, pair: Callable[[], interleaving.Pair], seconds: float, *, has_processes: bool = False) -> Comparison:
    """Return what pairs of blocks say, which end when they decide against the goal, or after `seconds`.

    `has_processes` is whether processes that descend from this one work in the blocks.
    """
    goal = line.goal

    def decides(interval: RatioInterval) -> bool:
        return goal is not None and goal.is_decided_by(interval)

    return _judged(line, interleaving.measure(pair, seconds, decides, has_processes=has_processes))


def compared_pairs(line: Line, pairs: Sequence[interleaving.Pair]) -> Comparison:
    """Return what pairs say that were measured with others', so that nobody looked at them before."""
    return _judged(line, interleaving.summary(pairs))


def _judged(line: Line, paired: interleaving.Paired) -> Comparison:
    goal = line.goal
    return Comparison(
        *(line.name, line.unit, paired.ours, line.peer, paired.peer, paired.ratio),
        goal=goal.text if goal else None,
        machine=this_machine(),
        met=None if goal is None else goal.low <= paired.ratio <= goal.high,
        ratio_low=paired.low,
        ratio_high=paired.high,
        is_sure=goal is None or (paired.has_quiet_pairs and goal.is_decided_by(RatioInterval(paired.low, paired.high))),
        rounds=paired.groups,
        pairs=paired.pairs,
        repeated=paired.repeated,
        limit=goal.limit if goal else None,
    )


def figure(name: str, unit: str, value: float) -> Comparison:
    """Return a figure that has no peer and is not judged."""
    return Comparison(name, unit, value, None, None, None, None, this_machine(), None)


def against(name: str, unit: str, value: float, peer: tuple[str, float], goal: str, *, met: bool) -> Comparison:
    """Return the comparison of a value with a peer's, by name and value, that was not taken in pairs."""
    ratio = value / peer[1] if peer[1] else math.inf
    return Comparison(name, unit, value, *peer, ratio, goal, this_machine(), met)


def bounded(name: str, unit: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> Comparison:
    """Return a figure that has a bound and no peer, such as how often a method errs in a world that is known."""
    goal = f"at most {at_most:g} {unit}" if at_most is not None else f"at least {at_least:g} {unit}"
    met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    return Comparison(name, unit, value, None, None, None, goal, this_machine(), met)


def as_rows(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """Return the comparisons as they are written to the results file."""
    return [asdict(comparison) for comparison in comparisons]
