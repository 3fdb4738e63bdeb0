"""Whether the stated interval of a ratio holds the level that a board has now, in short histories with and without a step.

Each draw goes through `compare`, the search for confirmed steps included: a device that steps some days ago against a reference that does
not. Days scatter by 1%, independent of each other or each like the day before (AR(1)), normally, with heavy tails or with outliers; runs
of a day by 0.3%.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.comparison import compare
from edgemeter.collector.runs.store import StoreContents
from tests.benchmarks.comparison import COVERAGE, Comparison, against, figure
from tests.fixtures.level_factory import level_runs

DAY_SD, RUN_SD, RATIO, DRAWS = 0.01, 0.003, 1.04, 200
# Days, days since the step, autocorrelation, and the distribution of the days.
HISTORIES = [(5, 2, 0.0, "normal"), (8, 3, 0.0, "normal"), (12, 4, 0.0, "normal"), (27, 7, 0.0, "normal"), (40, 14, 0.0, "normal")]
HISTORIES += [(12, 4, 0.5, "normal"), (27, 7, 0.5, "normal"), (40, 5, 0.5, "normal"), (27, 7, 0.0, "heavy"), (27, 7, 0.0, "outliers")]
STEPS = (0.0, 0.02, 0.03, 0.06, 0.10)


def comparisons() -> Iterator[Comparison]:
    """Yield for each history and step the share of intervals that hold the level since, the marked ones, and the median width."""
    for history in HISTORIES:
        for step in STEPS:
            hits, marked, widths = simulated(*history, step)
            name = f"{history[0]} days, the last {history[1]} at {step:+.0%}, AR {history[2]:g}, {history[3]}"
            share = float(np.mean(hits | marked))
            yield against(f"{name}: holds it or is marked", "of the draws", share, ("stated", 0.95), ">= 93%", met=share >= COVERAGE[0])
            yield figure(f"{name}: holds the level", "of the draws", float(np.mean(hits)))
            yield figure(f"{name}: marked", "of the draws", float(np.mean(marked)))
            yield figure(f"{name}: width", "of the ratio", float(np.median(widths)))


def simulated(
    days: int, since: int, correlation: float, kind: str, step: float, draws: int = DRAWS
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Return of each draw whether the interval holds the ratio that is true since the step, whether it is marked, and its width."""
    draw, results = np.random.default_rng(5), []
    for _ in range(draws):
        stepped = np.where(np.arange(days) < days - since, 0.0, math.log1p(step))
        runs = [
            *_runs(draw, _noise(draw, days, correlation, kind) + stepped + math.log(RATIO), "pi-1"),
            *_runs(draw, _noise(draw, days, correlation, kind), "reference"),
        ]
        row = next(row for row in compare(StoreContents(runs), "reference").rows if not row.is_reference)
        low, high = row.ratios.interval("latency") or (0.0, math.inf)
        results.append((low <= RATIO * (1 + step) <= high, "step suspected" in row.marks, high / low - 1))
    hits, marked, widths = map(np.array, zip(*results, strict=True))
    return hits, marked, widths


def _runs(draw: np.random.Generator, logs: NDArray[np.float64], device: str) -> list[RunRecord]:
    return level_runs(10 * np.exp(logs + RUN_SD * draw.normal(size=len(logs))), device=device)


def _noise(draw: np.random.Generator, days: int, correlation: float, kind: str) -> NDArray[np.float64]:
    shocks = draw.standard_t(3, days + 20) / math.sqrt(3) if kind == "heavy" else draw.normal(size=days + 20)
    if kind == "outliers":
        shocks = np.where(draw.random(len(shocks)) < 0.08, 4 * shocks, shocks)
    level, levels = 0.0, []
    for shock in shocks:
        level = correlation * level + math.sqrt(1 - correlation**2) * shock
        levels.append(level)
    return DAY_SD * np.array(levels[-days:])
