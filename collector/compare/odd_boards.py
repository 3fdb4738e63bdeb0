"""Odd boards are those of a type whose figures are far from the median of all.

They are judged by the median absolute deviation (MAD).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from edgemeter.agent.contract.series import UNKNOWN_BOARD, SeriesKey
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS, TrendMetric, difference
from edgemeter.collector.trend.run_columns import names_of, scaled

LATELY_DAYS = 30
FEWEST = 6
# In standard deviations: 4% of fleets of 20 healthy boards have one beyond it (simulated).
LIMIT = 3.6


@dataclass(frozen=True, slots=True)
class OddBoard:
    """A board that differs from its peers.

    It has by how much (per cent or points), over how many cases, and by how many standard
    deviations.
    """

    device: str
    apart: float
    cases: int
    score: float
    is_worse: bool


@dataclass(frozen=True, slots=True)
class BoardType:
    """The boards of one type in a fleet that have a figure; fewer than FEWEST are not compared."""

    fleet: str
    board: str
    metric: str
    boards: int
    odd: tuple[OddBoard, ...]


def board_types(history: History, name: str, keys: Sequence[SeriesKey]) -> Iterator[BoardType]:
    """Yield every board type among the series `keys`, by fleet and name.

    Boards of unknown type are each on their own.
    """
    metric = METRICS[name]
    floor = 1.5 if metric.rule.scale == "log" else metric.rule.matters / 2
    boards = (
        (key, key.board if key.board != UNKNOWN_BOARD else f"{key.device}, {UNKNOWN_BOARD}")
        for key in keys
        if key.role == "device"
    )
    for (fleet, board, _), members in sorted(
        grouped(((key.fleet, board, key.provenance), key) for key, board in boards).items()
    ):
        levels, kind = _levels(history, metric, members)
        if levels:
            middle = {
                case: median(of)
                for case, of in grouped(
                    pair for cases in levels.values() for pair in cases.items()
                ).items()
            }
            effects = {
                device: median(level - middle[case] for case, level in cases.items())
                for device, cases in levels.items()
            }
            odd = [
                OddBoard(
                    device,
                    difference(metric, distance),
                    len(levels[device]),
                    score,
                    metric.is_worse(distance, kind),
                )
                for device, distance, score in scores(effects, floor)
                if score > LIMIT and len(levels) >= FEWEST
            ]
            yield BoardType(fleet, board, name, len(levels), tuple(odd))


def _levels(
    history: History, metric: TrendMetric, members: Sequence[SeriesKey]
) -> tuple[dict[str, dict[SeriesKey, float]], str | None]:
    """Return for each board the median of its recent runs in each case.

    It is on the metric's scale, with the kind of the figures.
    """
    runs = history.columns(
        members, names_of([metric]), max(map(history.last_day, members)) - LATELY_DAYS + 1
    )
    value, (kind, kinds) = runs.values(metric), runs.kinds(metric)
    counts = ~np.isnan(value) & (runs.is_ok | (metric.rule.scale == "share"))
    # Another meter is no defect: the kind (scope, metric) that most runs have; among equals the
    # first by name.
    usual = min(
        range(len(kinds)),
        key=lambda number: (-int((kind[counts] == number).sum()), str(kinds[number])),
        default=0,
    )
    counts &= kind == usual
    levels: dict[str, dict[SeriesKey, float]] = defaultdict(dict)
    for key, (begin, end) in zip(members, pairwise(runs.edges), strict=True):
        if counts[begin:end].any():
            levels[key.device][key.of_type()] = float(
                np.median(scaled(metric, value[begin:end][counts[begin:end]]))
            )
    return levels, kinds[usual] if kinds else None


class BoardDistance(NamedTuple):
    """How far a board is from the median of its type.

    `score` is the distance in standard deviations (1.4826 MAD).
    """

    device: str
    distance: float
    score: float


def scores(effects: Mapping[str, float], floor: float) -> list[BoardDistance]:
    """Return how far each board is from the median, the farthest first."""
    centre = median(effects.values())
    spread = max(1.4826 * median(abs(effect - centre) for effect in effects.values()), floor)
    distances = (
        BoardDistance(device, effect - centre, abs(effect - centre) / spread)
        for device, effect in effects.items()
    )
    return sorted(distances, key=lambda entry: -entry.score)
