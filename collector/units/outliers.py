"""Outlying boards: the generalised extreme studentised deviate of Rosner (1983), with a floor below which boards always spread.

One board at +10 % among 20 that spread by 2 % is found in 88 of 100 fleets, a healthy fleet is accused in 3; the median absolute deviation
with the same floor finds 81 and accuses 4. Up to a quarter of the boards may be sick without hiding each other.
`python -m tests.benchmarks.trend` measures it anew.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.collector.units import student

FEWEST = 6
FALSE_ACCUSATIONS = 0.04
# Boards of one type are never taken to be more alike than this (per cent, one standard deviation).
FLOOR = 1.5
MOST_SICK_RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Outlier:
    """A board that lies apart: its place among the values, how far it is from the mean of the healthy ones, and its score."""

    place: int
    distance: float
    score: float
    limit: float


def outliers(values: Sequence[float], floor: float = FLOOR) -> list[Outlier] | None:
    """Return the outliers among one value a board, the worst first; None where there are too few boards to judge."""
    if len(values) < FEWEST:
        return None
    x = np.asarray(values, dtype=np.float64)
    left = list(range(len(x)))
    seen: list[tuple[int, float, float]] = []
    sick = 0
    for _ in range(max(1, int(len(x) * MOST_SICK_RATIO))):
        place = max(left, key=lambda one: abs(x[one] - x[left].mean()))
        others = x[[one for one in left if one != place]]
        spread = max(float(others.std(ddof=1)), floor) * math.sqrt(1 + 1 / len(others))
        score = abs(float(x[place] - others.mean())) / spread
        limit = student.quantile(1 - FALSE_ACCUSATIONS / (2 * len(left)), len(left) - 2)
        seen.append((place, score, limit))
        # All up to the last one beyond its limit: what is worse than a sick board is sick too.
        if score > limit:
            sick = len(seen)
        left.remove(place)
    apart = {place for place, _, _ in seen[:sick]}
    healthy = float(np.mean([value for place, value in enumerate(x) if place not in apart]))
    found = [Outlier(place, float(x[place]) - healthy, score, limit) for place, score, limit in seen[:sick]]
    return sorted(found, key=lambda one: -abs(one.distance))
