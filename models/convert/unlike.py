"""When values are too unlike to share one int8 scale."""

from collections.abc import Sequence

# Of 256 steps the smaller values keep fewer than 64.
UNLIKE_RANGES = 4.0


def is_unlike(largest: Sequence[float]) -> bool:
    """Return whether tensors with these largest magnitudes cannot be joined in int8."""
    return len(largest) > 1 and max(largest) > UNLIKE_RANGES * min(largest)
