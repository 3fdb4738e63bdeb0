"""A published figure against own runs of its case, and against other published rows of it."""

from collections.abc import Sequence

from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.judgement import PublishedComparison
from edgemeter.collector.published.row import PublishedRow


def comparisons_of(
    row: PublishedRow, summaries: Sequence[CaseSummary] = (), others: Sequence[PublishedRow] = ()
) -> tuple[PublishedComparison, ...]:
    """Return how the figure compares with the own cases and the other rows that may be of its case."""
    return ()
