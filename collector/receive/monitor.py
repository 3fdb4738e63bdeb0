"""The monitor serves `/metrics` for Prometheus and `/healthz`, over HTTP.

It is on the loopback by default, because it has no authentication.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.http_server import LOOPBACK, HttpHandler, HttpServer
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.ledger.quarantine import RejectionKind
from edgemeter.collector.ledgers.place import open_ledger
from edgemeter.collector.receive.collector import RECEIPT_BOUNDS_S, Collector
from edgemeter.collector.trend.watch_file import open_watch, watch_file_beside

PREFIX = "edgemeter_collector_"
_REJECTIONS = (
    "Rejected messages and records. The reason `origin` means a record of another device, or "
    "without a number."
)


class CollectorMetrics:
    """The metrics of a collector, for prometheus-client."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._library = import_extra(
            "prometheus_client", "collector", "/metrics needs prometheus-client"
        )
        self._counter = self._library.metrics_core.CounterMetricFamily
        self._gauge = self._library.metrics_core.GaugeMetricFamily

    def text(self) -> str:
        """Return the metrics in Prometheus' text format; raises as `collect`."""
        return str(self._library.generate_latest(self).decode())

    def collect(self) -> Iterator[Any]:
        """Yield every metric.

        It raises ConfigError if the ledger or the state of alerts is damaged, and TransientError if
        it is in use.
        """
        collector = self._collector
        counts, drain = collector.counts, collector.drain
        # Every reason exists from the start: a rate needs the 0 before the 1.
        rejections: dict[str, float] = {
            kind: counts.rejections[kind] for kind in get_args(RejectionKind)
        }
        rejections |= {
            "collision": counts.collisions,
            "sink": drain.rejected if drain is not None else 0,
        }
        yield self._counter(
            f"{PREFIX}messages", "Messages received since the start.", counts.messages
        )
        yield self._counter(
            f"{PREFIX}records", "New records committed since the start.", counts.inserted
        )
        yield self._counter(f"{PREFIX}duplicates", "Repeated records, dropped.", counts.duplicates)
        yield _labelled(self._counter, "rejections", _REJECTIONS, "reason", rejections)
        yield self._counter(
            f"{PREFIX}shed",
            "Messages refused because a device sends too many; it sends them again.",
            counts.shed,
        )
        buckets = list(
            zip([*map(str, RECEIPT_BOUNDS_S), "+Inf"], accumulate(counts.receipts), strict=True)
        )
        yield self._library.metrics_core.HistogramMetricFamily(
            f"{PREFIX}receipt_seconds",
            "Time from a message with results to its receipt.",
            buckets,
            counts.receipts_s,
        )
        yield self._gauge(
            f"{PREFIX}stalled_seconds",
            "Time since the collector last committed, or had nothing to commit.",
            collector.stalled_s(),
        )
        yield self._gauge(
            f"{PREFIX}connected", "1 while the broker is connected.", collector.is_connected()
        )
        yield self._gauge(
            f"{PREFIX}drain_ok",
            "0 while the drain makes no progress.",
            drain is None or drain.trouble is None,
        )
        yield from self._of_the_ledger()
        yield from self._of_alerts()

    def _of_the_ledger(self) -> Iterator[Any]:
        drain, now_ns = self._collector.drain, time.time_ns()
        with open_ledger(self._collector.place, "read") as ledger:
            yield self._gauge(
                f"{PREFIX}ledger_row", "Row of the newest record in the ledger.", ledger.last_row()
            )
            positions = ledger.positions()
            if drain is not None:
                positions = {drain.sink_name: 0, **positions}
            lag_s = {
                sink: max(0, now_ns - (ledger.waiting_since_ns(row) or now_ns)) / 1e9
                for sink, row in positions.items()
            }
            yield _labelled(
                self._gauge,
                "sink_row",
                "Newest row of the ledger that the sink has.",
                "sink",
                positions,
            )
            yield _labelled(
                self._gauge,
                "sink_lag_seconds",
                "Age of the oldest record that the sink lacks.",
                "sink",
                lag_s,
            )
            devices = ledger.backlogs()
            states = Counter(device.state or "unknown" for device in devices)
            waiting = sum(device.waiting_records or 0 for device in devices)
            yield _labelled(
                self._gauge, "devices", "Devices by last reported state.", "state", states
            )
            yield self._gauge(
                f"{PREFIX}outbox_records",
                "Records that wait in outboxes, as devices last reported.",
                waiting,
            )
            yield self._gauge(
                f"{PREFIX}ledger_bytes", "Size of the ledger on its disk.", ledger.size_bytes()
            )
            yield self._gauge(
                f"{PREFIX}quarantine_entries",
                "Entries in the quarantine.",
                ledger.quarantined_count(),
            )

    def _of_alerts(self) -> Iterator[Any]:
        """Yield the undelivered alerts of each channel; nothing if no alert was ever checked."""
        ledger_place = self._collector.place
        if isinstance(ledger_place, Path) and not watch_file_beside(str(ledger_place)).exists():
            return
        with open_watch(ledger_place, "read") as file, file.reading() as statements:
            undelivered = statements.execute(
                "SELECT count(*) FROM notified WHERE error IS NOT NULL"
            ).fetchone()[0]
            checked_ns = statements.execute("SELECT max(checked_ns) FROM alert_checks").fetchone()[
                0
            ]
        yield self._gauge(
            f"{PREFIX}alert_notices", "Alert notifications that were not delivered.", undelivered
        )
        if checked_ns is not None:
            yield self._gauge(
                f"{PREFIX}alert_check_age_seconds",
                "Time since the last check of alerts.",
                max(0, time.time_ns() - checked_ns) / 1e9,
            )


def _labelled(family_of: Any, name: str, text: str, label: str, values: Mapping[str, float]) -> Any:
    family = family_of(PREFIX + name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


class Monitor(HttpServer):
    """Serves the metrics of a collector, and whether it can receive now."""

    def __init__(self, collector: Collector, host: str = LOOPBACK, port: int = 0) -> None:
        self.collector = collector
        self.metrics = CollectorMetrics(collector)
        super().__init__(host, port, _MonitorHandler, "--metrics HOST:PORT")


def parse_monitor_address(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`; the default host is the loopback.

    Raises ConfigError if it is neither.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"{text!r} is not an address: write PORT or HOST:PORT")
    return host.strip("[]") or LOOPBACK, int(port)


class _MonitorHandler(HttpHandler):
    server: Monitor

    def answer(self) -> None:
        status, kind = 200, "text/plain; charset=utf-8"
        path = self.path.partition("?")[0]
        if path == "/healthz":
            reason = self.server.collector.unwell()
            status, text = (200, "ok\n") if reason is None else (503, f"{reason}\n")
        elif path == "/metrics":
            try:
                text, kind = self.server.metrics.text(), "text/plain; version=0.0.4; charset=utf-8"
            except EdgemeterError as error:
                status, text = 503, f"{error}\n"
        else:
            status, text = 404, "not found: use /metrics or /healthz\n"
        self.respond(status, text.encode(), [("Content-Type", kind)])
