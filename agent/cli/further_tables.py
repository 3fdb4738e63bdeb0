"""Output beside the table of the runs: sweeps over users or rates, and the answer of power modes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, plain_digits, span
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.contract.load_sweep import Sweep, SweepPoint
from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.together_matrix import TogetherRow

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


def print_together(rows: Sequence[TogetherRow], console: Console) -> None:
    """Print how much slower each model is beside others; nothing where none ran alone too."""
    rows = [row for row in rows if row.slow_down_ratio is not None]
    if not rows:
        return
    print_text(console, "together: mean ms, and times that alone with its 95% interval over pairs of runs")
    columns = [
        TableColumn("model", [f"{row.model.model} {row.model.setting_text}" for row in rows], "left"),
        TableColumn("beside", [" and ".join(f"{model.model} {model.setting_text}" for model in row.neighbours) for row in rows], "left"),
        TableColumn("alone ms", [plain_digits(row.alone_ms) for row in rows]),
        TableColumn("ms", [plain_digits(row.mean_ms) for row in rows]),
        TableColumn("times", [plain_digits(row.slow_down_ratio, 3) for row in rows]),
        TableColumn(
            "95%", [ABSENT if (low := row.slow_down_low_ratio) is None else span(low, row.slow_down_high_ratio or low) for row in rows]
        ),
    ]
    console.print(fitted_table(columns, console.width))
