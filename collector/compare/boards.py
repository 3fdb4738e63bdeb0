"""The boards of one type as one row: each figure over all of them, and the worst board."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from operator import attrgetter

from msgspec.structs import replace as with_fields

from edgemeter.agent.base.evidence import SESSION_SD, RunValue
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.statistics import FEWEST
from edgemeter.agent.contract.figures import ACCURACY
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.collector.compare.accuracy_and_energy import AccuracySummary
from edgemeter.collector.compare.case_figure import CaseFigure, figure_of_values
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.figure_differences import better_of
from edgemeter.collector.compare.summary import ENVIRONMENT, CaseSummary, CaseSurroundings
from edgemeter.collector.runs.cases import distinct, grouped


def fold_boards(comparison: Comparison) -> Comparison:
    """Return the comparison with one row for the boards of a type (three and more).

    Their cases are equal except for the device. The figures of such a row are over its boards, each
    of which counts once; `boards` are the combined rows, slowest first. Boards of unknown type stay
    as they are, as does the reference.
    """
    alike = grouped((_alike(index, row), row) for index, row in enumerate(comparison.rows))
    rows = [
        row
        for members in alike.values()
        for row in ([_of_boards(members)] if len(members) >= FEWEST else members)
    ]
    return replace(comparison, rows=tuple(rows))


def worst_board(row: ComparedCase, name: str) -> ComparedCase | None:
    """Return the board of a folded row that is worst by a figure.

    It is None if no board has it, or all are equal.
    """
    having = [
        (figure.value, board)
        for board in row.boards
        if (figure := board.case.figures.get(name)) is not None
    ]
    if len({value for value, _ in having}) < 2:
        return None
    is_higher_better = better_of(name, having[0][1].case) == "higher"
    return (min if is_higher_better else max)(having, key=lambda pair: pair[0])[1]


def over_boards(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Return the cases with one for the boards of a type (three and more).

    Their cases are equal except for the device.
    """
    alike = grouped((_kind(index, case), case) for index, case in enumerate(cases))
    return [
        case
        for members in alike.values()
        for case in ([CaseOfBoards(members)] if len(members) >= FEWEST else members)
    ]


def _kind(index: int, case: CaseSummary) -> tuple[object, ...]:
    """Return the key by which cases are folded; unique for a board of unknown type."""
    if not case.board:
        return (index,)
    # Energies of other meters, and accuracies by another measure, have no common mean.
    figures_of = (
        case.energy.ranks_as if case.energy else None,
        case.accuracy.measure if case.accuracy else None,
    )
    return with_fields(case.key, device=""), case.board, figures_of


def _alike(index: int, row: ComparedCase) -> tuple[object, ...]:
    """Return the key by which rows are folded; unique for the reference."""
    return (
        (index,)
        if row.is_reference
        else (*_kind(index, row.case), row.reference.key, row.not_ranked is None)
    )


def _of_boards(rows: Sequence[ComparedCase]) -> ComparedCase:
    boards = sorted(rows, key=lambda row: -(row.case.p50_ms.value if row.case.p50_ms else 0.0))
    reason = (
        f"{sum(row.not_ranked is not None for row in rows)} of {len(rows)} boards are below the "
        "accuracy gate"
    )
    return replace(
        rows[0],
        case=CaseOfBoards([row.case for row in rows]),
        not_ranked=reason if rows[0].not_ranked else None,
        boards=tuple(boards),
    )


class CaseOfBoards(CaseSummary):
    """One case over several boards of a type, each of which counts as one run.

    Other facts are those of the newest.
    """

    def __init__(self, cases: Sequence[CaseSummary]) -> None:
        newest = max(cases, key=lambda case: case.around.first_started_at_ns)
        super().__init__(
            newest.store,
            with_fields(
                newest.key,
                device=f"{len(cases)} \N{MULTIPLICATION SIGN} {newest.around.environment['board']}",
            ),
            newest.read,
            newest.begin,
            newest.segment,
        )
        self._cases, self._newest = cases, newest

    @cached_property
    def around(self) -> CaseSurroundings:
        around = [case.around for case in self._cases]
        return CaseSurroundings(
            first_started_at_ns=min(of_board.first_started_at_ns for of_board in around),
            queries=sum(of_board.queries for of_board in around),
            modes=tuple(distinct(chain.from_iterable(of_board.modes for of_board in around))),
            environment={
                name: " | ".join(distinct(of_board.environment[name] for of_board in around))
                or None
                for name in ENVIRONMENT
            },
            has_several_libraries=any(of_board.has_several_libraries for of_board in around),
            hottest_c=max(
                (of_board.hottest_c for of_board in around if of_board.hottest_c is not None),
                default=None,
            ),
        )

    @cached_property
    def accuracy(self) -> AccuracySummary | None:
        """The accuracy of the median board: its bounds are over images."""
        scored = sorted(
            (case.accuracy for case in self._cases if case.accuracy), key=attrgetter("value")
        )
        return scored[len(scored) // 2] if scored else None

    def figure(self, name: str) -> CaseFigure | None:
        if name == ACCURACY:
            return next(
                (
                    case.figures.get(ACCURACY)
                    for case in self._cases
                    if case.accuracy is self.accuracy
                ),
                None,
            )
        boards = [(case, figure) for case in self._cases if (figure := case.figures.get(name))]
        if name not in self._newest.figures:
            return None
        # The meter with the largest error bounds that of all.
        known_u = [figure.u for _, figure in boards if figure.u is not None]
        return figure_of_values(
            [_as_run(case, figure) for case, figure in boards],
            boards[0][1].scale,
            max(known_u) if len(known_u) == len(boards) else None,
        )

    def run_values(self, name: str) -> list[RunValue]:
        return [_as_run(case, figure) for case in self._cases if (figure := case.figures.get(name))]

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(chain.from_iterable(case.verdicts for case in self._cases))

    @cached_property
    def disturbed(self) -> int:
        return sum(case.disturbed for case in self._cases)

    @property
    def not_counted(self) -> int:
        return sum(case.not_counted for case in self._cases)


def _as_run(board: CaseSummary, figure: CaseFigure) -> RunValue:
    return RunValue(
        figure.value,
        board.key.device,
        board.around.first_started_at_ns // NS_PER_DAY,
        None,
        SESSION_SD,
    )
