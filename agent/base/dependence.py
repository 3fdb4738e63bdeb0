"""The uncertainty of a mean of values in a row, each of which takes after the one before: a first-order process."""

# A correlation that lasts for more than this share of the values: they do not tell a process that wanders from one that drifts away.
LONGEST_RATIO = 2 / 3


def variance_inflation(n: float, correlation: float) -> float:
    """Return the variance of a mean of n values whose neighbours have this correlation over that of n independent ones."""
    r = correlation
    inflation: float = (1 + r) / (1 - r) - 2 * r * (1 - r**n) / (n * (1 - r) ** 2)
    return inflation


def corrected_correlation(raw: float, n: float) -> float:
    """Return the correlation of neighbours, 0 or more, from that of n values about their own mean, which makes it too low.

    Source: Marriott and Pope, Biometrika 41 (1954) 390.
    """
    return min(longest_correlation(n), max(0.0, raw + (1 + 4 * raw) / n))


def longest_correlation(n: float) -> float:
    """Return the highest correlation of neighbours that n values can show."""
    return 1 - 1 / (LONGEST_RATIO * n)
