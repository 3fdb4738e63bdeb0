"""Why frames at a steady rate were missed, and in which consecutive rows.

Both are from the run's raw samples.
"""

from dataclasses import dataclass

import numpy as np

from edgemeter.agent.base.console import Console
from edgemeter.agent.base.number_text import plain_digits, share, short_id
from edgemeter.agent.base.terminal import TableColumn, fitted_table, print_text
from edgemeter.agent.contract.frame_times import FrameTimes
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Steady, Sustained
from edgemeter.agent.contract.steady_facts import moment

MOST_ROWS = 10  # Limit of the table; JSON has all.


@dataclass(frozen=True, slots=True)
class MissedRow:
    """Consecutive missed frames: start, number, and the clock and temperature then.

    A value is None if it is unknown.
    """

    from_s: float
    frames: int
    dropped: int
    clock_hz: float | None
    temperature_c: float | None


@dataclass(frozen=True, slots=True)
class MissedFrames:
    """The missed frames by reason.

    They were dropped for newer ones, given up after the schedule, or late for one of three reasons.
    """

    frames: int
    dropped: int
    given_up: int
    waited: int
    woke_late: int
    too_slow: int
    rows: tuple[MissedRow, ...]


def missed_frames(run: RunRecord) -> MissedFrames | None:
    """Return why frames of a run were missed, the longest rows first.

    It returns None for a run without frames, or without raw samples.
    """
    steady = run.steady
    times = FrameTimes.of_series(run.samples, steady.rate_per_s) if steady else None
    if steady is None or times is None:
        return None
    are_late, are_too_slow, are_woken_late = times.late(steady.deadline_ms)
    numbers = times.numbers
    hits = numbers[~are_late]
    # Between frames that were answered in time.
    begins, ends = np.append(0, hits + 1), np.append(hits, steady.frames)
    answered = np.searchsorted(numbers, ends) - np.searchsorted(numbers, begins)
    rows = [
        _row(steady, run.sustained, int(begin), int(end - begin), int(end - begin - count))
        for begin, end, count in zip(begins, ends, answered, strict=True)
        if end > begin
    ]
    late, slow, woke_late = (
        int(frames.sum()) for frames in (are_late, are_too_slow, are_woken_late)
    )
    given_up = steady.frames - 1 - int(numbers[-1])
    return MissedFrames(
        steady.frames,
        steady.frames - numbers.size - given_up,
        given_up,
        late - slow - woke_late,
        woke_late,
        slow,
        tuple(sorted(rows, key=lambda row: (-row.frames, row.from_s))),
    )


def _row(
    steady: Steady, curve: Sustained | None, begin: int, frames: int, dropped: int
) -> MissedRow:
    from_s = begin / steady.rate_per_s
    point = (
        curve.points[min(int(from_s / curve.interval_s), len(curve.points) - 1)]
        if curve and curve.points
        else None
    )
    return MissedRow(
        from_s,
        frames,
        dropped,
        point.clock_hz if point else None,
        point.temperature_c if point else None,
    )


def show_missed_frames(run: RunRecord, missed: MissedFrames, console: Console) -> None:
    """Print the reasons and the longest rows."""
    total = missed.dropped + missed.given_up + missed.waited + missed.woke_late + missed.too_slow
    print_text(
        console,
        f"run {short_id(run.id)}: {total:,} of {missed.frames:,} frames missed, "
        f"{share(total / max(missed.frames, 1))}",
    )
    reasons = {
        "dropped: a newer frame took their place in the queue": missed.dropped,
        "dropped: they still waited a second, or the deadline, after the schedule": missed.given_up,
        "late: they waited for frames before them": missed.waited,
        "late: Edgemeter itself woke up late for them": missed.woke_late,
        "late: the model alone took longer than the deadline": missed.too_slow,
    }
    for text, frames in reasons.items():
        if frames:
            print_text(console, f"  {frames:,} {text}")
    rows = missed.rows[:MOST_ROWS]
    columns = {
        "longest rows from": [moment(row.from_s) for row in rows],
        "frames": [f"{row.frames:,}" for row in rows],
        "dropped": [f"{row.dropped:,}" for row in rows],
        "MHz": [
            plain_digits(None if row.clock_hz is None else row.clock_hz / 1e6, 3) for row in rows
        ],
        "°C": [plain_digits(row.temperature_c, 3) for row in rows],
    }
    if rows:
        console.print(
            fitted_table(
                [TableColumn(heading, cells) for heading, cells in columns.items()], console.width
            )
        )
