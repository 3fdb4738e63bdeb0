"""Output beside the table of the runs: sweeps over users or rates, and the answer of power modes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import ABSENT, plain_digits, span
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.contract.load_sweep import Sweep, SweepPoint
from edgemeter.agent.contract.mode_answer import mode_answers
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import cores_text
from edgemeter.agent.contract.together_matrix import TogetherCell, TogetherMatrix, TogetherRow

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
SHORT_OVERLAP_MS = 1000.0  # Below a second a few turns of the scheduler decide.


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


def print_together(matrix: TogetherMatrix, console: Console) -> None:
    """Print how much slower each model is beside each other one, and beside all; nothing of runs beside others alone."""
    if not any(row.alone for row in matrix.rows):
        return
    names = _names(matrix.rows)
    columns = [TableColumn("model", names, "left"), TableColumn("alone", [_cell_text(row.alone) for row in matrix.rows])]
    for heading, is_company in _companies(matrix.rows, names):
        cells = [next((cell for cell in row.beside if is_company(row, cell)), None) for row in matrix.rows]
        columns.append(TableColumn(heading, [_cell_text(cell) for cell in cells]))
    shared = f"; shared: core {cores_text(matrix.shared_cpus)}" if matrix.shared_cpus else ""
    print_text(console, f"together: mean ms, times that alone with its 95% interval over pairs of runs{shared}")
    console.print(fitted_table(columns, console.width))
    overlaps_ms = [cell.overlap_ms for row in matrix.rows for cell in row.beside if cell.overlap_ms is not None]
    if (shortest_ms := min(overlaps_ms, default=SHORT_OVERLAP_MS)) < SHORT_OVERLAP_MS:
        print_text(console, f"overlaps of {plain_digits(shortest_ms / 1000, 2)} s are short for a slow-down: use a longer --mode")


def _names(rows: Sequence[TogetherRow]) -> list[str]:
    """Return the models with the cores that they were pinned to, and their setting and file where that names two alike."""
    names = [f"{row.model.model}{f', core {cores_text(row.model.cpus)}' if row.model.cpus else ''}" for row in rows]
    settings = [f"{row.model.model} {row.model.setting_text}" for row in rows]
    files = [f" {row.model.sha256[:6]}" if settings.count(text) > 1 else "" for row, text in zip(rows, settings, strict=True)]
    return [text + file if names.count(name) > 1 else name for name, text, file in zip(names, settings, files, strict=True)]


def _companies(rows: Sequence[TogetherRow], names: Sequence[str]) -> Iterator[tuple[str, Callable[[TogetherRow, TogetherCell], bool]]]:
    for name, model in zip(names, [row.model for row in rows], strict=True):
        yield f"beside {name}", lambda _, cell, model=model: cell.neighbours == (model,)  # type: ignore[misc]
    if len(rows) > 2:
        yield "beside all", lambda _, cell: len(cell.neighbours) == len(rows) - 1


def _cell_text(cell: TogetherCell | None) -> str:
    if cell is None:
        return ABSENT
    if cell.slow_down_ratio is None:
        return plain_digits(cell.mean_ms)
    bounds = (cell.slow_down_low_ratio, cell.slow_down_high_ratio)
    interval = f" ({span(bounds[0], bounds[1])})" if bounds[0] is not None and bounds[1] is not None else ""
    return f"{plain_digits(cell.mean_ms)} x{plain_digits(cell.slow_down_ratio, 3)}{interval}"
