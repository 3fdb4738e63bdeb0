"""The judgement of published figures: what the rules say of each row, and how it compares with own runs and other rows."""

from collections.abc import Sequence

from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.published.against import comparisons_of, model_names
from edgemeter.collector.published.judgement import RowJudgement
from edgemeter.collector.published.name_matching import device_name, model_name
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rules import evidence_of, not_stated
from edgemeter.collector.runs.cases import grouped


def judge(
    rows: Sequence[PublishedRow], summaries: Sequence[CaseSummary] = (), other_rows: Sequence[PublishedRow] = ()
) -> list[RowJudgement]:
    """Return the judgement of each row, in their order; `other_rows` are compared with, and not judged themselves."""
    of_case = grouped((row.case, row) for row in rows)
    # Of thousands of rows, and of cases, a few are of one model.
    cases = grouped((name, case) for case in summaries for name in model_names(case))
    candidates = grouped((_subject(row), row) for row in {row.id: row for row in (*other_rows, *rows)}.values())
    return [
        RowJudgement(
            row=row,
            evidence=evidence_of(row, [companion for companion in of_case[row.case] if companion is not row]),
            comparisons=comparisons_of(
                row, cases.get(model_name(row.model).name, ()), [other for other in candidates[_subject(row)] if other is not row]
            ),
            not_stated=not_stated(row),
        )
        for row in rows
    ]


def _subject(row: PublishedRow) -> tuple[str, str, str]:
    return model_name(row.model).name, device_name(row.device).name, row.figure
