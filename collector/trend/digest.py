"""The digest: which of many series stand out today, by Benjamini and Hochberg, so that of those named few are there by chance.

The pager has a fixed threshold for each series; with thousands of series a digest finds more, and says how many of them are expected false.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.collector.trend.series_trend import SeriesTrend

FALSE_DISCOVERIES = 0.05


@dataclass(frozen=True, slots=True)
class Digest:
    """The series that stand out, the most unlikely first, of `looked_at`; at most the share `false_ratio` of them is expected false."""

    stand_out: tuple[SeriesTrend, ...]
    looked_at: int
    false_ratio: float


def digest(found: Sequence[SeriesTrend], false_ratio: float = FALSE_DISCOVERIES) -> Digest:
    """Return the digest of the newest looks; a series in which a step was just confirmed has begun a new level and is not among them."""
    ordered = sorted(found, key=lambda one: one.chance)
    last = max((place for place, one in enumerate(ordered, start=1) if one.chance <= false_ratio * place / len(ordered)), default=0)
    return Digest(tuple(ordered[:last]), len(ordered), false_ratio)
