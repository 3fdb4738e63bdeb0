"""Board types: the spread of each case over the boards of a type, the outlying boards over all cases, and what to check first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from edgemeter.collector.runs.cases import UNKNOWN_BOARD, Fingerprint
from edgemeter.collector.trend.history import History, Points
from edgemeter.collector.trend.metrics import METRICS, Metric, SeriesKey, difference, off_scale, on_scale
from edgemeter.collector.units.spread import (
    OutlyingBoard,
    VarianceComponents,
    board_effects,
    boards_needed,
    outlying_boards,
    variance_components,
)

WARMER_C = 6.0
THROTTLED_RATIO = 0.05
USUAL = {
    "energy": (
        "power supply and cable",
        "the meter, by changing it with a healthy board's",
        "what is plugged in (USB)",
        "cooling",
        "firmware",
    ),
    "latency": (
        "cooling",
        "power supply and cable",
        "firmware and power mode",
        "USB port of the accelerator",
        "SD card",
        "other processes on it",
    ),
    "accuracy": ("the model and data files (their hashes)", "memory errors", "SD card"),
}


@dataclass(frozen=True, slots=True)
class BoardCondition:
    """What the newest runs of a board show: its usual temperature, the shares of throttled and under-voltage runs, its fingerprint."""

    temperature_c: float | None
    throttled_ratio: float | None
    under_voltage_ratio: float | None
    below: Fingerprint


def advice(metric: str, own: BoardCondition, others: Sequence[BoardCondition]) -> list[str]:
    """Return what to check, the likeliest first: evidence before general advice."""
    found = []
    if own.under_voltage_ratio:
        found.append(f"power supply and cable: under-voltage in {own.under_voltage_ratio:.0%} of its runs")
    if own.throttled_ratio and own.throttled_ratio > THROTTLED_RATIO:
        found.append(f"cooling: throttled in {own.throttled_ratio:.0%} of its runs")
    temperatures_c = [other.temperature_c for other in others if other.temperature_c is not None]
    if own.temperature_c is not None and temperatures_c and own.temperature_c - median(temperatures_c) > WARMER_C:
        found.append(f"cooling: {own.temperature_c:.0f} °C, the other boards {median(temperatures_c):.0f} °C")
    for name in Fingerprint.__struct_fields__:
        usual, count = Counter(getattr(other.below, name) for other in others).most_common(1)[0]
        if getattr(own.below, name) != usual and count > len(others) / 2:
            found.append(
                f"{name.replace('_', ' ')}: {getattr(own.below, name) or 'none'}, {count} of {len(others)} others have {usual or 'none'}"
            )
    seen = {text.partition(":")[0] for text in found}
    habits = USUAL.get(metric.partition("-")[0], USUAL["energy"])
    return found + [habit for habit in habits if habit not in seen]


# The present state of a board: its runs of this many days up to the newest of its type.
LATELY_DAYS = 30
WITHIN = 2.0


@dataclass(frozen=True, slots=True)
class CaseSpread:
    """One case on the boards of a type: the mean in the metric's unit with its interval, and how far it spreads (per cent or points)."""

    case: str
    mean: float
    low: float | None
    high: float | None
    spread: VarianceComponents
    needed: int | None


@dataclass(frozen=True, slots=True)
class OutlyingUnit:
    """An outlying board: by how much (per cent or points, over all cases), over how many cases, and what to check."""

    device: str
    apart: float
    cases: int
    score: float
    limit: float
    look_at: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoardTypeSpread:
    """The boards of one type in a fleet; `sick` (the outlying ones) is None if they are too few to judge."""

    fleet: str
    board: str
    metric: str
    boards: int
    cases: tuple[CaseSpread, ...]
    sick: tuple[OutlyingUnit, ...] | None


def board_types(history: History, name: str, keys: Sequence[SeriesKey], *, with_cases: bool = True) -> list[BoardTypeSpread]:
    """Return every board type among the series `keys`, by fleet and name; those without a figure of the metric are left away.

    Without the cases only the outlying boards are looked for, which takes a fraction of the time.
    """
    return [_type(name, *found, with_cases=with_cases) for found in _counted(history, name, keys)]


# The runs of each series.
_Runs = dict[SeriesKey, Points]


def _counted(history: History, name: str, keys: Sequence[SeriesKey]) -> Iterator[tuple[list[SeriesKey], _Runs, _Runs]]:
    """Yield for each board type its series, their runs lately, and those of them that count."""
    groups: dict[tuple[str, str, str], list[SeriesKey]] = {}
    for key in keys:
        if key.role == "device":
            groups.setdefault((key.fleet, _type_of(key), key.provenance), []).append(key)
    for _, members in sorted(groups.items()):
        begin = max(history.last_day(key) for key in members) - LATELY_DAYS + 1
        lately = {key: history.points(key, begin) for key in members}
        counted = {key: own for key, own in _of_one_kind(METRICS[name], lately).items() if own}
        if counted:
            yield members, lately, counted


def _type_of(key: SeriesKey) -> str:
    """Return the board type; boards of unknown type are each on their own."""
    return key.board if key.board != UNKNOWN_BOARD else f"{key.device}, {UNKNOWN_BOARD}"


def _type(name: str, keys: Sequence[SeriesKey], lately: _Runs, counted: _Runs, *, with_cases: bool) -> BoardTypeSpread:
    metric = METRICS[name]
    cases: dict[SeriesKey, _Runs] = {}
    for key, own in counted.items() if with_cases else ():
        cases.setdefault(key.of_type(), {})[key] = own
    spreads = tuple(_spread(metric, case, cases[case]) for case in sorted(cases, key=lambda case: case.case()))
    devices = len({key.device for key in counted})
    return BoardTypeSpread(keys[0].fleet, _type_of(keys[0]), name, devices, spreads, _sick(name, lately, counted))


def _sick(name: str, lately: _Runs, counted: _Runs) -> tuple[OutlyingUnit, ...] | None:
    """Return the outlying boards, None if the boards are too few to judge."""
    metric = METRICS[name]
    devices = sorted({key.device for key in counted})
    rows = {device: row for row, device in enumerate(devices)}
    cases = {key.of_type() for key in counted}
    columns = {case: column for column, case in enumerate(sorted(cases, key=lambda case: case.case()))}
    table = np.full((len(devices), len(columns)), np.nan)
    for key, own in counted.items():
        values = [on_scale(metric, metric.value(run) or 0.0) for run, _ in own]
        table[rows[key.device], columns[key.of_type()]] = np.median(values)
    apart = outlying_boards(list(board_effects(table)), floor=_floor(metric))
    if not apart:
        return None if apart is None else ()
    health: dict[str, Points] = {device: [] for device in devices}
    for key, own in lately.items():
        if key.device in health:
            health[key.device] += own
    conditions = {device: _condition(own) for device, own in health.items()}
    return tuple(_outlying_unit(name, metric, one, devices, table, conditions) for one in apart)


def _floor(metric: Metric) -> float:
    # Accuracies of the same model on the same data are the same on healthy boards, but for rounding.
    return 1.5 if metric.scale == "log" else metric.matters / 2


def _of_one_kind(metric: Metric, lately: dict[SeriesKey, Points]) -> dict[SeriesKey, Points]:
    """Return the runs that count, of the kind (scope, metric) that most boards' runs have: another meter is no defect."""
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
    found = variance_components(np.array(board, dtype=np.int64), np.array(day, dtype=np.int64), np.array(x, dtype=np.float64))
    needed = boards_needed(found.between_boards, WITHIN) if found.between_boards and metric.scale == "log" else None
    return CaseSpread(
        case=case.case(),
        mean=off_scale(metric, found.mean),
        low=None if found.low is None else off_scale(metric, found.low),
        high=None if found.high is None else off_scale(metric, found.high),
        spread=found,
        needed=needed,
    )


def _condition(pairs: Points) -> BoardCondition:
    runs = [run for run, _ in pairs]
    temperatures_c = [run.temperature_c for run in runs if run.temperature_c is not None]
    throttled = [run.is_throttled for run in runs if run.is_throttled is not None]
    low = [run.is_under_voltage for run in runs if run.is_under_voltage is not None]
    below = max(pairs, key=lambda pair: pair[0].started_at_ns)[1]
    return BoardCondition(
        temperature_c=float(np.median(temperatures_c)) if temperatures_c else None,
        throttled_ratio=sum(throttled) / len(throttled) if throttled else None,
        under_voltage_ratio=sum(low) / len(low) if low else None,
        below=below,
    )


def _outlying_unit(
    name: str,
    metric: Metric,
    one: OutlyingBoard,
    devices: Sequence[str],
    table: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    health: dict[str, BoardCondition],
) -> OutlyingUnit:
    device = devices[one.place]
    others = [health[other] for other in devices if other != device]
    return OutlyingUnit(
        device=device,
        apart=difference(metric, one.distance),
        cases=int(np.isfinite(table[one.place]).sum()),
        score=one.score,
        limit=one.limit,
        look_at=tuple(advice(name, health[device], others)),
    )
