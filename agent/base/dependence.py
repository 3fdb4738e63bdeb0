"""The uncertainty of a mean of values in a row, each of which takes after the one before: a first-order process."""

# A correlation that lasts for more than this share of the values: they do not tell a process that wanders from one that drifts away.
LONGEST_RATIO = 2 / 3


def variance_inflation(n: float, correlation: float) -> float:
    """Return the variance of a mean of n values whose neighbours have this correlation over that of n independent ones."""
    r = correlation
    inflation: float = (1 + r) / (1 - r) - 2 * r * (1 - r**n) / (n * (1 - r) ** 2)
    return inflation


def longest_correlation(n: float) -> float:
    """Return the highest correlation of neighbours that n values can show."""
    return 1 - 1 / (LONGEST_RATIO * n)
