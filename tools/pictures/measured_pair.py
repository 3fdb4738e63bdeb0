"""Pictures of the shipped pair of models, fp32 and int8.

`edgemeter compare` measured them in turn on this machine.
"""

import math
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from functools import cache

import numpy as np

from edgemeter.agent.base.decision import MATTERS_ACCURACY
from edgemeter.agent.base.evidence import (
    CONFIDENCE,
    IntervalOverRuns,
    accuracy_difference,
    interval_over_runs,
)
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.verdict.judge import counted
from edgemeter.collector.runs.selection import parse_selection
from tests.fixtures.own_imports import ROOT
from tools.pictures.canvas import Canvas, Scale

# The measurement is kept here; remove the folder to measure again.
FOLDER = ROOT / ".bench" / "pair"
COMMAND = (
    "compare model.tflite model_int8.tflite --data photos/ --annotations instances.json "
    "--require 'ap>=.7' --mode normal"
)
MONO_WIDTH, LINE_HEIGHT, MARGIN, COLUMNS = 8.55, 20, 16, 120
BUCKETS = 220


def measure() -> None:
    """Measure the pair, and keep the ledger and the printed answer.

    Raises:
        CalledProcessError: the command fails.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    edgemeter = [sys.executable, "-m", "edgemeter.agent.cli.main"]
    subprocess.run(
        [*edgemeter, "models", "sample", str(FOLDER / "trial")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    environment = {**os.environ, "EDGEMETER_HOME": str(FOLDER / "home"), "COLUMNS": str(COLUMNS)}
    command = [*edgemeter, *shlex.split(COMMAND)]
    printed = subprocess.run(
        command,
        cwd=FOLDER / "trial",
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    (FOLDER / "answer.txt").write_text(printed, encoding="utf-8")


@cache
def runs() -> list[RunRecord]:
    """Return the runs of the pair with their samples, in the order of time.

    They are measured if that has not been done.
    """
    if not (FOLDER / "answer.txt").exists():
        measure()
    return sorted(
        parse_selection(str(FOLDER / "home" / "ledger.sqlite")).runs(with_samples=True),
        key=lambda run: run.started_at_ns,
    )


def of_precision(precision: str) -> list[RunRecord]:
    return [run for run in runs() if run.precision == precision]


def answer() -> str:
    runs()
    command = COMMAND.replace(" --require", " \\\n    --require")
    printed = (
        f"$ edgemeter {command}\n{(FOLDER / 'answer.txt').read_text(encoding='utf-8').rstrip()}"
    )
    lines = [
        part
        for line in printed.splitlines()
        for part in textwrap.wrap(line, COLUMNS, subsequent_indent="  ") or [""]
    ]
    canvas = Canvas(
        round(2 * MARGIN + MONO_WIDTH * max(map(len, lines))), 2 * MARGIN + LINE_HEIGHT * len(lines)
    )
    for number, line in enumerate(lines):
        canvas.text(line, (MARGIN, MARGIN + LINE_HEIGHT * number + 14), "mono")
    return canvas.svg()


def latency() -> str:
    """Return the picture of one run over time, and of all runs with the interval over them."""
    canvas = Canvas(860, 480)
    calmest = min(of_precision("fp32"), key=lambda run: run.latency.p90_ms or math.inf)
    _phases(canvas, calmest)
    _queries(canvas, calmest)
    _runs(canvas)
    return canvas.svg()


def _phases(canvas: Canvas, run: RunRecord) -> None:
    cold, warm_up = run.cold_start, run.warm_up
    timed_s = run.latency.count / (run.throughput_per_s or math.nan)
    phases = (
        ("process", _duration(cold.process_ms)), ("import", _duration(cold.import_ms)),
        ("load", _duration(cold.load_ms)),
        ("first query", _duration(cold.first_ms)),
        ("warm-up", f"{_duration(warm_up.duration_ms)}, not counted"),
        ("timed", f"{timed_s:.0f} s, {run.latency.count:,} queries"),
    )  # fmt: skip
    canvas.text(
        "One run of the fp32 model: its phases (not to scale) and its timed queries",
        (20, 26),
        "title",
    )
    for (name, took), (left_px, width) in zip(
        phases, ((20, 110), (134, 110), (248, 110), (362, 120), (486, 160), (650, 190)), strict=True
    ):
        canvas.rect((left_px, 40), (width, 46), "box")
        canvas.text(name, (left_px + width / 2, 59), "", "middle")
        canvas.text(took, (left_px + width / 2, 77), "small soft", "middle")


def _duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "none"
    return f"{milliseconds / 1000:.2g} s" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"


def _queries(canvas: Canvas, run: RunRecord) -> None:
    """Draw the latencies of a run.

    Each stretch of time has the range from p10 to p90, and every query above p99 is drawn.
    """
    series = {entry.name: samples.unpack(entry) for entry in run.samples}
    latency_ms, at_s = series["latency"] / 1e6, series["query_start"] / 1e9
    p50, p90, p99 = np.quantile(latency_ms, (0.5, 0.9, 0.99))
    x = Scale(0, float(at_s[-1]), 70, 550)
    y = Scale(
        float(latency_ms.min()) * 0.97,
        float(np.quantile(latency_ms, 0.9995)),
        430,
        120,
        is_log=True,
    )
    for second in range(0, int(at_s[-1]) + 2, 10):
        canvas.text(f"{second} s", (x(second), 450), "small soft", "middle")
    for bucket in np.array_split(np.arange(latency_ms.size), BUCKETS):
        low, high = np.quantile(latency_ms[bucket], (0.1, 0.9))
        middle = x(float(at_s[bucket].mean()))
        canvas.line((middle, y(low)), (middle, y(high)), kind="a")
    slow = latency_ms > p99
    for moment_s, value_ms in zip(at_s[slow], latency_ms[slow], strict=True):
        canvas.dot((x(float(moment_s)), y(float(value_ms))), "a", 1)
    # Labels of neighbours stay apart.
    for name, value_ms, below_px in (("p50", p50, 10), ("p90", p90, -2), ("p99", p99, 4)):
        canvas.line((70, y(value_ms)), (550, y(value_ms)), kind="ink dashed")
        canvas.text(f"{value_ms:.2f} ms", (64, y(value_ms) + below_px), "small", "end")
        canvas.text(name, (554, y(value_ms) + below_px), "small")
    canvas.text(
        f"line: p10 to p90 within {float(at_s[-1]) / BUCKETS:.2g} s; dot: a query above p99",
        (310, 470),
        "small soft",
        "middle",
    )


def _runs(canvas: Canvas) -> None:
    """Draw the p50 of each run in the order of measuring, and each model's interval over runs.

    The scale is latency.
    """
    canvas.text("p50 of all runs, and its interval", (730, 116), "title", "middle")
    session_sd = runs()[0].environment.session_sd
    for precision, kind, left_px, right_px in (("fp32", "a", 620, 720), ("int8", "b", 740, 840)):
        values_ms = [run.latency.p50_ms or math.nan for run in counted(of_precision(precision))]
        within, over = interval_over_runs(values_ms, 0.0), interval_over_runs(values_ms, session_sd)
        assert within is not None
        assert over is not None
        _intervals(canvas, (left_px, right_px), values_ms, within, over, kind)
        canvas.text(
            f"{precision}: {over.middle:.3g} ms", ((left_px + right_px) / 2, 142), "", "middle"
        )
        canvas.text(
            f"{over.low:.3g} to {over.high:.3g}",
            ((left_px + right_px) / 2, 160),
            "small soft",
            "middle",
        )
    canvas.text("dots: runs; thick: 95% over these runs;", (730, 452), "small soft", "middle")
    canvas.text(
        f"thin: with {100 * session_sd:.3g}% between sessions", (730, 470), "small soft", "middle"
    )


def _intervals(
    canvas: Canvas,
    sides: tuple[float, float],
    values_ms: Sequence[float],
    within: IntervalOverRuns,
    over: IntervalOverRuns,
    kind: str,
) -> None:
    y = Scale(over.middle / 1.18, over.middle * 1.18, 430, 172, is_log=True)
    left_px, right_px = sides
    for percent in (-15, -10, -5, 0, 5, 10, 15):
        at = y(over.middle * (1 + percent / 100))
        canvas.line((left_px, at), (right_px, at), kind="grid")
        if left_px < 700:
            canvas.text(
                f"{percent:+d}%" if percent else "0", (left_px - 6, at + 4), "small soft", "end"
            )
    for number, value_ms in enumerate(values_ms):
        canvas.dot((left_px + 10 + number * 34 / max(1, len(values_ms) - 1), y(value_ms)), kind)
    canvas.line((left_px + 75, y(over.low)), (left_px + 75, y(over.high)), kind=kind)
    canvas.line((left_px + 75, y(within.low)), (left_px + 75, y(within.high)), kind=f"{kind} thick")


def accuracy() -> str:
    """Return the picture of both APs, each with its interval, and of their difference.

    The difference is over the same images.
    """
    a, b = (
        next(run.accuracy for run in of_precision(precision) if run.accuracy)
        for precision in ("fp32", "int8")
    )
    canvas = Canvas(860, 330)
    x = Scale(0.70, 0.79, 60, 400)
    canvas.text("Each model by itself: the intervals overlap", (20, 26), "title")
    canvas.axis(x, 170, [(tick / 100, f"{tick / 100:.2f}") for tick in range(70, 80, 2)], 44)
    for name, scored, y, kind in (("fp32", a, 75, "a"), ("int8", b, 135, "b")):
        assert scored.low is not None
        assert scored.high is not None
        canvas.interval(x(scored.low), x(scored.value), x(scored.high), y, kind)
        canvas.text(
            f"{name}: AP {scored.value:.3f} (95% {scored.low:.3f} to {scored.high:.3f})",
            (60, y - 14),
        )
    difference = accuracy_difference(b.without_parts, a.without_parts, b.value - a.value)
    low, high = difference.bounds(CONFIDENCE) or (math.nan, math.nan)
    points = Scale(-2.5, 1.0, 60, 400)
    canvas.text("Their difference over the same images is known better", (20, 222), "title")
    canvas.rect(
        (points(-100 * MATTERS_ACCURACY), 236),
        (points(100 * MATTERS_ACCURACY) - points(-100 * MATTERS_ACCURACY), 54),
        "band",
    )
    canvas.axis(
        points, 290, [(tick, f"{tick:+g}" if tick else "0") for tick in (-2, -1, 0, 1)], 236
    )
    canvas.interval(
        points(100 * low), points(100 * difference.middle), points(100 * high), 270, "ink"
    )
    canvas.text(
        f"{100 * difference.middle:+.1f} points (95% {100 * low:+.1f} to {100 * high:+.1f}): worse",
        (60, 254),
    )
    canvas.text(
        "points of AP; green: differences that do not matter", (230, 322), "small soft", "middle"
    )
    _parts(canvas, a.without_parts, b.without_parts)
    return canvas.svg()


def _parts(canvas: Canvas, a: Sequence[float], b: Sequence[float]) -> None:
    """Draw both models' AP with one part of the images left out after the other.

    The two rise and fall together.
    """
    middle_a, middle_b = float(np.mean(a)), float(np.mean(b))
    reach = 1.2 * max(
        abs(value - middle) for values, middle in ((a, middle_a), (b, middle_b)) for value in values
    )
    x = Scale(middle_a - reach, middle_a + reach, 530, 820)
    y = Scale(middle_b - reach, middle_b + reach, 284, 50)
    canvas.text("AP without one of 20 parts of the images", (480, 26), "title")
    ticks = [round(middle_a + step * reach / 2, 3) for step in (-1, 0, 1)]
    canvas.axis(x, 284, [(tick, f"{tick:.3f}") for tick in ticks], 50)
    for tick in (round(middle_b + step * reach / 2, 3) for step in (-1, 0, 1)):
        canvas.line((530, y(tick)), (820, y(tick)), kind="grid")
        canvas.text(f"{tick:.3f}", (524, y(tick) + 4), "small soft", "end")
    canvas.line(
        (x(middle_a - reach), y(middle_b - reach)),
        (x(middle_a + reach), y(middle_b + reach)),
        kind="ink dashed",
    )
    for value_a, value_b in zip(a, b, strict=True):
        canvas.dot((x(value_a), y(value_b)), "truth")
    canvas.text(
        "across: fp32; up: int8; dashed: the same change of both",
        (675, 322),
        "small soft",
        "middle",
    )
