"""Events of a series: steps and drifts of the trend, and annotations, as marks of a chart."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.collector.alerts.check import Notified, alerts_of
from edgemeter.collector.alerts.firing import Alert
from edgemeter.collector.compare.odd_boards import board_types
from edgemeter.collector.runs.cases import grouped
from edgemeter.collector.runs.store import LedgerStore, RunStore
from edgemeter.collector.trend.events import EventMember, TrendEvent, step_events
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.history import History
from edgemeter.collector.trend.metrics import METRICS
from edgemeter.collector.trend.series_trend import SeriesTrend, is_event
from edgemeter.collector.trend.trend_text import (
    amount_text,
    drift_text,
    event_of,
    event_text,
    modes_text,
    step_text,
    trend_verdict,
)
from edgemeter.collector.trend.watch import TrendResults, trends_of
from edgemeter.collector.trend.watch_file import Annotation, annotations_of, watch_file_beside

# Metrics in which a device may differ, the lifetime of findings, and its minimum as a multiple of
# the time that they took: steps take days.
APART_IN = ("energy_gross_mj", "latency_p50_ms")
READ_AGAIN_S, PAUSE_TIMES = 120.0, 20.0
# The figures that the overview follows, and the maximum age of a finding.
FOLLOWED = ("latency_p50_ms", "energy_gross_mj", "accuracy_value")
FINDING_DAYS = 60


@dataclass(frozen=True, slots=True)
class SeriesEvent:
    """An event in a series: a step with its size, or a remark. `kind` is `step` or `remark`."""

    at_ns: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class FindingShown:
    """A change: an event with all series that it affected, or a single step.

    `who` names the affected devices, `metric` is the one with the most affected series; `devices`
    are by fleet and name.
    """

    day: int
    metric: str
    text: str
    who: str
    devices: tuple[tuple[str, str], ...]
    boards: tuple[str, ...]
    models: tuple[str, ...]

    @property
    def date(self) -> str:
        return iso(self.day)

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the trend that shows its series in its period.

        They are one board and one model, or all.
        """
        alone = {"board": self.boards, "model": self.models, "metric": (self.metric,)}
        fields = {
            name: values[0] for name, values in alone.items() if len(values) == 1 and values[0]
        }
        if len(self.devices) == 1:
            fields |= {"fleet": self.devices[0][0], "device": self.devices[0][1]}
        return {
            **fields,
            "between": ",".join(str((self.day + apart) * 86_400_000) for apart in (-14, 15)),
        }


class TrendEvents:
    """Steps, drifts, annotations and alerts of the series of a store.

    It is empty without a store, and before the first `refresh`.
    """

    def __init__(self, store: RunStore | None = None) -> None:
        self._store = store
        self._history: History | None = None
        # Results are reused for series without changes.
        self._results: TrendResults = {}
        self._seen = ""
        self._next = 0.0
        # By fleet and device: the difference from others of its type. Changes of the last weeks.
        # The time of the last read of the history.
        self.outlying: Mapping[tuple[str, str], Sequence[str]] = {}
        self.findings: tuple[FindingShown, ...] = ()
        # Every view is made in a thread of its own.
        self._lock = threading.Lock()

    def of(self, key: SeriesKey, metric: str) -> Sequence[SeriesEvent]:
        """Return the events of a series, oldest first; nothing before the history was read."""
        if metric not in METRICS:
            return ()
        annotations = self._annotations()
        with self._lock:
            if self._history is None:
                return ()
            trends = trends_of(self._history, annotations, (metric,), (key,), results=self._results)
        # The start of a level is a step of the trend already.
        remarks = [
            SeriesEvent(annotation.day * NS_PER_DAY, annotation.text, "remark")
            for annotation in annotations
            if not annotation.begins_level and annotation.is_about(key, metric)
        ]
        return sorted(
            [*(event for trend in trends for event in _steps(trend)), *remarks],
            key=lambda event: event.at_ns,
        )

    def findings_of(self, picked: Mapping[str, str]) -> list[FindingShown]:
        """Return the changes that affected the selection, newest first.

        The selection is a device, a fleet, a board type or a model.
        """
        return [
            finding
            for finding in self.findings
            if picked.get("board", "") in ("", *finding.boards)
            and picked.get("model", "") in ("", *finding.models)
            and picked.get("fleet", "") in ("", *(fleet for fleet, _ in finding.devices))
            and picked.get("device", "") in ("", *(device for _, device in finding.devices))
        ]

    def alerts(self) -> tuple[Sequence[Alert], Sequence[Notified]]:
        """Return all alerts, oldest first, and the state of them that each channel knows."""
        return alerts_of(self._store.place) if isinstance(self._store, LedgerStore) else ((), ())

    def version(self) -> str:
        """Return a text that changes with the history and with the annotations."""
        ledger = self._store.place if isinstance(self._store, LedgerStore) else None
        if not isinstance(ledger, Path):
            # Every write to a server's tables changes the version of the ledger.
            return f"{self._seen} {self._store.version()}" if self._store else ""
        path = watch_file_beside(str(ledger))
        stamps = [
            f"{file.stat().st_mtime_ns}" for file in (path, Path(f"{path}-wal")) if file.exists()
        ]
        return " ".join([self._seen, *stamps])

    def refresh(self) -> None:
        """Read changes of the store; seldom for a large fleet, so that the page has time too."""
        store, began = self._store, time.monotonic()
        version = (store.version() or "read once") if store else ""
        if version == self._seen or began < self._next or store is None:
            return
        history = History(store)
        # In the order that needs less memory: trends are dropped before runs are read.
        findings, outlying = (
            _findings(history, self._annotations(), self._results),
            _outlying(history),
        )
        with self._lock:
            self._history, self._seen = history, version
            self.outlying, self.findings = outlying, findings
        self._next = time.monotonic() + max(READ_AGAIN_S, PAUSE_TIMES * (time.monotonic() - began))

    def _annotations(self) -> list[Annotation]:
        return annotations_of(self._store.place) if isinstance(self._store, LedgerStore) else []


def _outlying(history: History) -> Mapping[tuple[str, str], Sequence[str]]:
    keys = history.series()
    return grouped(
        (
            (board_type.fleet, odd.device),
            (
                f"{METRICS[name].figure.title} {amount_text(name, odd.apart)} compared with "
                "others of its type"
            ),
        )
        for name in APART_IN
        for board_type in board_types(history, name, keys)
        for odd in board_type.odd
    )


def _findings(
    history: History, annotations: Sequence[Annotation], results: TrendResults
) -> tuple[FindingShown, ...]:
    """Return the newest step of each series in the last weeks.

    The steps of an event appear once.
    """
    trends = trends_of(history, annotations, FOLLOWED, results=results)
    oldest = max((trend.last_day for trend in trends), default=0) - FINDING_DAYS
    newest = (
        (
            trend,
            next((step for step in reversed(trend.steps) if is_event(trend.metric, step)), None),
        )
        for trend in trends
    )
    events = step_events(
        [
            EventMember(trend, step)
            for trend, step in newest
            if step is not None and step.day >= oldest
        ]
    )
    return tuple(
        sorted(map(_finding, events), key=lambda finding: (-finding.day, -len(finding.devices)))
    )


def _finding(event: TrendEvent) -> FindingShown:
    keys = [member.series.key for member in event.members]
    ((metric, _),) = Counter(member.series.metric for member in event.members).most_common(1)
    return FindingShown(
        min(member.finding.day for member in event.members),
        metric,
        event_text(event),
        event_of(event),
        tuple(sorted({(key.fleet, key.device) for key in keys})),
        tuple(sorted({key.board for key in keys})),
        tuple(sorted({key.model for key in keys})),
    )


def _steps(trend: SeriesTrend) -> list[SeriesEvent]:
    texts = [
        (step.day, f"{trend_verdict(step)}: {step_text(trend.metric, step)}", "step")
        for step in [*trend.steps, *([trend.unconfirmed] if trend.unconfirmed else [])]
    ]
    if trend.drift:
        texts.append((trend.drift.day, f"drift: {drift_text(trend.metric, trend.drift)}", "remark"))
    if trend.modes:
        texts.append(
            (trend.modes.day, f"two modes: {modes_text(trend.metric, trend.modes)}", "remark")
        )
    return [SeriesEvent(day * NS_PER_DAY, text, kind) for day, text, kind in texts]
