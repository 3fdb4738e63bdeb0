"""The watch: the trends of all selected series, from the last result where no run is new."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, SeriesKey
from edgemeter.collector.trend.days import Days, days_of_series, of_type
from edgemeter.collector.trend.history import History, without_garbage_collection
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.portions import Portion, in_processes, parts_of, trends_in
from edgemeter.collector.trend.run_columns import names_of
from edgemeter.collector.trend.series_trend import SeriesTrend
from edgemeter.collector.trend.watch_file import Annotation, cuts

# Raised whenever the same records would give different findings, or they are kept in another form.
VERSION = 10

# How many names an error lists.
SHOWN = 8
Progress = Callable[[str, int, int], None]
_Found = list[SeriesTrend]
_decode = msgspec.msgpack.Decoder(_Found).decode


@dataclass(frozen=True, slots=True)
class SeriesSelection:
    """Which series: a field that is None matches everything."""

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    precision: str | None = None
    runtime: str | None = None

    def takes(self, key: SeriesKey) -> bool:
        """Return whether the series is selected."""
        return all(value is None or value == getattr(key, name) for name in self.__slots__ for value in [getattr(self, name)])


EVERY_SERIES = SeriesSelection()


def keys_of(history: History, selection: SeriesSelection) -> list[SeriesKey]:
    """Return the selected series.

    Raises:
        ConfigError: there are series, and none is selected.
    """
    every = history.series()
    found = [key for key in every if selection.takes(key)]
    if every and not found:
        selected = {name: value for name in selection.__slots__ if (value := getattr(selection, name)) is not None}
        nowhere = [name for name, value in selected.items() if all(getattr(key, name) != value for key in every)]
        if nowhere:
            there = sorted({str(getattr(key, nowhere[0])) for key in every})
            more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
            message = f"no run has {nowhere[0]} {selected[nowhere[0]]!r}; known are {', '.join(there[:SHOWN])}{more}"
        else:
            message = f"no run has {', '.join(f'{name} {value!r}' for name, value in selected.items())}: give fewer conditions"
        raise ConfigError(message)
    return found


def trends_of(
    history: History,
    annotations: Sequence[Annotation],
    metrics: Sequence[str],
    selection: SeriesSelection = EVERY_SERIES,
    *,
    by_type: bool = False,
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> list[SeriesTrend]:
    """Return the trends of the metrics in every series, or in every board type with at least two devices.

    Many that are not kept are computed in so many processes; `progress` gets how many series are done, and of how many.
    """
    keys = [key for key in history.series() if selection.takes(key)]
    if by_type:
        groups: dict[SeriesKey, list[SeriesKey]] = {}
        # Boards of unknown type have no trend in common.
        for key in (one for one in keys if one.board != UNKNOWN_BOARD):
            groups.setdefault(key.of_type(), []).append(key)
        selected = {key: members for key, members in groups.items() if len(members) > 1}
    else:
        selected = {key: [key] for key in keys}
    with without_garbage_collection():
        found = {name: _kept(history, annotations, name, list(selected)) for name in metrics}
        stale = {key: members for key, members in selected.items() if any(key not in found[name] for name in metrics)}
        _compute(history, annotations, stale, found, workers, progress)
    return [one for name in metrics for key in selected for one in found[name][key]]


def trends_of_one(history: History, annotations: Sequence[Annotation], name: str, key: SeriesKey) -> list[SeriesTrend]:
    """Return the trends of a metric in a series; none where no run has it."""
    found = {name: _kept(history, annotations, name, [key])}
    if key not in found[name]:
        _compute(history, annotations, {key: [key]}, found)
    return found[name][key]


def points(history: History, key: SeriesKey, name: str) -> Days:
    """Return the points of a metric in a series, or in a board type where `key` names no device."""
    members = [key] if key.device else [one for one in history.series() if one.of_type() == key]
    days = days_of_series(METRICS[name], history.columns(members, names_of([METRICS[name]])))
    return days[0] if key.device else of_type(days)


def _kept(history: History, annotations: Sequence[Annotation], name: str, keys: Sequence[SeriesKey]) -> dict[SeriesKey, _Found]:
    """Return what was computed before and is still true."""
    kept = history.kept(f"{VERSION} {name}", keys)
    return {key: _of_key(key, body) for key, declared, body in kept if declared == _declared(cuts(annotations, key, name))}


def _declared(days: Mapping[int, str]) -> str:
    """Return the declared new levels of a series as text."""
    return "; ".join(f"{day} {text}" for day, text in sorted(days.items()))


def _compute(
    history: History,
    annotations: Sequence[Annotation],
    selected: Mapping[SeriesKey, Sequence[SeriesKey]],
    found: Mapping[str, dict[SeriesKey, _Found]],
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> None:
    """Compute the trends of the selected series or board types into `found`, by metric, and keep them."""
    done, names = 0, names_of(METRICS[name] for name in found)
    portions = (
        Portion(
            read=history.columns([member for key in part for member in selected[key]], names),
            keys=part,
            members=[len(selected[key]) for key in part],
            cuts={name: [cuts(annotations, key, name) for key in part] for name in found},
        )
        for part in parts_of({key: len(members) for key, members in selected.items()})
    )
    for portion, computed in in_processes(trends_in, portions, workers):
        for name, bodies in computed.items():
            found[name].update(zip(portion.keys, map(_of_key, portion.keys, bodies), strict=True))
            results = zip(portion.keys, map(_declared, portion.cuts[name]), bodies, strict=True)
            history.keep(f"{VERSION} {name}", results)
        done += len(portion.keys)
        progress("looking for changes in series", done, len(selected))


def _of_key(key: SeriesKey, body: bytes) -> _Found:
    """Return a result that was kept without its key, which who asks knows, and which is larger than the rest."""
    found = _decode(body)
    for one in found:
        msgspec.structs.force_setattr(one, "key", key)
    return found
