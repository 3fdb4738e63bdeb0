"""What was found in the series and said about them: steps and drifts of the trend, and annotations, as marks of a chart."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.records import RunRecord
from edgemeter.collector.trend import annotations, wording
from edgemeter.collector.trend.annotations import Annotation, cuts
from edgemeter.collector.trend.days import days_of
from edgemeter.collector.trend.history import History, LedgerHistory, RunHistory
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.run_figures import SeriesKey, series_of
from edgemeter.collector.trend.series_trend import SeriesTrend, trends
from edgemeter.collector.trend.watch_file import beside
from edgemeter.collector.units.board_types import board_types
from edgemeter.collector.web.book import Apart, Happening, Happenings, NoHappenings
from edgemeter.collector.web.queries import NS_PER_DAY
from edgemeter.collector.web.run_index import RunIndex
from edgemeter.collector.web.sources import DocumentSource, LedgerSource

# The metrics of the trend, by those of the page.
NAMES = {"p50_ms": "latency", "gross_mj": "energy", "net_mj": "energy-net", "accuracy": "accuracy", "throttled_ratio": "throttling"}

# In what a device may lie apart, and how long what was found stands: a step is a matter of days, and looking at all series costs.
APART_IN = ("energy", "latency")
READ_AGAIN_S = 120.0


class TrendHappenings:
    """Steps, drifts and annotations of the series of a ledger at `path`, or of documents."""

    def __init__(self, source: LedgerSource | DocumentSource) -> None:
        self._source = source
        self._history: History | None = None
        self._seen = ""
        self._read = -READ_AGAIN_S
        self._found_apart: tuple[Apart, ...] = ()
        # The history reads over one connection; every view is made in a thread of its own.
        self._lock = threading.Lock()

    def of(self, run: RunRecord, metric: str) -> Sequence[Happening]:
        """Return what happened in the series that `run` belongs to, oldest first; nothing until the history was read."""
        name, key = NAMES.get(metric), series_of(run)
        if name is None:
            return ()
        said = self._said()
        with self._lock:
            if self._history is None:
                return ()
            days = days_of(METRICS[name], self._history.points(key))
        found = [one for trend in trends(name, [key], [days], [cuts(said, key, name)]) for one in _steps(trend)]
        return sorted([*found, *_remarks(said, key, name)], key=lambda one: one.at_ns)

    def apart(self) -> Sequence[Apart]:
        """Return the devices that lay apart from their like when the history was read."""
        return self._found_apart

    def version(self) -> str:
        """Return what changes with the history and with the annotations."""
        path = self._watch_file()
        stamps = [f"{one.stat().st_mtime_ns}" for one in (path, Path(f"{path}-wal")) if path and one.exists()] if path else []
        return " ".join([self._seen, *stamps])

    def refresh(self) -> None:
        """Take in what came since."""
        version = self._source.version() or "read once"
        if version == self._seen or time.monotonic() - self._read < READ_AGAIN_S:
            return
        source = self._source
        history = LedgerHistory(source.path) if isinstance(source, LedgerSource) else RunHistory(source.records)
        apart = _apart(history)
        with self._lock:
            before, self._history, self._seen, self._found_apart = self._history, history, version, apart
        self._read = time.monotonic()
        if isinstance(before, LedgerHistory):
            before.close()

    def close(self) -> None:
        """Give the history's file back."""
        with self._lock:
            if isinstance(self._history, LedgerHistory):
                self._history.close()
            self._history = None

    def _watch_file(self) -> Path | None:
        return beside(str(self._source.path)) if isinstance(self._source, LedgerSource) else None

    def _said(self) -> list[Annotation]:
        return annotations.of_store(str(self._source.path)) if isinstance(self._source, LedgerSource) else []


def open_happenings(index: RunIndex) -> Happenings:
    """Return what is found in the records of `index` and said beside them."""
    if isinstance(index.source, LedgerSource | DocumentSource):
        return TrendHappenings(index.source)
    return NoHappenings()


def _apart(history: History) -> tuple[Apart, ...]:
    keys = history.series()
    return tuple(
        Apart(
            found.fleet,
            sick.device,
            f"{METRICS[name].title} {wording.amount(name, sick.apart)} to the others of its type; look at {', '.join(sick.look_at)}",
        )
        for name in APART_IN
        for found in board_types(history, name, keys)
        for sick in found.sick or ()
    )


def _steps(trend: SeriesTrend) -> list[Happening]:
    steps = [*trend.steps, *([trend.suspect] if trend.suspect else [])]
    found = [Happening(step.day * NS_PER_DAY, f"{wording.verdict(step)}: {wording.of_step(trend.metric, step)}", "step") for step in steps]
    if trend.drift:
        found.append(Happening(trend.drift.day * NS_PER_DAY, f"drift: {wording.of_drift(trend.metric, trend.drift)}", "remark"))
    return found


def _remarks(said: Sequence[Annotation], key: SeriesKey, name: str) -> list[Happening]:
    # What begins a level is a step of the trend already.
    return [Happening(one.day * NS_PER_DAY, one.text, "remark") for one in said if not one.begins_level and one.is_about(key, name)]
