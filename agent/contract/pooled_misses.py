"""Missed frames of several runs of one case together, scenario `steady`: their share, and how well it is known."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from edgemeter.agent.base.statistics import exact_interval
from edgemeter.agent.contract.record_figures import Steady

# A rate is held where certainly less is missed.
MOST_MISSED_RATIO = 0.01
# By simulation bounds from fewer bursts than these hold too seldom.
FEWEST_BURSTS = 5
# Runs of one rate scatter more than this many times as much as chance in one of twenty comparisons of three.
MOST_SCATTER = 3.0


class PooledMisses(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the frames of all runs that was dropped or late, with its 95% bounds: null if the runs do not bear any.

    `bursts` are those that the missed frames came in, `scatter` is how many times as much the runs differ as chance lets them, in variances
    (null of one run), `run_s` is the length of the shortest run.
    """

    frames: int
    run_s: float
    bursts: int
    ratio: float
    scatter: float | None
    low_ratio: float | None
    high_ratio: float | None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The bounds of the share."""
        return None if self.low_ratio is None or self.high_ratio is None else (self.low_ratio, self.high_ratio)

    def is_below(self, limit_ratio: float) -> bool | None:
        """Return whether the share is below a limit, None where its bounds leave that open."""
        low, high = self.bounds or (0.0, 1.0)
        return None if low < limit_ratio <= high else high < limit_ratio

    @property
    def is_rate_of_bursts_known(self) -> bool:
        """Whether the runs saw enough bursts, each about as many, to tell how often they come in another; no bounds tell what few saw."""
        return self.bursts >= FEWEST_BURSTS and (self.scatter is None or self.scatter <= MOST_SCATTER)


def pooled_misses(of_runs: Iterable[Steady | None], limit_ratio: float = 0.0) -> PooledMisses | None:
    """Return what was missed in all runs of frames, None without any.

    There are no bounds where a run is surely above the limit and all together are below.

    Frames of each run depend on each other as those of the worst do: that another one saw no burst does not mean that it has none. Where
    runs differ more than chance lets them, their frames are worth fewer still.
    """
    if not (runs := [part for part in of_runs if part is not None and part.frames and part.rate_per_s]):
        return None
    frames = sum(part.frames for part in runs)
    ratio = sum(map(_missed, runs)) / frames
    is_split = ratio < limit_ratio and any((part.missed_low_ratio or 0.0) >= limit_ratio for part in runs)
    # How many frames count as one.
    dependence = [part.frames / part.effective if part.effective else None for part in runs]
    scatter = bounds = None
    if len(runs) == 1:
        bounds = runs[0].missed_low_ratio, runs[0].missed_high_ratio
    elif None not in dependence:
        worst = max(filter(None, dependence))
        scatter = _scatter(runs, ratio) / worst
        effective = frames / worst / max(1.0, scatter)
        bounds = exact_interval(ratio * effective, effective)
    low_ratio, high_ratio = (None, None) if bounds is None or is_split else bounds
    return PooledMisses(
        frames=frames,
        run_s=min(part.frames / part.rate_per_s for part in runs),
        bursts=sum(map(_bursts, runs)),
        ratio=ratio,
        scatter=scatter,
        low_ratio=low_ratio,
        high_ratio=high_ratio,
    )


def _scatter(runs: Sequence[Steady], ratio: float) -> float:
    """Return the variance of the missed frames of runs over that of independent frames with this share."""
    if not 0 < ratio < 1:
        return 0.0
    squares = math.fsum((_missed(part) - ratio * part.frames) ** 2 / part.frames for part in runs)
    return squares / (ratio * (1 - ratio) * (len(runs) - 1))


def _missed(steady: Steady) -> int:
    return steady.dropped + steady.late


def _bursts(steady: Steady) -> int:
    """Return in how many bursts frames were missed, of an older record in how many at the least."""
    return math.ceil(_missed(steady) / max(steady.longest_row, 1)) if steady.bursts is None else steady.bursts
