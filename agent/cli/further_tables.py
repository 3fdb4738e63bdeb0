"""Output beside the table of the runs: turns of conversations, sweeps over users or rates, and the answer of power modes."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, plain_digits
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.cli.measured_case import MeasuredCase, model_text, setting_text
from edgemeter.agent.contract.load_sweep import Sweep, SweepPoint
from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import TurnFigures

_OF_LEVEL: Mapping[str, Callable[[SweepPoint], str]] = {
    "users": lambda point: ABSENT if point.concurrency is None else str(point.concurrency),
    "offered per s": lambda point: plain_digits(point.target_per_s),
    "requests/s": lambda point: plain_digits(point.requests_per_s),
    "p50 ms": lambda point: plain_digits(point.latency_p50_ms if point.output_tokens_per_s is None else None),
    "latency p90 ms": lambda point: plain_digits(point.latency_p90_ms if point.output_tokens_per_s is None else None),
    "tokens/s in all": lambda point: plain_digits(point.output_tokens_per_s),
    "a user": lambda point: plain_digits(point.user_tokens_per_s),
    "TTFT p50 ms": lambda point: plain_digits(point.ttft_p50_ms),
    "p90 ms": lambda point: plain_digits(point.ttft_p90_ms),
    "good/s": lambda point: plain_digits(point.goodput_per_s),
    "good": lambda point: ABSENT if point.good_ratio is None else f"{point.good_ratio:.0%}",
    "errors": lambda point: f"{point.error_ratio:.1%}" if point.error_ratio else ABSENT,
    "holds": lambda point: "no" if not point.holds else ABSENT if point.concurrency and point.good_ratio is None else "yes",
}
_OF_TURN: Mapping[str, Callable[[TurnFigures], float | None]] = {
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
            console.print(fitted_table(_turn_columns(runs), console.width))


def _turn_columns(runs: Sequence[Sequence[TurnFigures]]) -> Iterator[TableColumn]:
    by_turn: dict[int, list[TurnFigures]] = {}
    for figures in (figures for turns in runs for figures in turns):
        by_turn.setdefault(figures.turn, []).append(figures)
    for heading, value in _OF_TURN.items():
        cells = [[number for figures in of_turn if (number := value(figures)) is not None] for of_turn in by_turn.values()]
        yield TableColumn(heading, [plain_digits(statistics.median(numbers) if numbers else None) for numbers in cells])


def print_sweeps(sweeps: Sequence[Sweep], console: Console) -> None:
    """Print each sweep: its sentence, and level by level the requests answered, and of text output tokens a second in all and a user."""
    for sweep in sweeps:
        print_text(console, f"sweep: {sweep.summary}")
        console.print(fitted_table(_level_columns(sweep), console.width))


def print_answers(runs: Iterable[RunRecord], console: Console) -> None:
    """Print the answer of each case that was measured in several power modes or clocks."""
    answers = mode_answers(runs)
    for answer in answers:
        begin = f"{answer.model}, {answer.settings} on {answer.device}: " if len(answers) > 1 else ""
        print_text(console, f"{begin}{answer.summary}")


def _level_columns(sweep: Sweep) -> Iterator[TableColumn]:
    for rank, (heading, text) in enumerate(_OF_LEVEL.items()):
        cells = [text(point) for point in sweep.points]
        if set(cells) != {ABSENT}:
            yield TableColumn(heading, cells, rank=rank // 2)
