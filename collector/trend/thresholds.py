"""Thresholds of the scan: from which score on a step is a suspect, and from which it is taken for one.

`CHANCE` is which score the best split of a series without any step exceeds with which probability, in one look (simulated, 150,000 to
200,000 series of independent normal noise each). `STEP` lies above its 1 in 10,000 where a series is short, since what its noise is like
is known badly then. Looked at every day for 200 days, at most one stable series in 100 raises an alarm by chance on clean noise, and four
on dirty noise (`python -m tests.benchmarks.trend` measures it anew). Between the rows scores are interpolated.
"""

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray

# Points, and the score from which on a step is taken for one.
STEP = ((20, 9.0), (30, 8.0), (40, 7.0), (60, 5.7), (80, 5.0), (100, 4.7), (120, 4.6))
# More runs are asked for from here on.
SUSPECT = 2.7
# A change that somebody declared, or that the fingerprint shows: one look at one day, no search.
DECLARED = 3.3

_PROBABILITIES = (0.5, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
CHANCE = {
    12: (0.78, 1.79, 2.52, 3.21, 4.01, 4.70, 5.60, 6.09),
    20: (1.27, 2.26, 2.95, 3.55, 4.20, 4.82, 5.49, 5.97),
    30: (1.47, 2.42, 3.02, 3.53, 4.11, 4.62, 5.14, 5.71),
    40: (1.57, 2.49, 3.06, 3.54, 4.03, 4.53, 4.96, 5.45),
    60: (1.69, 2.57, 3.10, 3.54, 3.99, 4.37, 4.73, 5.14),
    80: (1.68, 2.54, 3.04, 3.45, 3.88, 4.26, 4.62, 5.01),
    120: (1.63, 2.49, 2.98, 3.36, 3.74, 4.08, 4.36, 4.77),
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
