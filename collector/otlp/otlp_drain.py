"""The drain of a ledger to an OTLP endpoint, and its metrics."""

from collections.abc import Iterator

from edgemeter.collector.influx.drain import STATUS_EVERY_S, Drain
from edgemeter.collector.ledgers.place import LedgerPlace, open_ledger
from edgemeter.collector.otlp.otlp_config import OtlpConfig
from edgemeter.collector.otlp.otlp_points import OtlpPoints
from edgemeter.collector.otlp.otlp_sink import OtlpSink
from edgemeter.collector.receive.monitor import MonitorMetric
from edgemeter.collector.receive.service import Collector


def drain_to_otlp(service: Collector, config: OtlpConfig) -> Drain:
    """Let `service`, which has not started, also drain its ledger to an endpoint; return the drain.

    The first time it begins with the next record: stores of metrics accept hours, not years. An endpoint that refuses is retried.

    Raises:
        UnavailableError: the extra is not installed.
    """
    sink = OtlpSink(config)
    begin_with_next(service.place, sink.name)
    points = OtlpPoints(service.metrics, lambda: service.name)
    drain = Drain(service.place, sink, points, status=points.status_lines, status_every_s=STATUS_EVERY_S)

    def metrics() -> Iterator[MonitorMetric]:
        text = "Data points that the OTLP endpoint rejected in requests that it accepted."
        yield MonitorMetric("otlp_rejected_points_total", "counter", text, sink.rejected_points)

    service.also_drain(drain, metrics)
    return drain


def begin_with_next(ledger_place: LedgerPlace, sink_name: str) -> None:
    """Set the position of a sink that has none to the newest record."""
    with open_ledger(ledger_place) as ledger:
        if sink_name not in ledger.positions():
            ledger.advance(sink_name, ledger.last_row(), after=0)
