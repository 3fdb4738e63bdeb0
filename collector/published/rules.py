"""The rules of judgement: each holds a row against a bound of physics, arithmetic or statistics, and says its arithmetic."""

from collections.abc import Sequence

from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.row import PublishedRow


def evidence_of(row: PublishedRow, companions: Sequence[PublishedRow] = ()) -> tuple[Evidence, ...]:
    """Return what the rules say of a row; `companions` are the other figures of its case."""
    return ()


def not_stated(row: PublishedRow) -> tuple[str, ...]:
    """Return the conditions that a figure of this kind depends on and the source does not state."""
    return ()
