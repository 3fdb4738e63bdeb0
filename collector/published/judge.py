"""The judgement of published figures: what the rules say of each row, and how it compares with own runs and other rows."""

from collections import defaultdict
from collections.abc import Sequence

from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.against import comparisons_of
from edgemeter.collector.published.judgement import RowJudgement
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rules import evidence_of, not_stated


def judge(rows: Sequence[PublishedRow], summaries: Sequence[CaseSummary] = (), others: Sequence[PublishedRow] = ()) -> list[RowJudgement]:
    """Return the judgement of each row, in their order; `others` are rows to compare with that are not judged themselves."""
    of_case: defaultdict[tuple[object, ...], list[PublishedRow]] = defaultdict(list)
    for row in rows:
        of_case[row.case].append(row)
    candidates = {row.id: row for row in (*others, *rows)}
    return [
        RowJudgement(
            row=row,
            evidence=evidence_of(row, [companion for companion in of_case[row.case] if companion is not row]),
            comparisons=comparisons_of(row, summaries, [other for other in candidates.values() if other.id != row.id]),
            not_stated=not_stated(row),
        )
        for row in rows
    ]
