"""Bounds of a share of trials that succeeded."""

import math
from statistics import NormalDist

# How many standard errors 95 % bounds reach to each side.
_REACH = NormalDist().inv_cdf(0.975)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % bounds of the share, 0..1; they hold for few trials and for shares near 0 and 1, where normal ones do not.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927), 209-212.
    """
    z = _REACH
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # At 0 and 1 the bound is exact; rounding must not put the share outside it.
    return min(max(middle - reach, 0.0), share), max(min(middle + reach, 1.0), share)


def standard_error(successes: int, trials: int) -> float:
    """Return the standard error that these bounds imply: never 0, as that of the share itself is when all trials end alike."""
    low, high = wilson(successes, trials)
    return (high - low) / 2 / _REACH
