"""The judgement of published figures: what the rules say of each row, and how it compares with own runs and other rows."""

from collections.abc import Sequence

from msgspec.structs import replace

from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.against import OwnCases, distance, few
from edgemeter.collector.published.judgement import RowJudgement
from edgemeter.collector.published.other_rows import OtherRows
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rules import evidence_of, not_stated
from edgemeter.collector.runs.cases import grouped


def judge(
    rows: Sequence[PublishedRow], summaries: Sequence[CaseSummary] = (), other_rows: Sequence[PublishedRow] = ()
) -> list[RowJudgement]:
    """Return the judgement of each row, in their order; `other_rows` are compared with, and not judged themselves."""
    return with_own_runs(judge_apart(rows, other_rows), summaries)


def judge_apart(rows: Sequence[PublishedRow], other_rows: Sequence[PublishedRow] = ()) -> list[RowJudgement]:
    """Return the judgement of each row by the rules and the other rows, whatever own runs there are."""
    of_case = grouped((row.case, row) for row in rows)
    rows_by_case = OtherRows(list({row.id: row for row in (*other_rows, *rows)}.values()))
    judged = []
    for row in rows:
        comparisons, further = rows_by_case.comparisons(row)
        companions = [companion for companion in of_case[row.case] if companion is not row]
        judged.append(
            RowJudgement(
                row=row,
                evidence=evidence_of(row, companions),
                comparisons=tuple(comparisons),
                not_stated=not_stated(row),
                further_comparisons=further,
            )
        )
    return judged


def with_own_runs(judged: Sequence[RowJudgement], summaries: Sequence[CaseSummary]) -> list[RowJudgement]:
    """Return judgements with the comparisons with own runs, which stand before those with other rows."""
    cases = OwnCases(summaries)
    extended = []
    for judgement in judged:
        comparisons = cases.comparisons(judgement.row)
        compared = few(comparisons, distance)
        further = judgement.further_comparisons + len(comparisons) - len(compared)
        extended.append(replace(judgement, comparisons=(*compared, *judgement.comparisons), further_comparisons=further))
    return extended
