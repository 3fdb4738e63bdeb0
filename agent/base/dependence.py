"""The uncertainty of a mean of autocorrelated values (a first-order process)."""

# A correlation over more than this share of the values cannot distinguish a wandering process from
# a drift.
LONGEST_RATIO = 2 / 3


def variance_inflation(n: float, correlation: float) -> float:
    """Return how much the correlation of neighbours inflates the variance of a mean of n values.

    It is the ratio to the variance of a mean of n independent values.
    """
    r = correlation
    inflation: float = (1 + r) / (1 - r) - 2 * r * (1 - r**n) / (n * (1 - r) ** 2)
    return inflation


def longest_correlation(n: float) -> float:
    """Return the highest correlation of neighbours that n values can show."""
    return 1 - 1 / (LONGEST_RATIO * n)
