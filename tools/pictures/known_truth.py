"""Pictures of simulations whose truth is known.

They show the energy of a board with a fan, and comparisons and the trend of the simulated fleet.
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from edgemeter.agent.base.decision import MATTERS_RATIO, Decision
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import ENERGY, LATENCY
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.energy.per_inference import assess
from edgemeter.collector.compare.between import between
from edgemeter.collector.demo import simulated_fleet
from edgemeter.collector.runs.contents import StoreContents, oldest_first
from edgemeter.collector.runs.store import MemoryStore
from edgemeter.collector.web import one_file
from tests.fixtures.browser import Browser, find_chromium
from tests.fixtures.energy_worlds import BEGIN_S, Bursts, Fan, Sensor, Trial, World, draw_trial
from tools.pictures import measured_pair
from tools.pictures.canvas import Canvas, Point, Scale

SEED = 8
BOARD = World(
    load=Bursts(fps=0.5, duty=0.6, high_w=5.0, low_w=1.0, jitter=0.0, is_paused=False),
    sensor=Sensor(rise_s=0.6, fall_s=0.6, noise_w=0.03),
    fan=Fan(power_w=1.0, after_s=4.0, on_s=6.0),
    timed_s=16.0, idle_s=12.0, warm_up_s=0.0, idle_w=2.5,
)  # fmt: skip
# After six times its lag, the sensor no longer shows earlier power.
LATE_S = 6 * BOARD.sensor.fall_s
QUIET_P50_MS = 1.5
UPDATE = simulated_fleet.UPDATE_RATIO


def energy() -> str:
    """Return the picture of a sensor's readings, the areas that are an energy, and the result.

    The result is drawn beside the truth.
    """
    trial = draw_trial(BOARD, np.random.default_rng(SEED), gain_z=0.0)
    result, reason = assess(trial.trace, trial.run)
    assert result is not None, reason
    canvas = Canvas(860, 400)
    _areas(canvas, trial)
    _against_truth(canvas, trial, result)
    return canvas.svg()


def _areas(canvas: Canvas, trial: Trial) -> None:
    x, y = Scale(0, 40, 46, 846), Scale(0, 9.6, 296, 46)
    times_s = np.array([reading.taken_ns / 1e9 - BEGIN_S for reading in trial.trace.readings])
    powers_w = np.array([reading.power_w for reading in trial.trace.readings])
    begin_s, end_s = (
        trial.run.timed.start_ns / 1e9 - BEGIN_S,
        trial.run.timed.end_ns / 1e9 - BEGIN_S,
    )
    idle_w, fan_w = BOARD.idle_w, BOARD.idle_w + 1.0

    def curve(from_s: float, to_s: float, floor_w: float) -> list[Point]:
        inside_s = np.concatenate(
            ([from_s], times_s[(times_s > from_s) & (times_s < to_s)], [to_s])
        )
        shown_w = np.maximum(np.interp(inside_s, times_s, powers_w), floor_w)
        line = [
            (x(float(at_s)), y(float(power_w)))
            for at_s, power_w in zip(inside_s, shown_w, strict=True)
        ]
        return [(x(from_s), y(floor_w)), *line, (x(to_s), y(floor_w))]

    canvas.area(
        [(x(begin_s), y(0)), (x(begin_s), y(idle_w)), (x(end_s), y(idle_w)), (x(end_s), y(0))],
        "idle",
    )
    canvas.area(curve(begin_s, end_s, idle_w), "above")
    canvas.area(curve(end_s, end_s + 6.0 + LATE_S, idle_w), "after")
    canvas.area(curve(end_s, end_s + LATE_S, fan_w), "late")
    for moment_s in (begin_s, end_s):
        canvas.line((x(moment_s), y(0)), (x(moment_s), y(9.3)))
    canvas.line((x(0), y(idle_w)), (x(40), y(idle_w)), kind="ink dashed")
    canvas.line((x(0), y(9.3)), (x(0), y(0)), (x(40), y(0)))
    canvas.line(
        *(
            (x(float(at_s)), y(float(power_w)))
            for at_s, power_w in zip(times_s, powers_w, strict=True)
        )
    )
    assert trial.run.queries is not None
    first_s, second_s = (
        float(query_ns) / 1e9 - BEGIN_S for query_ns in trial.run.queries.starts_ns[:2]
    )
    canvas.line(
        (x(first_s), y(7.2)), (x(first_s), y(7.4)), (x(second_s), y(7.4)), (x(second_s), y(7.2))
    )
    for watts in (2, 4, 6, 8):
        canvas.text(f"{watts} W", (x(0) - 4, y(watts) + 4), "small soft", "end")
    canvas.text("idle before", (x(6), 38), "", "middle")
    canvas.text("timed part: from the first query to the last", (x(20), 38), "", "middle")
    canvas.text("idle after", (x(34), 38), "", "middle")
    canvas.text("idle power", (x(0.4), y(idle_w + 0.3)))
    canvas.text("a query", (x(first_s + 0.2), y(7.7)))
    canvas.text("energy above idle power", (x(20), y(3.6)), "", "middle")
    canvas.text("energy at idle power: in gross only", (x(20), y(1.1)), "", "middle")
    canvas.text("shown late: counted", (x(end_s + 1.4), y(5.2)))
    canvas.text("a fan runs on: not counted", (x(end_s + 1.4), y(1.3)))


def _against_truth(canvas: Canvas, trial: Trial, result: Energy) -> None:
    """Draw the gross and the net energy per query with their intervals, beside the truth."""
    each_s = trial.run.timed.length_ns / 1e9 / trial.run.inferences
    results = (
        ("gross: grey + blue + orange", result.gross_mj, result.gross_u_mj, trial.gross_w, 400),
        ("net: blue + orange", result.net_mj, result.net_u_mj, trial.net_w, 846),
    )
    for name, value_mj, u_mj, truth_w, right in results:
        assert value_mj is not None
        assert u_mj is not None
        truth_j = truth_w * each_s
        value_j, u_j = value_mj / 1000, u_mj / 1000
        x = Scale(value_j - 2.5 * u_j, value_j + 2.5 * u_j, right - 354, right)
        canvas.text(f"{name}: {value_j:.2f} ± {u_j:.2f} J per query (95%)", (right - 354, 336))
        canvas.interval(x(value_j - u_j), x(value_j), x(value_j + u_j), 358, "ink")
        canvas.truth(x(truth_j), 358)
        canvas.text(f"truth: {truth_j:.2f} J", (x(truth_j), 386), "small", "middle")


@dataclass(frozen=True, slots=True)
class Question:
    """A question to the simulated fleet: the runs of both sides, the figure, and the true change.

    The change is a ratio.
    """

    text: str
    baseline: Callable[[RunRecord], bool]
    candidate: Callable[[RunRecord], bool]
    truth: float
    figure: str = LATENCY


@cache
def fleet() -> list[RunRecord]:
    """Return the runs of the simulated fleet over 90 days.

    They are made from a measured run, and end on its day.
    """
    template = measured_pair.of_precision("fp32")[0]
    # As on a quiet machine: the pictures do not show how busy this one was.
    template = msgspec.structs.replace(
        template, latency=msgspec.structs.replace(template.latency, p50_ms=QUIET_P50_MS)
    )
    return list(
        simulated_fleet.records_of(
            template, end_ns=template.started_at_ns // NS_PER_DAY * NS_PER_DAY
        )
    )


def _on(device: str, from_day: int, to_day: int) -> Callable[[RunRecord], bool]:
    """Return a test for the fp32 runs of a device on these days of the 90.

    The last day is not among them; the device has two runs a day.
    """
    return lambda run: (
        run.device == device and run.precision == "fp32" and from_day <= (run.seq - 1) // 2 < to_day
    )


def decision(question: Question) -> Decision:
    sides = [
        StoreContents(oldest_first(filter(belongs, fleet())), ())
        for belongs in (question.baseline, question.candidate)
    ]
    (row,) = between(("before", sides[0]), ("after", sides[1]), days="all").comparison.rows[-1:]
    return row.decisions[question.figure]


def questions() -> Sequence[Question]:
    pi5, orin, day = "simulated-pi5-01", "simulated-orin-01", simulated_fleet.UPDATE_DAY
    return (
        Question(
            "update of a Pi 5: latency, 10 days each",
            _on(pi5, day - 10, day),
            _on(pi5, day, day + 10),
            UPDATE,
        ),
        Question(
            "back to the old firmware: latency, 10 days",
            _on(pi5, day, day + 10),
            _on(pi5, day - 10, day),
            1 / UPDATE,
        ),
        Question(
            "an Orin, no update: latency, 10 days each",
            _on(orin, day - 10, day),
            _on(orin, day, day + 10),
            1.0,
        ),
        Question(
            "the same Orin: energy, 3 days each",
            _on(orin, day - 3, day),
            _on(orin, day, day + 3),
            1.0,
            ENERGY,
        ),
        Question(
            "the same Orin: latency, one day each",
            _on(orin, day - 1, day),
            _on(orin, day, day + 1),
            1.0,
        ),
    )


def intervals_that_hold() -> tuple[int, int]:
    """Return how many of the intervals of the update hold the truth, and how many there are.

    Each Pi 5 has one, of ten days on either side.
    """
    boards = sorted(
        {run.device for run in fleet() if run.environment.board == simulated_fleet.TYPES[0].name}
    )
    day = simulated_fleet.UPDATE_DAY
    changes = [
        decision(Question("", _on(board, day - 10, day), _on(board, day, day + 10), UPDATE))
        for board in boards
    ]
    return sum(
        (change.low or math.inf) <= UPDATE <= (change.high or 0.0) for change in changes
    ), len(changes)


def comparisons() -> str:
    """Return the picture of the four outcomes.

    It draws the intervals of changes against the margin, with the truth.
    """
    canvas = Canvas(880, 350)
    x = Scale(0.90, 1.10, 350, 640, is_log=True)
    canvas.rect(
        (x(1 / (1 + MATTERS_RATIO)), 40),
        (x(1 + MATTERS_RATIO) - x(1 / (1 + MATTERS_RATIO)), 250),
        "band",
    )
    canvas.text(f"less than {MATTERS_RATIO:.0%} does not matter", (x(1.0), 30), "small", "middle")
    canvas.axis(
        x,
        290,
        [
            (1 + percent / 100, f"{percent:+d}%" if percent else "0")
            for percent in (-10, -5, 0, 5, 10)
        ],
        40,
    )
    for number, question in enumerate(questions()):
        change, y = decision(question), 66 + 50 * number
        canvas.text(question.text, (20, y + 4))
        canvas.text(change.outcome, (660, y - 2), "title")
        if change.low is not None and change.high is not None:
            canvas.interval(x(change.low), x(change.value), x(change.high), y, "a")
            note = (
                f"{100 * change.confidence:.3g}%: {100 * (change.low - 1):+.1f} to "
                f"{100 * (change.high - 1):+.1f}%"
            )
        else:
            canvas.dot((x(change.value), y), "a", 6)
            note = "no interval: one run each"
        canvas.text(note, (660, y + 16), "small soft")
        canvas.truth(x(question.truth), y)
    holding, boards = intervals_that_hold()
    canvas.text(
        "blue: change and interval; violet: the true change that was put in", (20, 318), "small"
    )
    canvas.text(
        f"The intervals of the update contain the true change on {holding} of {boards} boards.",
        (20, 336),
        "small",
    )
    return canvas.svg()


def photograph(folder: Path, name: str, address: str, runs: Sequence[RunRecord]) -> None:
    """Take pictures of a view of the page of these runs, light and dark, in Debian's chromium."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        page = Path(work) / "fleet.html"
        one_file.write_file_of(MemoryStore(oldest_first(runs)), page, one_file.FileChoice())
        with Browser(find_chromium(), Path(work) / "profile") as browser:
            for theme in ("light", "dark"):
                tab = browser.open(
                    f"{page.as_uri()}#/{address}",
                    width=1280,
                    height=850,
                    dark=theme == "dark",
                    offline=True,
                )
                tab.drawn()
                path = tab.screenshot(folder / f"{name}-{theme}.png")
                assert tab.complaints() == [], tab.complaints()
                # In 256 colours it is a third of the size, and looks the same.
                with Image.open(path) as picture:
                    picture.convert("RGB").quantize(256).save(path, optimize=True)


def trend(folder: Path) -> None:
    boards = [run for run in fleet() if run.device.startswith("simulated-pi5-0")]
    photograph(folder, "trend", "trend?metric=latency_p50_ms&model=edgemeter-shapes", boards)


def overview(folder: Path) -> None:
    photograph(folder, "overview", "overview", fleet())
