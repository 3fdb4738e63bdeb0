"""Thresholds of the scan: from which score on a step is a suspect, and from which it is taken for one.

`CHANCE` is which score the best split of a series without any step exceeds with which probability, in one look (simulated, 100,000 to
200,000 series of independent normal noise each). `STEP` lies above its 1 in 10,000 where a series is short, since what its noise is like
is known badly then. Looked at every day for 200 days, at most one stable series in 100 raises an alarm by chance on clean noise, and four
on dirty noise (`python -m tests.benchmarks.trend` measures it anew). Between the rows scores are interpolated.
"""

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.trend.noise import masked_median

# Points, and the score from which on a step is taken for one.
STEP = ((20, 9.0), (30, 8.0), (40, 7.0), (60, 5.8), (80, 5.1), (100, 4.8), (120, 4.7))
# More runs are asked for from here on.
SUSPECT = 2.7
# A change that somebody declared, or that the fingerprint shows: one look at one day, no search.
DECLARED = 3.3

# Where a suspect had more runs on so many days since its split, and runs are so large a share of what days of one run scatter, the step
# has been confirmed by runs that did not raise the suspicion: the score may be less by so much.
CONFIRMING_DAYS, RUN_SHARE, CONFIRMED_LESS = 5, 0.55, 0.85
# Days of several runs before the split are no answer to a suspicion: up to this share of them.
_USUAL_RATIO = 0.25

_PROBABILITIES = (0.5, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
CHANCE = {
    12: (0.74, 1.68, 2.33, 2.94, 3.64, 4.20, 4.88, 5.32),
    20: (1.21, 2.14, 2.75, 3.29, 3.85, 4.32, 4.96, 5.68),
    30: (1.41, 2.30, 2.86, 3.33, 3.83, 4.29, 4.77, 5.28),
    40: (1.52, 2.39, 2.91, 3.36, 3.82, 4.26, 4.67, 5.14),
    60: (1.64, 2.49, 2.98, 3.40, 3.81, 4.18, 4.54, 4.89),
    80: (1.63, 2.47, 2.95, 3.33, 3.74, 4.09, 4.46, 4.80),
    120: (1.59, 2.43, 2.90, 3.27, 3.65, 3.94, 4.23, 4.62),
}


@overload
def step_score(points: int) -> float: ...
@overload
def step_score(points: NDArray[np.int64]) -> NDArray[np.float64]: ...
def step_score(points: NDArray[np.int64] | int) -> NDArray[np.float64] | float:
    """Return the score from which on a step is taken for one, for series of so many points."""
    at, score = zip(*STEP, strict=True)
    found: NDArray[np.float64] = np.interp(points, at, score)
    return float(found) if isinstance(points, int) else found


def less_where_confirmed(
    runs: NDArray[np.int64], known: NDArray[np.float64], day_variance: NDArray[np.float64], split: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return by how much less the score has to be, 0 or `CONFIRMED_LESS` [series].

    `runs` and `known` [series, days] are how many runs a day has (0: it has no point) and the variance that is known of it.
    """
    after = np.arange(runs.shape[1])[None, :] >= split[:, None]
    is_repeated, is_there = runs > 1, runs > 0
    confirming = (is_repeated & after).sum(axis=1) >= CONFIRMING_DAYS
    before = (is_there & ~after).sum(axis=1)
    unusual = (is_repeated & ~after).sum(axis=1) <= _USUAL_RATIO * np.maximum(before, 1)
    single = np.nan_to_num(masked_median(known * runs, is_there))
    mostly_runs = single >= RUN_SHARE * (single + day_variance)
    return np.where(confirming & unusual & mostly_runs, CONFIRMED_LESS, 0.0)


def chance(score: float, points: int) -> float:
    """Return with which probability a series of so many points without any step has this score or a higher one, in one look.

    Beyond the table it goes on as a straight line on logarithms, which overstates it.
    """
    columns = [float(np.interp(points, list(CHANCE), [row[place] for row in CHANCE.values()])) for place in range(len(_PROBABILITIES))]
    logs = [math.log(probability) for probability in _PROBABILITIES]
    if score <= columns[-1]:
        return math.exp(float(np.interp(score, [0.0, *columns], [0.0, *logs])))
    rate = (logs[-1] - logs[-2]) / (columns[-1] - columns[-2])
    return math.exp(max(logs[-1] + rate * (score - columns[-1]), -700.0))
