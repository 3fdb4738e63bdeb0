"""Board types and their outlying boards as tables and as JSON."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from edgemeter.agent.base.figures import ABSENT, count, printable
from edgemeter.collector.trend.trend_text import amount_text, level_text
from edgemeter.collector.units.board_types import WITHIN, BoardTypeSpread, CaseSpread
from edgemeter.collector.units.spread import FEWEST

# Rounding of sums, in per cent or points.
NOTHING = 1e-6


def show_units(board_types: Sequence[BoardTypeSpread], console: Console) -> None:
    """Print the spread of every case on every type, then the outlying boards."""
    heads = ("board type", "case", "metric", "mean (95%)", "boards", "sd of boards", "of days", "of runs", f"for ± {WITHIN:g}%")
    table = Table(*(Column(name, overflow="fold") for name in heads))
    for board_type in board_types:
        for case in board_type.cases:
            spread = case.spread
            row = (printable(board_type.board), printable(case.case), board_type.metric, _mean(board_type.metric, case), f"{spread.boards}")
            deviations = (spread.between_boards, spread.between_days, spread.between_runs)
            sds = [
                None if sd is None else amount_text(board_type.metric, sd if sd > NOTHING else 0.0).removeprefix("+") for sd in deviations
            ]
            boards = None if case.needed is None else count(case.needed, "board")
            table.add_row(*row, *(cell or ABSENT for cell in (*sds, boards)))
    if table.row_count:
        console.print(table)
    else:
        console.print("No board type has a valid run with this metric; suspect and invalid runs do not count.")
    for board_type in board_types:
        for line in _verdict_lines(board_type):
            console.print(Text(printable(line)), soft_wrap=True)


def _mean(metric: str, case: CaseSpread) -> str:
    if case.low is None or case.high is None:
        return f"{level_text(metric, case.mean)} (this board only)"
    return f"{level_text(metric, case.mean)} ({level_text(metric, case.low)} .. {level_text(metric, case.high)})"


def _verdict_lines(board_type: BoardTypeSpread) -> list[str]:
    name = f"{board_type.board}, {board_type.metric}"
    if board_type.sick is None:
        few = "1 board is" if board_type.boards == 1 else f"{board_type.boards} boards are"
        return [f"{name}: {few} too few to find outliers; at least {FEWEST} are needed"]
    if not board_type.sick:
        return [f"{name}: no outlier among {board_type.boards} boards"]
    return [
        f"{name}: {unit.device} deviates by {amount_text(board_type.metric, unit.apart)} over {count(unit.cases, 'case')} "
        f"(score {unit.score:.1f}, limit {unit.limit:.1f}); check: {'; '.join(unit.look_at)}"
        for unit in board_type.sick
    ]
