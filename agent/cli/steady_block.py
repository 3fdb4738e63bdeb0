"""A run of frames at a steady rate on a terminal: its facts, and a table of the run over time."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import plain_digits, share
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import CurvePoint, Steady, Sustained
from edgemeter.agent.contract.steady_facts import moment, steady_facts, steady_heading
from edgemeter.agent.ledger.run_history import short_id

STRETCHES = 6  # Rows of the table over time.
RUNS_LISTED = 5  # Of more runs the range stands.

# What a stretch shows beside its missed frames: the value of an interval, and how many of it are one of the column's unit.
_COLUMNS: dict[str, tuple[Callable[[CurvePoint], float | None], float]] = {
    "service p50 ms": (lambda point: point.p50_ms, 1.0),
    "MHz": (lambda point: point.clock_hz, 1e6),
    "°C": (lambda point: point.temperature_c, 1.0),
    "W": (lambda point: point.power_w, 1.0),
}


def print_steady(run: RunRecord, steady: Steady, console: Console, *, is_whole: bool, runs: Sequence[RunRecord] = ()) -> None:
    """Print the block of a run, one of `runs`, below what all of them missed; only the whole one has the table over time."""
    which = f"; run {short_id(run.id)}, one of {len(runs)}" if len(runs) > 1 else ""
    print_text(console, f"{steady_heading(run, steady)}{which}:")
    if missed := missed_by_run(runs):
        print_text(console, f"  all {len(runs)} runs: {missed}")
    for name, text in steady_facts(run, steady).items():
        print_text(console, f"  {name}: {text}")
    if is_whole and steady.dropped + steady.late and not missed:
        print_text(console, f"  why frames were missed: `edgemeter runs why {short_id(run.id)}`")
    if is_whole and run.sustained and len(run.sustained.points) >= STRETCHES:
        console.print(fitted_table(_over_time(run.sustained), console.width))


def missed_by_run(runs: Sequence[RunRecord]) -> str:
    """Return what several runs missed, each and together, and which of them the most; empty where none missed a frame."""
    steady = [(run, run.steady) for run in runs if run.steady]
    worst = max(steady, key=lambda pair: pair[1].missed_ratio, default=None)
    if len(steady) < 2 or not worst or not worst[1].missed_ratio:
        return ""
    frames, missed = sum(part.frames for _, part in steady), sum(part.dropped + part.late for _, part in steady)
    shares = [share(ratio) for ratio in sorted(part.missed_ratio for _, part in steady)]
    texts = f"{', '.join(shares[:-1])} and {shares[-1]}" if len(shares) <= RUNS_LISTED else f"{shares[0]} to {shares[-1]}"
    run_id = short_id(worst[0].id)
    return f"missed {missed:,} of {frames:,} frames: {texts}; the most in run {run_id}: why: `edgemeter runs why {run_id}`"


def _over_time(sustained: Sustained) -> Iterator[TableColumn]:
    """Yield the columns of the run in a few stretches, of each the median of its intervals; all missed frames are counted."""
    points, number = sustained.points, len(sustained.points)
    stretches = [points[number * index // STRETCHES : number * (index + 1) // STRETCHES] for index in range(STRETCHES)]
    yield TableColumn("from", [moment(stretch[0].t_s) for stretch in stretches])
    if any(point.missed is not None for point in points):
        yield TableColumn("missed", [f"{sum(point.missed or 0 for point in stretch):,}" for stretch in stretches])
    for heading, (value, per) in _COLUMNS.items():
        medians = [_median(stretch, value) for stretch in stretches]
        yield TableColumn(heading, [plain_digits(None if middle is None else middle / per, 3) for middle in medians])


def _median(points: Sequence[CurvePoint], value: Callable[[CurvePoint], float | None]) -> float | None:
    values = [number for point in points if (number := value(point)) is not None]
    return statistics.median(values) if values else None
