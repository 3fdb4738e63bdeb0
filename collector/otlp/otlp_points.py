"""The metrics of runs, devices and the collector: names, units (UCUM) and attributes, by OpenTelemetry's semantic conventions.

A run's figures are gauges at the time of the run, each with its 95% bounds where the record has them, of the resource that is its device.
A run that is invalid has no figures, only its verdict: a query that forgets to ask for the verdict must not take them for true.
Source: https://opentelemetry.io/docs/specs/semconv/general/naming/ and https://ucum.org/ucum.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.contract.energy_provenance import group_provenance
from edgemeter.agent.contract.figures import Figure, in_view, without_unit
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.contract.record_time import placed
from edgemeter.agent.ledger.chunks import HeldChunk, SkippedRecord, warn_of_skipped
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.influx.points import point_ns, tags_of
from edgemeter.collector.influx.status_points import DEVICE_FIELDS, CollectorStatus
from edgemeter.collector.influx.tag_values import TagValues
from edgemeter.collector.otlp.messages import Attributes, MetricName, MetricsOfResource, attributes_of
from edgemeter.collector.receive.monitor import Histogram, MonitorMetric

# The units of the table of figures.
UCUM = {
    "ms": "ms", "s": "s", "mJ": "mJ", "W": "W", "J/s": "W", "MB": "MBy", "°C": "Cel", "per s": "{sample}/s", "tokens/s": "{token}/s",
    "per h": "1/h",
}  # fmt: skip
# By the end of a name: the unit, and whether the end leaves the name, as a store that appends units would have it twice.
_ENDS = (
    ("_seconds", "s", True), ("_bytes", "By", True), ("_ratio", "1", True), ("_days", "d", True), ("_c", "Cel", True), ("_s", "s", True),
    ("_records", "{record}", False), ("_row", "{row}", False), ("_messages", "{message}", False), ("issues", "{issue}", False),
)  # fmt: skip
# Tags that describe the device, and are attributes of its resource; and the one that is an attribute of energies alone.
_OF_RESOURCE = frozenset({"board", "device", "fleet"})
ENERGY_SOURCE = "energy_source"
UNSTATED = "not stated"
VERDICT = MetricName("edgemeter.run.verdict", "{run}", "1 at each run, whose verdict is an attribute; an invalid run has no figures")
_DEVICE = "edgemeter.device."


def names_of(entry: Figure) -> list[MetricName]:
    """Return the metrics of a figure and of its 95% bounds: `latency.p50_ms` is `edgemeter.latency.p50` in ms."""
    unit = "1" if entry.name.endswith("_ratio") else UCUM.get(entry.unit, f"{{{entry.unit or 'score'}}}")
    parts = (("", ""), ("_low", "lower 95% bound of the "), ("_high", "upper 95% bound of the "))
    stem = without_unit(entry.path or entry.name)
    return [MetricName(f"edgemeter.{stem}{part}", unit, f"{words}{entry.title}") for part, words in parts]


def device_resource(fleet: str, device: str, board: str | None, arch: str | None, system: str | None) -> Attributes:
    """Return the attributes of a device: Prometheus makes the labels `job` (FLEET/edgemeter) and `instance` (DEVICE) of them."""
    return attributes_of({
        "service.name": "edgemeter", "service.namespace": fleet, "service.instance.id": device, "device.id": device,
        "device.model.name": board, "host.name": device, "host.arch": arch, "os.type": "linux", "os.description": system,
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class OtlpPoints:
    """The metrics as requests in bytes, for a drain: of records, devices, and the collector called `collector()` with its `metrics()`.

    `known` limits the values of attributes, as of InfluxDB's tags.
    """

    metrics: Callable[[], Iterable[MonitorMetric]]
    collector: Callable[[], str]
    known: TagValues | None = field(default_factory=TagValues)
    begun_ns: int = field(default_factory=time.time_ns)
    _figures: list[tuple[Figure, list[MetricName]]] = field(
        default_factory=lambda: [(entry, names_of(entry)) for entry in in_view("influx")]
    )

    def of_chunk(self, chunk: HeldChunk, skipped: Callable[[SkippedRecord], object] = warn_of_skipped) -> Iterator[tuple[int, list[bytes]]]:
        """Yield row and metrics of each record: none of one that cannot be read, which `skipped` is called with."""
        for row, request in chunk.read_each(lambda raw: self.of_record(placed(decode(raw), chunk.received_ns)), skipped):
            yield row, [] if request is None else [request]

    def of_record(self, run: RunRecord) -> bytes:
        """Return the metrics of a run."""
        machine = run.environment
        metrics = MetricsOfResource(device_resource(run.fleet, run.device, machine.board, machine.arch, machine.os))
        tags = {name: value for name, value in tags_of(run, self.known)[0].items() if name not in _OF_RESOURCE}
        energy_source = tags.pop(ENERGY_SOURCE, None)
        case = attributes_of({**tags, "verdict": run.verdict.state})
        at_ns = point_ns(run)
        metrics.add(VERDICT, at_ns, [(1.0, case)])
        if run.verdict.state == "invalid":
            return metrics.encoded()
        for entry, names in self._figures:
            value = entry.value(run)
            # Not more than 0 is no energy: a clamp or a shunt was reversed.
            if value is None or (entry.group == "energy" and run.energy is not None and run.energy.gross_mj <= 0):
                continue
            kind = {"provenance": group_provenance(run, entry.provenance_group) or UNSTATED}
            if entry.group == "energy":
                kind[ENERGY_SOURCE] = energy_source or UNSTATED
            if entry.group == "accuracy" and run.accuracy is not None:
                kind["accuracy_metric"] = run.accuracy.metric
            attributes = [*case, *attributes_of(kind)]
            for name, number in zip(names, (value, *(entry.bounds(run) or ())), strict=False):
                metrics.add(name, at_ns, [(number, attributes)])
        return metrics.encoded()

    def status_lines(self, devices: Sequence[DevicePresence], _status: CollectorStatus, now_ns: int) -> list[bytes]:
        """Return the metrics of devices, and of this collector."""
        return [*(self.of_device(device, now_ns) for device in devices), self.of_collector(now_ns)]

    def of_device(self, device: DevicePresence, now_ns: int) -> bytes:
        """Return the metrics of a device now: of one that is not online, of which no more is known, its presence; of a retired one none."""
        if device.state == "revoked":
            return b""
        reported = device.health or device.birth
        board, arch, system = (reported.board, reported.arch, reported.os) if reported else (None, None, None)
        metrics = MetricsOfResource(device_resource(device.fleet, device.device, board, arch, system))
        now = device if device.state == "online" else dataclasses.replace(device, health=None)
        for status_field in DEVICE_FIELDS:
            value = status_field.value(now, now_ns)
            if value is None or status_field.kind == "text" or status_field.name == "session":
                continue
            if status_field.name.endswith("_ns"):
                # A moment, in seconds since 1970.
                name = MetricName(f"{_DEVICE}{status_field.name.removesuffix('_ns')}_timestamp", "s", status_field.description)
                value = value / 1e9
            else:
                name = _named(_DEVICE, status_field.name, status_field.description)
            metrics.add(name, now_ns, [(float(value), [])])
        return metrics.encoded()

    def of_collector(self, now_ns: int) -> bytes:
        """Return the metrics of this collector: those of /metrics, under names that Prometheus makes the same of."""
        metrics = MetricsOfResource(attributes_of({"service.name": "edgemeter-collector", "service.instance.id": self.collector()}))
        for metric in self.metrics():
            name = _named(f"{metric.prefix.rstrip('_').replace('_', '.')}.", metric.name.removesuffix("_total"), metric.description)
            if isinstance(metric.value, Histogram):
                histogram = metric.value
                metrics.histogram(name, now_ns, self.begun_ns, histogram.bounds, histogram.cumulative(), histogram.sum)
                continue
            by_label: Mapping[str, float] = metric.value if isinstance(metric.value, Mapping) else {"": metric.value}
            values = [(value, attributes_of({metric.label: key} if metric.label else {})) for key, value in by_label.items()]
            # A metric without a value is none.
            if values:
                metrics.add(name, now_ns, values, self.begun_ns if metric.kind == "counter" else None)
        return metrics.encoded()


def _named(prefix: str, name: str, description: str) -> MetricName:
    for end, unit, leaves in _ENDS:
        if name.endswith(end):
            return MetricName(f"{prefix}{name.removesuffix(end) if leaves else name}", unit, description)
    return MetricName(f"{prefix}{name}", "", description)
