"""The watch: the trends of all series that are asked for, from what was found before where nothing came since."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.compare.cases import UNKNOWN_BOARD
from edgemeter.collector.trend.annotations import Annotation, cuts
from edgemeter.collector.trend.days import Days, days_of, of_type
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_figures import SeriesKey
from edgemeter.collector.trend.series_trend import SeriesTrend, trends

# Raised whenever the same records would give other findings.
VERSION = 6
_BATCH = 500
# So many names are told where none fits.
SHOWN = 8
_Found = list[SeriesTrend]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which series: a field that is None may be anything."""

    fleet: str | None = None
    device: str | None = None
    board: str | None = None
    model: str | None = None
    precision: str | None = None
    runtime: str | None = None

    def takes(self, key: SeriesKey) -> bool:
        """Return whether the series is asked for."""
        return all(value is None or value == getattr(key, name) for name in self.__slots__ for value in [getattr(self, name)])


EVERYTHING = Selection()


def keys_of(history: History, selection: Selection) -> list[SeriesKey]:
    """Return the series that are asked for.

    Raises:
        ConfigError: there are series, and none is asked for.
    """
    every = history.series()
    found = [key for key in every if selection.takes(key)]
    if every and not found:
        asked = {name: value for name in selection.__slots__ if (value := getattr(selection, name)) is not None}
        nowhere = [name for name, value in asked.items() if all(getattr(key, name) != value for key in every)]
        if nowhere:
            there = sorted({str(getattr(key, nowhere[0])) for key in every})
            more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
            message = f"no run is of {nowhere[0]} {asked[nowhere[0]]!r}; there are {', '.join(there[:SHOWN])}{more}"
        else:
            message = f"no run is of {', '.join(f'{name} {value!r}' for name, value in asked.items())} together: ask for less"
        raise ConfigError(message)
    return found


def look(
    history: History, annotations: Sequence[Annotation], metrics: Sequence[str], selection: Selection = EVERYTHING, *, by_type: bool = False
) -> list[SeriesTrend]:
    """Return the trends of the metrics in every series, or in every board type with at least two devices."""
    keys = [key for key in history.series() if selection.takes(key)]
    if by_type:
        groups: dict[SeriesKey, list[SeriesKey]] = {}
        # Boards that do not tell what they are have no trend in common.
        for key in (one for one in keys if one.board != UNKNOWN_BOARD):
            groups.setdefault(key.of_type(), []).append(key)
        asked = {key: members for key, members in groups.items() if len(members) > 1}
    else:
        asked = {key: [key] for key in keys}
    return [one for name in metrics for one in _of_metric(history, annotations, name, asked)]


def points(history: History, key: SeriesKey, name: str) -> Days:
    """Return the points of a metric in a series, or in a board type where `key` names no device."""
    members = [key] if key.device else [one for one in history.series() if one.of_type() == key]
    found = [days_of(METRICS[name], history.points(member)) for member in members]
    return found[0] if key.device and found else of_type(found)


def _of_metric(history: History, annotations: Sequence[Annotation], name: str, asked: dict[SeriesKey, list[SeriesKey]]) -> _Found:
    found: dict[SeriesKey, _Found] = {}
    stale: list[tuple[SeriesKey, str, str]] = []
    for key, members in asked.items():
        where = f"{name} {msgspec.json.encode(key).decode()}"
        stamp = _stamp(history, members, cuts(annotations, key, name))
        kept = history.recall(where, stamp)
        if kept is None:
            stale.append((key, where, stamp))
        else:
            found[key] = msgspec.json.decode(kept, type=_Found)
    for first in range(0, len(stale), _BATCH):
        part = stale[first : first + _BATCH]
        keys = [key for key, _, _ in part]
        days = [_days(history, asked[key], name) for key in keys]
        new = {one.key: [one] for one in trends(name, keys, days, [cuts(annotations, key, name) for key in keys])}
        found |= {key: new.get(key, []) for key in keys}
        history.keep((where, stamp, msgspec.json.encode(found[key])) for key, where, stamp in part)
    return [one for key in asked for one in found[key]]


def _days(history: History, members: Sequence[SeriesKey], name: str) -> Days:
    found = [days_of(METRICS[name], history.points(member)) for member in members]
    return found[0] if len(found) == 1 else of_type(found)


def _stamp(history: History, members: Sequence[SeriesKey], declared: dict[int, str]) -> str:
    newest = [history.newest(member) for member in members]
    text = f"{newest} {sorted(declared.items())}"
    return f"{VERSION} {hashlib.sha256(text.encode()).hexdigest()[:24]}"
