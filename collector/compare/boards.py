"""The boards of one type as one row: what each figure comes to over all of them, and which board is the worst."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from msgspec.structs import replace as with_fields

from edgemeter.agent.base.evidence import FEWEST, SESSION_SD, RunValue
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import ACCURACY, FIGURES
from edgemeter.collector.compare.case_figure import CaseFigure, RunValues, figure_of_values
from edgemeter.collector.compare.comparison import ComparedCase, Comparison
from edgemeter.collector.compare.summary import CaseSummary, CaseSurroundings
from edgemeter.collector.runs.cases import distinct, grouped
from edgemeter.collector.runs.figure_names import JUDGED

_BETTER = {entry.name: entry.better for entry in FIGURES}


def fold_boards(comparison: Comparison) -> Comparison:
    """Return the comparison with one row for the boards of a type (three and more) whose cases are equal in everything but the device.

    The figures of such a row are over its boards, of which each counts once; `boards` are the rows that it stands for, the slowest first.
    Boards of unknown type stay as they are, and so does the reference.
    """
    alike = grouped((_alike(index, row), row) for index, row in enumerate(comparison.rows))
    rows = [row for members in alike.values() for row in ([_of_boards(members)] if len(members) >= FEWEST else members)]
    return replace(comparison, rows=tuple(rows))


def worst_board(row: ComparedCase, name: str) -> ComparedCase | None:
    """Return the board of a folded row that is worst by a figure; None where no board has it, or all have the same."""
    having = [(figure.value, board) for board in row.boards if (figure := board.case.figures.get(name)) is not None]
    if len({value for value, _ in having}) < 2:
        return None
    accuracy = having[0][1].case.accuracy
    better = accuracy.better if accuracy and name == ACCURACY else _BETTER.get(name)
    return (min if better == "higher" else max)(having, key=lambda pair: pair[0])[1]


def over_boards(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Return the cases with one for the boards of a type (three and more) that are equal in everything but the device."""
    alike = grouped((_kind(index, case), case) for index, case in enumerate(cases))
    return [case for members in alike.values() for case in ([case_of_boards(members)] if len(members) >= FEWEST else members)]


def _kind(index: int, case: CaseSummary) -> tuple[object, ...]:
    """Return what the cases of a fold share, which nothing shares with a board of unknown type."""
    if not case.board:
        return (index,)
    # Energies of other meters, and accuracies by another measure, have no common mean.
    figures_of = case.energy.ranks_as if case.energy else None, case.accuracy.measure if case.accuracy else None
    return with_fields(case.key, device=""), case.board, figures_of


def _alike(index: int, row: ComparedCase) -> tuple[object, ...]:
    """Return what the rows of a fold share, which nothing shares with the reference."""
    return (index,) if row.is_reference else (*_kind(index, row.case), row.reference.key, row.not_ranked is None)


def _of_boards(rows: Sequence[ComparedCase]) -> ComparedCase:
    boards = sorted(rows, key=lambda row: -(row.case.p50_ms.value if row.case.p50_ms else 0.0))
    reason = f"{sum(row.not_ranked is not None for row in rows)} of {len(rows)} boards are below the accuracy gate"
    return replace(
        rows[0], case=case_of_boards([row.case for row in rows]), not_ranked=reason if rows[0].not_ranked else None, boards=tuple(boards)
    )


def case_of_boards(cases: Sequence[CaseSummary]) -> CaseSummary:
    """Return one case over several boards of a type, each of which counts as one run."""
    newest = max(cases, key=lambda case: case.around.first_started_at_ns)
    figures = {name: _over_boards([(case, case.figures[name]) for case in cases if name in case.figures]) for name in newest.figures}
    # The bounds of an accuracy are over images: those of the board in the middle.
    scored = sorted((case for case in cases if case.accuracy), key=lambda case: case.accuracy.value if case.accuracy else 0.0)
    middle = scored[len(scored) // 2] if scored else newest
    if ACCURACY in middle.figures:
        figures[ACCURACY] = middle.figures[ACCURACY]
    by_board = {name: [case.figures[name].value if name in case.figures else None for case in cases] for name in JUDGED if name in figures}
    return replace(
        newest,
        key=with_fields(newest.key, device=f"{len(cases)} \N{MULTIPLICATION SIGN} {newest.around.environment['board']}"),
        around=_surroundings([case.around for case in cases]),
        p50_ms=figures.get("latency_p50_ms"),
        figures=figures,
        accuracy=middle.accuracy,
        run_values=RunValues(tuple(map(_as_run, cases)), {name: tuple(values) for name, values in by_board.items()}),
        verdicts=tuple(chain.from_iterable(case.verdicts for case in cases)),
        not_counted=sum(case.not_counted for case in cases),
    )


def _as_run(board: CaseSummary) -> tuple[str, int, None, float]:
    return board.key.device, board.around.first_started_at_ns // NS_PER_DAY, None, SESSION_SD


def _over_boards(boards: Sequence[tuple[CaseSummary, CaseFigure]]) -> CaseFigure:
    # The meter whose error is largest bounds that of all.
    known_u = [figure.u for _, figure in boards if figure.u is not None]
    values = [RunValue(figure.value, *_as_run(case)) for case, figure in boards]
    return figure_of_values(values, boards[0][1].scale, max(known_u) if len(known_u) == len(boards) else None)


def _surroundings(around: Sequence[CaseSurroundings]) -> CaseSurroundings:
    heats_c = [surroundings.hottest_c for surroundings in around if surroundings.hottest_c is not None]
    return CaseSurroundings(
        first_started_at_ns=min(surroundings.first_started_at_ns for surroundings in around),
        queries=sum(surroundings.queries for surroundings in around),
        modes=tuple(distinct(chain.from_iterable(surroundings.modes for surroundings in around))),
        environment={
            name: " | ".join(distinct(surroundings.environment[name] for surroundings in around)) or None for name in around[0].environment
        },
        has_several_libraries=any(surroundings.has_several_libraries for surroundings in around),
        hottest_c=max(heats_c, default=None),
    )
