"""Missed frames of several runs of one case together, scenario `steady`: their share, and how well it is known."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from edgemeter.agent.base.evidence import CONFIDENCE, FEWEST
from edgemeter.agent.base.statistics import exact_interval, student_quantile
from edgemeter.agent.contract.record_figures import Steady

# A rate is held where less is missed.
MOST_MISSED_RATIO = 0.01
# Fewer frames do not show whether less than 1% is missed: of so many one in twenty sees none where 1% is.
FEWEST_FRAMES = 300


@dataclass(frozen=True, slots=True)
class PooledMisses:
    """The share of the frames of all runs that was dropped or late, with its 95% interval over the runs: None below three of them.

    `is_held` is whether less than 1% was missed in every run; None where runs disagree, or have too few frames.
    """

    ratio: float
    bounds: tuple[float, float] | None
    is_held: bool | None


def pooled_misses(of_runs: Iterable[Steady | None]) -> PooledMisses | None:
    """Return what was missed in all runs of frames, None without any.

    The interval is Student's t on the shares of the runs, and never narrower than the counted frames allow: runs that missed none do not
    show that none is ever missed.
    """
    if not (runs := [part for part in of_runs if part is not None and part.frames]):
        return None
    frames, missed = sum(part.frames for part in runs), sum(part.dropped + part.late for part in runs)
    shares = [(part.dropped + part.late) / part.frames for part in runs]
    bounds = None
    if len(runs) >= FEWEST:
        low, high = exact_interval(missed, frames)
        reach = student_quantile(CONFIDENCE, len(runs) - 1) * stdev(shares) / math.sqrt(len(runs))
        bounds = max(0.0, min(low, fmean(shares) - reach)), min(1.0, max(high, fmean(shares) + reach))
    are_low = {share < MOST_MISSED_RATIO for share in shares}
    return PooledMisses(missed / frames, bounds, are_low.pop() if len(are_low) == 1 and frames >= FEWEST_FRAMES else None)
