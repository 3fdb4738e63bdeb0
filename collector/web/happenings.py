"""What was found in the series and said about them: steps and drifts of the trend, and annotations, as marks of a chart."""

import threading
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
from edgemeter.collector.web.book import Happening, Happenings, NoHappenings
from edgemeter.collector.web.queries import NS_PER_DAY
from edgemeter.collector.web.run_index import RunIndex
from edgemeter.collector.web.sources import DocumentSource, LedgerSource

# The metrics of the trend, by those of the page.
NAMES = {"p50_ms": "latency", "gross_mj": "energy", "net_mj": "energy-net", "accuracy": "accuracy", "throttled_ratio": "throttling"}


class TrendHappenings:
    """Steps, drifts and annotations of the series of a ledger at `path`, or of documents."""

    def __init__(self, source: LedgerSource | DocumentSource) -> None:
        self._source = source
        self._history: History | None = None
        self._seen = ""
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

    def version(self) -> str:
        """Return what changes with the history and with the annotations."""
        path = self._watch_file()
        stamps = [f"{one.stat().st_mtime_ns}" for one in (path, Path(f"{path}-wal")) if path and one.exists()] if path else []
        return " ".join([self._seen, *stamps])

    def refresh(self) -> None:
        """Take in what came since."""
        version = self._source.version() or "read once"
        if version == self._seen:
            return
        source = self._source
        history = LedgerHistory(source.path) if isinstance(source, LedgerSource) else RunHistory(source.records)
        with self._lock:
            before, self._history, self._seen = self._history, history, version
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


def _steps(trend: SeriesTrend) -> list[Happening]:
    steps = [*trend.steps, *([trend.suspect] if trend.suspect else [])]
    found = [Happening(step.day * NS_PER_DAY, f"{wording.verdict(step)}: {wording.of_step(trend.metric, step)}", "step") for step in steps]
    if trend.drift:
        found.append(Happening(trend.drift.day * NS_PER_DAY, f"drift: {wording.of_drift(trend.metric, trend.drift)}", "remark"))
    return found


def _remarks(said: Sequence[Annotation], key: SeriesKey, name: str) -> list[Happening]:
    # What begins a level is a step of the trend already.
    return [Happening(one.day * NS_PER_DAY, one.text, "remark") for one in said if not one.begins_level and one.is_about(key, name)]
