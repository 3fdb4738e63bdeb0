"""Board types: the spread of each case over the boards of a type, and the boards that lie apart over all of their cases."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.collector.compare.cases import UNKNOWN_BOARD
from edgemeter.collector.trend.history import History, Points
from edgemeter.collector.trend.metrics import METRICS, Metric, difference, off_scale, on_scale
from edgemeter.collector.trend.run_figures import SeriesKey
from edgemeter.collector.units import residuals
from edgemeter.collector.units.advice import Health, advice
from edgemeter.collector.units.components import Components, boards_needed, components
from edgemeter.collector.units.outliers import Outlier, outliers

# What a board is like now: its runs of so many days up to its type's newest one.
LATELY_DAYS = 30
WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class CaseSpread:
    """One case on the boards of a type: the mean in the metric's unit with its interval, and how far it spreads (per cent or points)."""

    case: str
    mean: float
    low: float | None
    high: float | None
    spread: Components
    needed: int | None


@dataclass(frozen=True, slots=True)
class SickUnit:
    """A board that lies apart: by how much (per cent or points, over all cases), on how many cases that rests, and what to look at."""

    device: str
    apart: float
    cases: int
    score: float
    limit: float
    look_at: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoardType:
    """The boards of one type in a fleet; `sick` is None where they are too few to judge."""

    fleet: str
    board: str
    metric: str
    boards: int
    cases: tuple[CaseSpread, ...]
    sick: tuple[SickUnit, ...] | None


def board_types(history: History, name: str, keys: Sequence[SeriesKey]) -> list[BoardType]:
    """Return every board type among the series `keys`, by fleet and name; those without a figure of the metric are left away."""
    groups: dict[tuple[str, str, str], list[SeriesKey]] = {}
    for key in keys:
        if key.role == "device":
            groups.setdefault((key.fleet, _type_of(key), key.provenance), []).append(key)
    found = [_type(history, name, members) for _, members in sorted(groups.items())]
    return [one for one in found if one is not None]


def _type_of(key: SeriesKey) -> str:
    """Return the board type; boards that do not tell theirs are not of one, each stands alone."""
    return key.board if key.board != UNKNOWN_BOARD else f"{key.device}, {UNKNOWN_BOARD}"


def _type(history: History, name: str, keys: Sequence[SeriesKey]) -> BoardType | None:
    metric = METRICS[name]
    points = {key: history.points(key) for key in keys}
    newest = max((run.day for own in points.values() for run, _ in own), default=0)
    lately = {key: [pair for pair in own if newest - pair[0].day < LATELY_DAYS] for key, own in points.items()}
    counted = _of_one_kind(metric, lately)
    counted = {key: own for key, own in counted.items() if own}
    if not counted:
        return None
    devices = sorted({key.device for key in counted})
    cases = sorted({key.of_type() for key in counted}, key=lambda key: key.case())
    table = np.full((len(devices), len(cases)), np.nan)
    for key, own in counted.items():
        values = [on_scale(metric, metric.value(run) or 0.0) for run, _ in own]
        table[devices.index(key.device), cases.index(key.of_type())] = np.median(values)
    effects = residuals.board_effects(table)
    apart = outliers(list(effects), floor=_floor(metric))
    sick = None
    if apart is not None:
        health = {device: _health([pair for key, own in lately.items() if key.device == device for pair in own]) for device in devices}
        sick = tuple(_sick(name, metric, one, devices, table, health) for one in apart)
    spreads = tuple(_spread(metric, case, {key: own for key, own in counted.items() if key.of_type() == case}) for case in cases)
    return BoardType(keys[0].fleet, _type_of(keys[0]), name, len(devices), spreads, sick)


def _floor(metric: Metric) -> float:
    # Accuracies of the same model on the same data are the same on healthy boards, but for rounding.
    return 1.5 if metric.scale == "log" else metric.matters / 2


def _of_one_kind(metric: Metric, lately: dict[SeriesKey, Points]) -> dict[SeriesKey, Points]:
    """Return the runs that count, of the kind (scope, metric) that most boards' runs have: another meter is no sick board."""
    valid = {
        key: [pair for pair in own if metric.value(pair[0]) is not None and (pair[0].verdict == "valid" or not metric.only_valid)]
        for key, own in lately.items()
    }
    kinds = [metric.kind(run) for own in valid.values() for run, _ in own]
    kind = max(sorted(set(kinds), key=str), key=kinds.count) if kinds else None
    return {key: [pair for pair in own if metric.kind(pair[0]) == kind] for key, own in valid.items()}


def _spread(metric: Metric, case: SeriesKey, members: dict[SeriesKey, Points]) -> CaseSpread:
    names = sorted({key.device for key in members})
    rows = [
        (names.index(key.device), run.day, on_scale(metric, metric.value(run) or 0.0)) for key, own in members.items() for run, _ in own
    ]
    board, day, x = zip(*rows, strict=True)
    found = components(np.array(board, dtype=np.int64), np.array(day, dtype=np.int64), np.array(x, dtype=np.float64))
    needed = boards_needed(found.between_boards, WITHIN) if found.between_boards and metric.scale == "log" else None
    return CaseSpread(
        case=case.case(),
        mean=off_scale(metric, found.mean),
        low=None if found.low is None else off_scale(metric, found.low),
        high=None if found.high is None else off_scale(metric, found.high),
        spread=found,
        needed=needed,
    )


def _health(pairs: Points) -> Health:
    runs = [run for run, _ in pairs]
    temperatures_c = [run.temperature_c for run in runs if run.temperature_c is not None]
    throttled = [run.is_throttled for run in runs if run.is_throttled is not None]
    low = [run.is_under_voltage for run in runs if run.is_under_voltage is not None]
    below = max(pairs, key=lambda pair: pair[0].started_at_ns)[1]
    return Health(
        temperature_c=float(np.median(temperatures_c)) if temperatures_c else None,
        throttled_ratio=sum(throttled) / len(throttled) if throttled else None,
        under_voltage_ratio=sum(low) / len(low) if low else None,
        below=below,
    )


def _sick(
    name: str,
    metric: Metric,
    one: Outlier,
    devices: Sequence[str],
    table: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    health: dict[str, Health],
) -> SickUnit:
    device = devices[one.place]
    others = [health[other] for other in devices if other != device]
    return SickUnit(
        device=device,
        apart=difference(metric, one.distance),
        cases=int(np.isfinite(table[one.place]).sum()),
        score=one.score,
        limit=one.limit,
        look_at=tuple(advice(name, health[device], others)),
    )
