"""The table of a comparison has a row for each case, grouped by comparability.

The reference is first; equal boards are one row.
"""

from collections.abc import Sequence
from typing import NamedTuple

from edgemeter.agent.base import number_text
from edgemeter.agent.base.decision import Decision
from edgemeter.agent.contract.figures import ENERGY, LATENCY, TTFT, Figure
from edgemeter.collector.compare.boards import worst_board
from edgemeter.collector.compare.columns import COLUMNS
from edgemeter.collector.compare.comparison import ComparedCase, Comparison, comparable
from edgemeter.collector.compare.figure_differences import speed_of
from edgemeter.collector.show.compare_table import figure_heading, figure_in_column, shown_figures
from edgemeter.collector.show.comparison_charts import anchor, facts
from edgemeter.collector.show.series_style import assign_styles
from edgemeter.collector.show.words import case_names, change_parts, figure_text, work_text
from edgemeter.collector.web.choice_filter import ChoiceFilter
from edgemeter.collector.web.markup import Attributes
from edgemeter.collector.web.queries import ViewContext
from edgemeter.collector.web.view import Pager, ViewColumn, ViewGrid, ViewRequest, pager

# Cases of one page of the table, and listed boards of a type, slowest first: people read no more.
CASES_SHOWN, BOARDS_LISTED = 100, 100
# Figures of a higher rank are in the exports only.
HIGHEST_RANK = 3
# With more devices than this a colour denotes a board type.
DEVICES_IN_COLOUR = 7
# These columns need the records of a case, so only `edgemeter compare --format csv` has them: a
# page of thousands of cases reads none.
OF_RECORDS = (
    "dataset", "dataset_images", "model_file", "model_format", "model_size_bytes", "prompt_tokens",
    "output_tokens", "last_started_at_ns", "run_ids", "reference_run_ids",
)  # fmt: skip


class CaseGroup(NamedTuple):
    """Cases that may be compared, or that are interchangeable.

    It has their models, their task, and their table.
    """

    models: Sequence[str]
    task: str
    grid: ViewGrid[ComparedCase]


class CasePage(NamedTuple):
    """A page of the table, and whether boards of a type are not listed on it."""

    pages: Pager
    groups: Sequence[CaseGroup]
    has_more_boards: bool


class CaseTable:
    """The table of a comparison, with every case, chosen `by_limits`.

    Cases of boards of one type are one row in `folded`.

    The table has pages, and is in the order of a choice; an export has every case.
    """

    def __init__(
        self,
        context: ViewContext,
        comparison: Comparison,
        folded: Comparison,
        by_limits: ChoiceFilter | None,
    ) -> None:
        # If boards are one row, a colour is a board type.
        most_devices = 0 if len(folded.rows) < len(comparison.rows) else DEVICES_IN_COLOUR
        self.styles = assign_styles(comparison.rows, most_devices)
        self.plain = ViewGrid("comparison", _PLAIN_COLUMNS, [comparison.rows]).plain
        self._links, self._folded, self._by_limits = context.links, folded, by_limits
        # By identity: any other row combines several boards.
        self._shown_ids = frozenset(map(id, folded.rows))

    def page(self, request: ViewRequest) -> CasePage:
        """Return the selected page of cases, grouped by comparability."""
        every_page = _pages(
            self._by_limits.in_order(self._folded.rows) if self._by_limits else self._folded.rows
        )
        pages = pager(request, self._links, len(every_page), 1, "Page")
        rows = every_page[pages.page]
        # Interchangeable cases of several models are one list.
        return CasePage(
            pages,
            [
                self._group(group)
                for group in ([rows] if self._by_limits else comparable(rows))
                if group
            ],
            any(len(row.boards) > BOARDS_LISTED for row in rows),
        )

    def _group(self, rows: Sequence[ComparedCase]) -> CaseGroup:
        models = list(dict.fromkeys(row.case.key.model for row in rows))
        text = f"{rows[0].case.key.task}, {work_text(rows[0].case)}"
        lines = [(row, *row.boards[:BOARDS_LISTED]) for row in rows]
        columns = self._columns([row for line in lines for row in line])
        groups = lines if any(row.boards for row in rows) else [rows]
        return CaseGroup(models, text, ViewGrid(models[0], columns, groups, self._attributes))

    def _attributes(self, row: ComparedCase) -> Attributes:
        is_board = not row.boards and id(row) not in self._shown_ids
        outcome = self._by_limits.outcome(row) if self._by_limits else None
        words = {
            "boards": row.boards, "board": is_board, "reference": self.styles.is_reference(row),
            "disturbed": row.case.disturbed,
            "pick": outcome == "recommended", "out": outcome == "not met",
        }  # fmt: skip
        return {
            "id": anchor(row),
            "class": " ".join(word for word, is_so in words.items() if is_so) or None,
            **facts(row),
        }

    def _columns(self, rows: Sequence[ComparedCase]) -> list[ViewColumn[ComparedCase]]:
        """Return the columns of a group, whose cases have names that are unique within it."""
        alone = [row for row in rows if not row.boards]
        called = dict(zip(map(id, alone), case_names([row.case for row in alone]), strict=True))

        def name(row: ComparedCase) -> str:
            # Boards of a type have one name: they are equal in all fields that distinguish cases of
            # one device.
            return called[id(row.boards[0] if row.boards else row)]

        return [
            ViewColumn("device", "Device", lambda row: row.case.key.device, is_text=True),
            ViewColumn("case", "Case", name, is_text=True),
            ViewColumn("verdict", "Verdict", lambda row: row.case.verdict, is_text=True),
            *([self._by_limits.column] if self._by_limits else []),
            *(
                _figure(entry, rows)
                for entry in shown_figures([row.case for row in rows], HIGHEST_RANK)
            ),
            ViewColumn("runs", "Runs", lambda row: len(row.case.verdicts), needs_width=True),
        ]


_PLAIN_COLUMNS = [
    ViewColumn(name, name, value) for name, value in COLUMNS.items() if name not in OF_RECORDS
]


def _pages(rows: Sequence[ComparedCase]) -> list[list[ComparedCase]]:
    """Return the rows page by page; the boards of a type are on one page."""
    pages: list[list[ComparedCase]] = [[]]
    count = 0
    for row in rows:
        if count >= CASES_SHOWN:
            pages.append([])
            count = 0
        pages[-1].append(row)
        count += max(1, len(row.boards))
    return pages


class FigureCell(NamedTuple):
    """A figure of a case, with its difference from the reference's and the decision on it.

    It has its value, or the reason why there is none. `amount` and `interval` are that difference
    in words, empty if the values are equal.
    """

    value: str
    small: Sequence[str] = ()
    absent_reason: str | None = None
    not_ranked: str | None = None
    worst_board: str | None = None
    decision: Decision | None = None
    amount: str = ""
    interval: str = ""


def _figure(entry: Figure, rows: Sequence[ComparedCase]) -> ViewColumn[ComparedCase]:
    """Return the column of a figure.

    It has the value with its interval, and its difference from the reference's.
    """
    cases = [row.case for row in rows]

    def value(row: ComparedCase) -> float | None:
        figure = row.case.figures.get(entry.name)
        return figure.value if figure else None

    is_speed = entry.name in set(map(speed_of, cases))
    return ViewColumn(
        entry.name,
        figure_heading(entry, cases),
        value,
        lambda row: _cell(row, entry),
        needs_width=not (entry.is_main or is_speed),
    )


def _cell(row: ComparedCase, entry: Figure) -> FigureCell:
    case = row.case
    figure = figure_in_column(entry, case)
    if figure is None:
        reason = {
            "accuracy": case.accuracy_reason or "not scored",
            "energy": case.energy_reason or "not measured",
        }.get(entry.group)
        return FigureCell(
            "none" if reason else number_text.typeset(number_text.ABSENT), absent_reason=reason
        )
    value, _, bounds = figure_text(entry, figure).partition(" (")
    energy = str(case.energy.ranks_as) if entry.name == ENERGY and case.energy else ""
    is_ranking = entry.name == (TTFT if case.generates else speed_of(case))
    worst = worst_board(row, entry.name) if entry.name in (LATENCY, ENERGY) else None
    decision, amount, interval = row.decisions.get(entry.name), "", ""
    is_equal = (
        decision
        and decision.low == decision.high
        and decision.value == (1 if decision.scale == "ratio" else 0)
    )
    if decision and not is_equal:
        amount, interval = map(number_text.typeset, change_parts(entry.name, decision))
    return FigureCell(
        value,
        [text for text in (bounds.rstrip(")"), energy) if text],
        not_ranked=row.not_ranked if is_ranking else None,
        worst_board=worst.case.key.device if worst else None,
        decision=decision,
        amount=amount,
        interval=interval,
    )
