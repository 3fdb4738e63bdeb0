"""Boards of one type as one row: cases that are equal in everything but the device, with the median and the spread over the boards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from msgspec.structs import replace as with_fields

from edgemeter.agent.base.decision import ACCURACY
from edgemeter.agent.base.run_statistics import FEWEST
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.collector.compare.comparison import Comparison, ComparisonRow
from edgemeter.collector.compare.spread import RunPoint, Spread, of_points
from edgemeter.collector.compare.summary import AccuracySummary, CaseSummary, CaseSurroundings
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, CurrentSegment, distinct, grouped

_BETTER = {entry.name: entry.better for entry in FIGURES}


def fold_boards(comparison: Comparison) -> Comparison:
    """Return the comparison with one row for the boards of a type (three and more) whose cases are equal in everything but the device.

    Each figure of such a row is the median over boards of each board's figure, its range is over boards, and its interval over devices;
    `boards` are the rows that it stands for, the slowest first. Boards of unknown type stay as they are, and so does the baseline.
    """
    alike = grouped((_alike(index, row), row) for index, row in enumerate(comparison.rows))
    rows = [row for members in alike.values() for row in ([_of_boards(members)] if len(members) >= FEWEST else members)]
    return replace(comparison, rows=tuple(rows))


def worst_board(row: ComparisonRow, figure: str) -> ComparisonRow | None:
    """Return the board of a folded row that is worst by a figure; None where no board has it, or all have the same."""
    having = [(spread.median, board) for board in row.boards if (spread := spread_of(board.case, figure)) is not None]
    if len({value for value, _ in having}) < 2:
        return None
    accuracy = having[0][1].case.accuracy
    better = accuracy.better if accuracy and figure == ACCURACY else _BETTER.get(figure)
    return (min if better == "higher" else max)(having, key=lambda pair: pair[0])[1]


def spread_of(case: CaseSummary, figure: str) -> Spread | None:
    """Return the spread of a figure by its name in the table of figures; of the accuracy that of its metric."""
    return case.accuracy_value if figure == ACCURACY else case.spreads.get(figure)


def _alike(index: int, row: ComparisonRow) -> tuple[object, ...]:
    """Return what the rows of a fold share, which nothing shares with the baseline or with a board of unknown type."""
    case = row.case
    if row.is_reference or row.board == UNKNOWN_BOARD:
        return (index,)
    # Energies of other meters, and accuracies by another measure, have no common median.
    figures_of = case.energy.ranks_as if case.energy else None, case.accuracy.measure if case.accuracy else None
    return with_fields(case.key, device=""), row.board, row.reference.key, row.not_ranked is None, figures_of


def _of_boards(rows: Sequence[ComparisonRow]) -> ComparisonRow:
    boards = sorted(rows, key=lambda row: -(row.case.p50_ms.median if row.case.p50_ms else 0.0))
    reason = f"{sum(row.not_ranked is not None for row in rows)} of {len(rows)} boards are below the accuracy gate"
    return replace(
        rows[0], case=summary_of_boards([row.case for row in rows]), not_ranked=reason if rows[0].not_ranked else None, boards=tuple(boards)
    )


def summary_of_boards(cases: Sequence[CaseSummary]) -> CaseSummary:
    """Return one case over several boards of a type: each figure is the median of theirs, its interval and its range are over boards."""
    newest = max(cases, key=lambda case: case.around.first_started_at_ns)
    spreads = SpreadsOverBoards(cases)
    uncertain = dict.fromkeys(chain.from_iterable(case.uncertainties for case in cases))
    u_values = {name: [case.uncertainties.get(name) for case in cases if name in case.spreads] for name in uncertain}
    net_states = [case.energy.net_state for case in cases if case.energy]
    unresolved = next((state for state in net_states if state != "resolved"), "resolved")
    return replace(
        newest,
        key=with_fields(newest.key, device=f"{len(cases)} \N{MULTIPLICATION SIGN} {newest.around.environment['board']}"),
        around=_surroundings([case.around for case in cases]),
        p50_ms=spreads.get("latency_p50_ms"),
        spreads=spreads,
        uncertainties={name: max(u for u in values if u) for name, values in u_values.items() if all(values)},
        accuracy=_accuracy_over_boards(cases),
        energy=replace(newest.energy, net_state=unresolved) if newest.energy else None,
        disturbed=sum(case.disturbed > 0 for case in cases),
        verdicts=tuple(chain.from_iterable(case.verdicts for case in cases)),
        segment=_segment(cases),
    )


class SpreadsOverBoards(Mapping[str, Spread]):
    """The spreads of each figure over boards, by the name of the figure; each is worked out when it is asked for, as most are not shown."""

    def __init__(self, cases: Sequence[CaseSummary]) -> None:
        self._cases = cases
        self._spreads: dict[str, Spread | None] = {}

    def __getitem__(self, name: str) -> Spread:
        if name not in self._spreads:
            self._spreads[name] = _over_boards(self._cases, name)
        if (spread := self._spreads[name]) is None:
            raise KeyError(name)
        return spread

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain.from_iterable(case.spreads for case in self._cases)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _over_boards(cases: Sequence[CaseSummary], name: str) -> Spread | None:
    having = [(case.key.device, spread) for case in cases if (spread := spread_of(case, name)) is not None]
    over = of_points([RunPoint(spread.median, device, 0) for device, spread in having])
    if over is None or over.interval is None:
        return over
    # Each board counts once; what is known of it rests on its own days and runs.
    days = max((spread.interval.days for _, spread in having if spread.interval), default=1)
    return with_fields(over, interval=with_fields(over.interval, days=days, runs=sum(spread.n for _, spread in having)))


def _accuracy_over_boards(cases: Sequence[CaseSummary]) -> AccuracySummary | None:
    """Return the accuracy of the board in the middle, with its bounds, which are over images, and the range over boards."""
    scored = sorted((case.accuracy for case in cases if case.accuracy), key=lambda accuracy: accuracy.value.median)
    over = _over_boards(cases, ACCURACY)
    if not scored or over is None:
        return None
    middle = scored[len(scored) // 2]
    return replace(middle, value=with_fields(over, median=middle.value.median))


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


def _segment(cases: Sequence[CaseSummary]) -> CurrentSegment | None:
    segments = [case.segment for case in cases if case.segment]
    reason = f"the level of {len(segments)} of {len(cases)} boards changed"
    return CurrentSegment(min(entry.since_ns for entry in segments), reason, sum(entry.earlier for entry in segments)) if segments else None
