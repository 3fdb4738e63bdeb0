"""The turns of conversations: a table for each case, with a row a turn and medians over its runs."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import plain_digits
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.cli.measured_case import MeasuredCase, model_text, setting_text
from edgemeter.agent.contract.record_generation import TurnFigures

_COLUMNS: Mapping[str, Callable[[TurnFigures], float | None]] = {
    "turn": lambda figures: figures.turn,
    "prompt tokens": lambda figures: figures.prompt_tokens,
    "from the cache": lambda figures: figures.cached_tokens,
    "TTFT p50 ms": lambda figures: figures.ttft.p50_ms if figures.ttft else None,
    "mean ms": lambda figures: figures.ttft.mean_ms if figures.ttft else None,
    "TPOT mean ms": lambda figures: figures.tpot.mean_ms if figures.tpot else None,
    "queries": lambda figures: figures.queries,
}


def print_turns(cases: Sequence[MeasuredCase], console: Console) -> None:
    """Print the turns of each case that has some."""
    for case in cases:
        runs = [run.generation.turns for run in case.counted if run.generation and run.generation.turns]
        if runs:
            print_text(console, f"turn by turn: {model_text(case.runs[0], lengths=False)} {setting_text(case.runs[0])}")
            console.print(fitted_table(_columns(runs), console.width))


def _columns(runs: Sequence[Sequence[TurnFigures]]) -> Iterator[TableColumn]:
    by_turn: dict[int, list[TurnFigures]] = {}
    for figures in (figures for turns in runs for figures in turns):
        by_turn.setdefault(figures.turn, []).append(figures)
    for heading, value in _COLUMNS.items():
        cells = [[number for figures in of_turn if (number := value(figures)) is not None] for of_turn in by_turn.values()]
        yield TableColumn(heading, [plain_digits(statistics.median(numbers) if numbers else None) for numbers in cells])
