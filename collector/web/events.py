"""Events of a series: steps and drifts of the trend, and annotations, as marks of a chart."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.trend.days import days_of
from edgemeter.collector.trend.history import History, LedgerHistory, RunHistory
from edgemeter.collector.trend.metrics import METRICS, SeriesKey, series_of
from edgemeter.collector.trend.series_trend import SeriesTrend, trends
from edgemeter.collector.trend.trend_text import amount_text, drift_text, step_text, trend_verdict
from edgemeter.collector.trend.watch_file import Annotation, annotations_of, cuts, watch_file_beside
from edgemeter.collector.units.board_types import board_types
from edgemeter.collector.web.context import EventSource, NoEvents, OutlyingDevice, SeriesEvent
from edgemeter.collector.web.queries import NS_PER_DAY
from edgemeter.collector.web.run_index import RunIndex
from edgemeter.collector.web.sources import DocumentSource, LedgerSource

# The metrics of the trend, by those of the page.
NAMES = {"p50_ms": "latency", "gross_mj": "energy", "net_mj": "energy-net", "accuracy": "accuracy", "throttled_ratio": "throttling"}

# Metrics in which a device may differ, and how long findings are kept: steps take days, and searching all series is costly.
APART_IN = ("energy", "latency")
READ_AGAIN_S = 120.0


class TrendEvents:
    """Steps, drifts and annotations of the series of a ledger at `path`, or of documents."""

    def __init__(self, source: LedgerSource | DocumentSource) -> None:
        self._source = source
        self._history: History | None = None
        self._seen = ""
        self._read = -READ_AGAIN_S
        self._outlying: tuple[OutlyingDevice, ...] = ()
        # The history reads over one connection; every view is made in a thread of its own.
        self._lock = threading.Lock()

    def of(self, run: RunRecord, metric: str) -> Sequence[SeriesEvent]:
        """Return what happened in the series that `run` belongs to, oldest first; nothing until the history was read."""
        name, key = NAMES.get(metric), series_of(run)
        if name is None:
            return ()
        annotations = self._annotations()
        with self._lock:
            if self._history is None:
                return ()
            days = days_of(METRICS[name], self._history.points(key))
        found = [one for trend in trends(name, [key], [days], [cuts(annotations, key, name)]) for one in _steps(trend)]
        return sorted([*found, *_remarks(annotations, key, name)], key=lambda one: one.at_ns)

    def outlying(self) -> Sequence[OutlyingDevice]:
        """Return the devices that differed from others of their type when the history was read."""
        return self._outlying

    def version(self) -> str:
        """Return what changes with the history and with the annotations."""
        place = self._source.place if isinstance(self._source, LedgerSource) else None
        if not isinstance(place, Path):
            # Every write to a server's tables changes the version of the ledger.
            return self._seen if place is None else f"{self._seen} {self._source.version()}"
        path = watch_file_beside(str(place))
        stamps = [f"{one.stat().st_mtime_ns}" for one in (path, Path(f"{path}-wal")) if one.exists()]
        return " ".join([self._seen, *stamps])

    def refresh(self) -> None:
        """Take in what came since."""
        version = self._source.version() or "read once"
        if version == self._seen or time.monotonic() - self._read < READ_AGAIN_S:
            return
        source = self._source
        history = LedgerHistory(source.place) if isinstance(source, LedgerSource) else RunHistory(source.records)
        outlying = _outlying(history)
        with self._lock:
            before, self._history, self._seen, self._outlying = self._history, history, version, outlying
        self._read = time.monotonic()
        if isinstance(before, LedgerHistory):
            before.close()

    def close(self) -> None:
        """Give the history's file back."""
        with self._lock:
            if isinstance(self._history, LedgerHistory):
                self._history.close()
            self._history = None

    def _annotations(self) -> list[Annotation]:
        return annotations_of(self._source.place) if isinstance(self._source, LedgerSource) else []


def open_events(index: RunIndex) -> EventSource:
    """Return the findings in the records of `index` and the annotations beside them."""
    if isinstance(index.source, LedgerSource | DocumentSource):
        return TrendEvents(index.source)
    return NoEvents()


def _outlying(history: History) -> tuple[OutlyingDevice, ...]:
    keys = history.series()
    return tuple(
        OutlyingDevice(
            found.fleet,
            sick.device,
            f"{METRICS[name].title} {amount_text(name, sick.apart)} compared with others of its type; check {', '.join(sick.look_at)}",
        )
        for name in APART_IN
        for found in board_types(history, name, keys)
        for sick in found.sick or ()
    )


def _steps(trend: SeriesTrend) -> list[SeriesEvent]:
    steps = [*trend.steps, *([trend.suspect] if trend.suspect else [])]
    found = [SeriesEvent(step.day * NS_PER_DAY, f"{trend_verdict(step)}: {step_text(trend.metric, step)}", "step") for step in steps]
    if trend.drift:
        found.append(SeriesEvent(trend.drift.day * NS_PER_DAY, f"drift: {drift_text(trend.metric, trend.drift)}", "remark"))
    return found


def _remarks(annotations: Sequence[Annotation], key: SeriesKey, name: str) -> list[SeriesEvent]:
    # What begins a level is a step of the trend already.
    return [
        SeriesEvent(one.day * NS_PER_DAY, one.text, "remark") for one in annotations if not one.begins_level and one.is_about(key, name)
    ]
