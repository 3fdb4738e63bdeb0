"""What a run of frames at a steady rate came to, in one block: frames, first miss, answers, energy, and the run over time.

Also how any long run held out, in a line.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from edgemeter.agent.base.figures import count, duration, plain_digits, share, span
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.cli.measured_case import gross_text
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import StreamDetections
from edgemeter.agent.contract.record_figures import CurvePoint, Load, Steady, Sustained

STRETCHES = 6  # Rows of the table over time.


def print_steady(run: RunRecord, steady: Steady, console: Console, *, is_whole: bool) -> None:
    """Print the block of a run; only the whole one has the table over time."""
    waiting = f"{count(steady.queue_frames, 'frame')} may wait"
    print_text(console, f"{run.model.name} at {_rate(steady)}, deadline {plain_digits(steady.deadline_ms)} ms, {waiting}:")
    for line in steady_lines(run, steady):
        print_text(console, f"  {line}")
    if is_whole and run.sustained and len(run.sustained.points) >= STRETCHES:
        console.print(fitted_table(_over_time(run.sustained), console.width))


def steady_lines(run: RunRecord, steady: Steady) -> Iterator[str]:
    """Yield the lines of the block but for the table over time."""
    yield f"frames: {_frames(steady)}"
    if steady.first_missed_s is not None:
        yield f"first miss: after {_moment(steady.first_missed_s)}{_after_throttling(run, steady)}"
    yield f"answers: {_answers(run, steady)}"
    yield f"queue: {_queue(steady, run.load)}"
    if run.energy is not None:
        yield f"energy: {plain_digits(run.energy.mean_power_w, 3)} J/s, {gross_text(run, ' mJ gross a frame')}, waiting for frames included"
    if run.detections is not None:
        yield f"detections: {_detections(run.detections)}"
    if run.sustained is not None:
        yield over_time_line(run.sustained)


def over_time_line(sustained: Sustained, subject: str = "") -> str:
    """Return how a long run held out: its level of the first minute, or when and by what evidence it throttled."""
    minutes = plain_digits(len(sustained.points) * sustained.interval_s / 60, 3)
    if sustained.level_p50_ms is None:
        return f"over time: {subject}ran {minutes} min, too short for a level of the first minute"
    if sustained.throttled_after_s is None:
        return f"over time: {subject}held its first minute's {plain_digits(sustained.level_p50_ms)} ms for {minutes} min"
    return f"over time: {subject}throttled after {sustained.throttled_after_s:.0f} s: {sustained.evidence}"


def _rate(steady: Steady) -> str:
    return f"{plain_digits(steady.rate_per_s)} frames a second"


def _moment(seconds: float) -> str:
    return f"{plain_digits(seconds, 3)} s" if seconds < 60 else duration(seconds)


def _frames(steady: Steady) -> str:
    """Return `54,000 in 1 h; missed 12, 0.022% (95% 0.01% to 0.05%): 9 dropped, 3 late, at most 4 in a row`."""
    arrived = f"{steady.frames:,} in {_moment(steady.frames / steady.rate_per_s)}"
    low, high = steady.missed_low_ratio, steady.missed_high_ratio
    unbounded = "no bounds: the frames depend on each other too much"
    bounds = unbounded if low is None or high is None else f"95% {share(low)} to {share(high)}"
    if steady.effective is not None and steady.effective < steady.frames:
        bounds += f"; as {count(steady.effective, 'independent frame')}"
    missed = steady.dropped + steady.late
    if not missed:
        return f"{arrived}; none missed ({bounds})"
    in_a_row = f", at most {steady.longest_row:,} in a row" if steady.longest_row > 1 else ""
    return (
        f"{arrived}; missed {missed:,}, {share(steady.missed_ratio)} ({bounds}): {steady.dropped:,} dropped, {steady.late:,} late{in_a_row}"
    )


def _after_throttling(run: RunRecord, steady: Steady) -> str:
    after_s, begun_s = steady.first_missed_after_throttling_s, run.sustained and run.sustained.throttled_after_s
    if after_s is None or begun_s is None:
        return ""
    return f"; {_moment(after_s)} from the beginning of throttling ({_moment(begun_s)}) to the first after it"


def _answers(run: RunRecord, steady: Steady) -> str:
    latency = run.latency
    times = [f"p50 {plain_digits(latency.p50_ms)} ms" if latency.p50_ms is not None else "", f"at most {plain_digits(latency.max_ms)} ms"]
    jitter = f"jitter p90 {plain_digits(steady.jitter.p90_ms)} ms" if steady.jitter else ""
    gap = f"at most {plain_digits(steady.longest_gap_ms)} ms without one" if steady.longest_gap_ms is not None else ""
    return "; ".join(filter(None, (", ".join(filter(None, times)), jitter, gap)))


def _queue(steady: Steady, load: Load | None) -> str:
    waiting = f"up to {count(steady.queue_max, 'frame')} waiting" if steady.queue_max else "no frame waited"
    waited = f", {plain_digits(load.queueing.p50_ms)} ms (p50)" if load and load.queueing and steady.queue_max else ""
    busy = f"; busy {load.utilisation_ratio:.0%} of the time" if load and load.utilisation_ratio is not None else ""
    return f"{waiting}{waited}{busy}"


def _detections(found: StreamDetections) -> str:
    bounds = ""
    if found.false_per_h_low is not None and found.false_per_h_high is not None:
        bounds = f" (95% {span(found.false_per_h_low, found.false_per_h_high)})"
    windows = f"{found.found:,} of {count(found.windows, 'window')} of {found.label}, {found.missed:,} missed"
    false = f"{count(found.false, 'false detection')} in {_moment(found.stream_s)}"
    return f"{windows}; {false}, {plain_digits(found.false_per_h, 3)} an hour{bounds}"


_COLUMNS: dict[str, tuple[Callable[[CurvePoint], float | None], float]] = {
    "service p50 ms": (lambda point: point.p50_ms, 1.0),
    "MHz": (lambda point: point.clock_hz, 1e6),
    "°C": (lambda point: point.temperature_c, 1.0),
    "W": (lambda point: point.power_w, 1.0),
}


def _over_time(sustained: Sustained) -> Iterator[TableColumn]:
    """Yield the columns of the run in a few stretches, of each the median of its intervals; all missed frames are counted."""
    points, number = sustained.points, len(sustained.points)
    stretches = [points[number * index // STRETCHES : number * (index + 1) // STRETCHES] for index in range(STRETCHES)]
    yield TableColumn("from", [_moment(stretch[0].t_s) if stretch[0].t_s else "0 s" for stretch in stretches])
    if any(point.missed is not None for point in points):
        yield TableColumn("missed", [f"{sum(point.missed or 0 for point in stretch):,}" for stretch in stretches])
    for heading, (value, per) in _COLUMNS.items():
        cells = [_median(stretch, value) for stretch in stretches]
        if any(cell is not None for cell in cells):
            yield TableColumn(heading, [plain_digits(None if cell is None else cell / per, 3) for cell in cells])


def _median(points: Sequence[CurvePoint], value: Callable[[CurvePoint], float | None]) -> float | None:
    values = [number for point in points if (number := value(point)) is not None]
    return statistics.median(values) if values else None
