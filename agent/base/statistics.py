"""Statistics without scipy, for intervals and tests over repeated runs.

It has Student's t and Wilson's interval.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

# Fewer runs, days or pairs do not show their scatter.
FEWEST = 3
_TINY = 1e-300
_CLOSE = 1e-15
_STEPS = 500
_SURE = 1e-12  # Relative tolerance of a quantile.
# The error of Newton's method is about the square of its last step; within this ratio of the end,
# the probability itself decides on which side a value is.
_LAST_STEP, _NEAR, _MOST_STEPS = 1e-8, 1e-11, 200
# With more degrees of freedom Student's t is normal to 7 digits, and the differences of logarithms
# of the gamma function lose theirs.
_MOST_FREEDOM = 1e7


def student_two_sided_p(t: float, freedom: float) -> float:
    """Return P(|T| >= |t|), 0..1, of Student's t with `freedom` degrees of freedom.

    The degrees are > 0, need not be whole, and may be infinite.
    """
    if math.isinf(t):
        return 0.0
    freedom = min(freedom, _MOST_FREEDOM)
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(maxsize=4096)
def student_quantile(confidence: float, freedom: float) -> float:
    """Return the t that bounds `confidence` (0..1) of the distribution from both sides.

    So P(|T| <= t) = confidence.
    """
    tail, freedom = 1 - confidence, min(freedom, _MOST_FREEDOM)
    near = _near_quantile(confidence, freedom)

    def is_below(t: float) -> bool:
        return t < near if abs(t - near) > _NEAR * near else student_two_sided_p(t, freedom) > tail

    low, high = 0.0, 1.0
    while is_below(high):
        low, high = high, high * 2
    while high - low > _SURE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def _near_quantile(confidence: float, freedom: float) -> float:
    """Return the quantile by Newton's method, which converges from below.

    The probability beyond t falls ever more slowly.
    """
    from statistics import NormalDist  # noqa: PLC0415 - takes long to import

    log_scale = (
        math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    )
    t = NormalDist().inv_cdf((1 + confidence) / 2)
    # With very many degrees of freedom, the probability is less precise than the last step needs.
    for _ in range(_MOST_STEPS):
        density = math.exp(log_scale - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (student_two_sided_p(t, freedom) - (1 - confidence)) / (2 * density)
        t += step
        if abs(step) <= _LAST_STEP * t:
            break
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The continued fraction converges quickly only below the mean of the distribution.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c = 1.0
    d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for step in range(1, _STEPS):
        for term in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# Standard errors of 95% bounds to each side: the normal quantile of 0.975.
_WILSON_REACH = 1.9599639845400536


def wilson_interval(
    successes: float, trials: float, reach: float = _WILSON_REACH
) -> tuple[float, float]:
    """Return the bounds of a share, 0..1, by Wilson's interval.

    They are valid for few trials and for shares near 0 and 1, unlike normal ones.

    `reach` is their distance in standard errors, by default that of 95% bounds; dependent trials
    count as fewer.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    JASA 22 (1927), 209-212.
    """
    z = reach
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z
        / (1 + z * z / trials)
        * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    )
    # At 0 and 1 the bound is exact; rounding must not put the share outside it.
    return min(max(middle - half, 0.0), share), max(min(middle + half, 1.0), share)


_SAME = 1e-9  # Values closer than this are equal: sums in another order differ by as much.


def jackknife_error(without_parts: Sequence[float]) -> float | None:
    """Return the standard error of a figure from its values without one part of the data each.

    None if no part changes it, as when everything is right: then the scatter is unknown, not zero.

    Source: P. S. Kott, "The delete-a-group jackknife", Journal of Official Statistics 17 (2001),
    521-526.
    """
    if math.isclose(min(without_parts), max(without_parts), rel_tol=_SAME, abs_tol=_SAME):
        return None
    parts = len(without_parts)
    middle = math.fsum(without_parts) / parts
    return math.sqrt(
        (parts - 1) / parts * math.fsum((value - middle) ** 2 for value in without_parts)
    )


_LEAST_FREEDOM = 3.0  # So few parts cannot distinguish fewer degrees of freedom.


def jackknife_freedom(without_parts: Sequence[float]) -> float:
    """Return the degrees of freedom of `jackknife_error`.

    They are one fewer than the parts, and fewer still if a few parts dominate.

    They are those of a variance with the kurtosis of the parts: an error that depends on one or two
    parts is poorly known, such as a word error rate to which one bad recording contributes half. At
    least 3.

    Source: F. E. Satterthwaite, Biometrics Bulletin 2 (1946), 110-114; kurtosis G2 of D. N. Joanes
    and C. A. Gill, The Statistician 47 (1998), 183-189.
    """
    parts = len(without_parts)
    if parts < 4:
        return parts - 1.0
    middle = math.fsum(without_parts) / parts
    squares = [(value - middle) ** 2 for value in without_parts]
    fourth = parts * math.fsum(square * square for square in squares) / math.fsum(squares) ** 2
    excess = (parts - 1) / ((parts - 2) * (parts - 3)) * ((parts + 1) * (fourth - 3) + 6)
    freedom = 2 / (2 / (parts - 1) + max(excess, 0.0) / parts)
    # In steps, so that quantiles are cached.
    return round(max(freedom, min(_LEAST_FREEDOM, parts - 1)), 1)
