"""Board types: the spread of each case over the boards of a type, the outlying boards over all cases, and what to check first."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from edgemeter.collector.runs.cases import UNKNOWN_BOARD, Fingerprint, SeriesKey, grouped
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS, TrendMetric, difference, off_scale
from edgemeter.collector.trend.noise import median as median_of_values
from edgemeter.collector.trend.run_columns import TEMPERATURE, RunColumns, names_of, scaled
from edgemeter.collector.units.spread import FLOOR, VarianceComponents, board_effects, boards_needed, outlying_boards, variance_components

WARMER_C = 6.0
THROTTLED_RATIO = 0.05
USUAL = {
    "energy": (
        "power supply and cable", "the meter, by changing it with a healthy board's", "what is plugged in (USB)", "cooling", "firmware",
    ),
    "latency": (
        "cooling", "power supply and cable", "firmware and power mode", "USB port of the accelerator", "SD card", "other processes on it",
    ),
    **dict.fromkeys(("accuracy", "error"), ("the model and data files (their hashes)", "memory errors", "SD card")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoardCondition:
    """The condition of a board in its newest runs: usual temperature, shares of throttled and under-voltage runs, fingerprint."""

    temperature_c: float | None
    throttled_ratio: float | None
    under_voltage_ratio: float | None
    below: Fingerprint


def advice(metric: str, board: BoardCondition, peers: Sequence[BoardCondition]) -> list[str]:
    """Return what to check, the likeliest first: evidence before general advice."""
    checks = []
    if board.under_voltage_ratio:
        checks.append(f"power supply and cable: under-voltage in {board.under_voltage_ratio:.0%} of its runs")
    if board.throttled_ratio and board.throttled_ratio > THROTTLED_RATIO:
        checks.append(f"cooling: throttled in {board.throttled_ratio:.0%} of its runs")
    temperatures_c = [other.temperature_c for other in peers if other.temperature_c is not None]
    if board.temperature_c is not None and temperatures_c and board.temperature_c - median(temperatures_c) > WARMER_C:
        checks.append(f"cooling: {board.temperature_c:.0f} °C, the other boards {median(temperatures_c):.0f} °C")
    for name in Fingerprint.__struct_fields__:
        usual, count = Counter(getattr(other.below, name) for other in peers).most_common(1)[0]
        if getattr(board.below, name) != usual and count > len(peers) / 2:
            checks.append(
                f"{name.replace('_', ' ')}: {getattr(board.below, name) or 'none'}, {count} of {len(peers)} others have {usual or 'none'}"
            )
    named = {text.partition(":")[0] for text in checks}
    habits = USUAL.get(metric.partition("-")[0], USUAL["energy"])
    return checks + [habit for habit in habits if habit not in named]


# The present state of a board: its runs of this many days up to the newest of its type.
LATELY_DAYS = 30
WITHIN = 2.0
# What a board's condition is made of, beside its temperature.
_CONDITIONS = ("at_ns", "throttled_ratio", "is_under_voltage")


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
class OutlyingPeer:
    """An outlier among its peers: by how much (per cent or points, over all cases), over how many cases, and what to check."""

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
    sick: tuple[OutlyingPeer, ...] | None


def board_types(history: History, name: str, keys: Sequence[SeriesKey], *, with_cases: bool = True) -> list[BoardTypeSpread]:
    """Return every board type among the series `keys`, by fleet and name; those without a figure of the metric are left away.

    Without the cases only the outlying boards are looked for, which takes a fraction of the time.
    """
    return [_type(name, lately, with_cases=with_cases) for lately in _of_types(history, METRICS[name], keys)]


@dataclass(frozen=True, slots=True)
class _Lately:
    """The runs of the series of a board type lately: `series` is the place of each among the `keys`.

    `counted` are the places of those that count, `x` their figures on the metric's scale, `edges` where those of each series begin.
    """

    keys: Sequence[SeriesKey]
    runs: RunColumns
    series: NDArray[np.intp]
    counted: NDArray[np.intp]
    x: NDArray[np.float64]
    edges: Sequence[int]

    def counting(self) -> Iterator[tuple[SeriesKey, slice]]:
        """Yield each series of which runs count, with the part of `counted` that is of it."""
        for key, (begin, end) in zip(self.keys, pairwise(self.edges), strict=True):
            if end > begin:
                yield key, slice(begin, end)


def _of_types(history: History, metric: TrendMetric, keys: Sequence[SeriesKey]) -> Iterator[_Lately]:
    groups = grouped(((key.fleet, _type_of(key), key.provenance), key) for key in keys if key.role == "device")
    names = list(dict.fromkeys([*names_of([metric]), *_CONDITIONS]))
    for _, members in sorted(groups.items()):
        begin = max(history.last_day(key) for key in members) - LATELY_DAYS + 1
        runs = history.columns(members, names, begin)
        value = runs.values(metric)
        counted = _of_one_kind(metric, runs, np.flatnonzero(~np.isnan(value) & (runs.is_valid | (not metric.rule.only_valid))))
        if len(counted):
            series = np.repeat(np.arange(len(members)), np.diff(runs.edges))
            edges = np.searchsorted(series[counted], np.arange(len(members) + 1)).tolist()
            yield _Lately(members, runs, series, counted, scaled(metric, value[counted]), edges)


def _of_one_kind(metric: TrendMetric, runs: RunColumns, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the places of runs of the kind (scope, metric) that most boards' runs have: another meter is no defect."""
    kind, kinds = runs.kinds(metric)
    count = np.bincount(kind[places], minlength=len(kinds)).tolist()
    # Of equally many the first by name.
    usual = max(sorted(range(len(kinds)), key=lambda kind_number: str(kinds[kind_number])), key=count.__getitem__, default=0)
    of_usual: NDArray[np.intp] = places[kind[places] == usual]
    return of_usual


def _type_of(key: SeriesKey) -> str:
    """Return the board type; boards of unknown type are each on their own."""
    return key.board if key.board != UNKNOWN_BOARD else f"{key.device}, {UNKNOWN_BOARD}"


def _type(name: str, lately: _Lately, *, with_cases: bool) -> BoardTypeSpread:
    cases = grouped((key.of_type(), (key, part)) for key, part in (lately.counting() if with_cases else ()))
    spreads = tuple(_spread(METRICS[name], case, cases[case], lately) for case in sorted(cases, key=lambda case: case.case()))
    devices = len({key.device for key, _ in lately.counting()})
    first = lately.keys[0]
    return BoardTypeSpread(first.fleet, _type_of(first), name, devices, spreads, _sick(name, lately))


def _sick(name: str, lately: _Lately) -> tuple[OutlyingPeer, ...] | None:
    """Return the outlying boards, None if the boards are too few to judge."""
    metric = METRICS[name]
    counting = [(key.device, key.of_type(), part) for key, part in lately.counting()]
    devices = sorted({device for device, _, _ in counting})
    rows = {device: row for row, device in enumerate(devices)}
    columns = {case: column for column, case in enumerate(sorted({case for _, case, _ in counting}, key=lambda case: case.case()))}
    table = np.full((len(devices), len(columns)), np.nan)
    for device, case, part in counting:
        table[rows[device], columns[case]] = median_of_values(lately.x[part])
    # Accuracies of the same model on the same data are the same on healthy boards, but for rounding.
    floor = FLOOR if metric.rule.scale == "log" else metric.rule.matters / 2
    apart = outlying_boards(list(board_effects(table)), floor=floor)
    if not apart:
        return None if apart is None else ()
    health = _conditions(lately, rows)
    return tuple(
        OutlyingPeer(
            device=devices[board.place],
            apart=difference(metric, board.distance),
            cases=int(np.isfinite(table[board.place]).sum()),
            score=board.score,
            limit=board.limit,
            look_at=tuple(
                advice(name, health[devices[board.place]], [health[other] for other in devices if other != devices[board.place]])
            ),
        )
        for board in apart
    )


def _spread(metric: TrendMetric, case: SeriesKey, members: Sequence[tuple[SeriesKey, slice]], lately: _Lately) -> CaseSpread:
    names = sorted({key.device for key, _ in members})
    board = np.concatenate([np.full(part.stop - part.start, names.index(key.device), dtype=np.int64) for key, part in members])
    day = np.concatenate([lately.runs.day[lately.counted[part]] for _, part in members])
    components = variance_components(board, day, np.concatenate([lately.x[part] for _, part in members]))
    boards = boards_needed(components.between_boards, WITHIN) if components.between_boards and metric.rule.scale == "log" else None
    return CaseSpread(
        case=case.case(),
        mean=off_scale(metric, components.mean),
        low=None if components.low is None else off_scale(metric, components.low),
        high=None if components.high is None else off_scale(metric, components.high),
        spread=components,
        needed=boards,
    )


def _conditions(lately: _Lately, rows: Mapping[str, int]) -> dict[str, BoardCondition]:
    row = np.array([rows.get(key.device, len(rows)) for key in lately.keys])[lately.series]
    order = np.argsort(row, kind="stable")
    parts = np.split(order, np.searchsorted(row[order], np.arange(1, len(rows) + 1)))
    return {device: _condition(lately.runs, parts[row_number]) for device, row_number in rows.items()}


def _condition(runs: RunColumns, places: NDArray[np.intp]) -> BoardCondition:
    temperatures_c, throttled, low = (
        values[~np.isnan(values)]
        for values in (runs.figures[name][places] for name in (TEMPERATURE, "throttled_ratio", "is_under_voltage"))
    )
    newest = places[np.argmax(runs.figures["at_ns"][places])]
    return BoardCondition(
        temperature_c=median_of_values(temperatures_c) if len(temperatures_c) else None,
        throttled_ratio=float(throttled.sum()) / len(throttled) if len(throttled) else None,
        under_voltage_ratio=float(low.sum()) / len(low) if len(low) else None,
        below=runs.facts[runs.common[newest]].below,
    )
