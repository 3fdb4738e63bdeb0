"""The messages of OTLP: a request is made of resources with their metrics; requests joined as bytes are one request with all of them.

By the official messages, and not by OpenTelemetry's SDK: its instruments take no time of their own, so that a run of last night would
get the time of its export; and its exporter holds data in memory where ours are in the ledger. Packages: opentelemetry-proto (Apache-2.0,
0.1 MB, pure Python) on protobuf (BSD, wheels for x86-64 and aarch64, pure Python elsewhere).
Source: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto 1.10, metrics.proto.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edgemeter.agent.base.plugins import ModuleOfExtra

_NEED = "OTLP needs opentelemetry-proto"
_service: Any = ModuleOfExtra("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", "otlp", _NEED)
_protobuf: Any = ModuleOfExtra("google.protobuf.message", "otlp", _NEED)
SCOPE = "edgemeter"
_CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE


class MetricName(NamedTuple):
    """The name of a metric, its unit by UCUM and its description."""

    name: str
    unit: str
    description: str


Attributes = Mapping[str, str | None]
AttributedValue = tuple[float, Attributes]


class MetricsOfResource:
    """The metrics of one resource, whose `attributes` say what it is; those that are None are left out."""

    def __init__(self, attributes: Attributes) -> None:
        self._request = _service.ExportMetricsServiceRequest()
        of_resource = self._request.resource_metrics.add()
        _set_attributes(of_resource.resource, attributes)
        scope = of_resource.scope_metrics.add()
        scope.scope.name = SCOPE
        self._metrics = scope.metrics

    def gauge(self, name: MetricName, at_ns: int, *values: AttributedValue) -> None:
        """Add a metric with its values at a time (UTC, ns since 1970)."""
        _set_points(self._add(name).gauge.data_points, at_ns, 0, values)

    def counter(self, name: MetricName, at_ns: int, begun_ns: int, *values: AttributedValue) -> None:
        """Add sums that only grow, counted since `begun_ns`."""
        counter = self._add(name).sum
        counter.is_monotonic, counter.aggregation_temporality = True, _CUMULATIVE
        _set_points(counter.data_points, at_ns, begun_ns, values)

    def histogram(
        self, name: MetricName, at_ns: int, begun_ns: int, bounds: Sequence[float], cumulative: Sequence[int], total: float
    ) -> None:
        """Add a histogram since `begun_ns`: how many values are at most each bound, and last how many there are; `total` is their sum."""
        histogram = self._add(name).histogram
        histogram.aggregation_temporality = _CUMULATIVE
        point = histogram.data_points.add(time_unix_nano=at_ns, start_time_unix_nano=begun_ns, count=cumulative[-1], sum=total)
        point.explicit_bounds.extend(bounds)
        point.bucket_counts.extend(count - before for count, before in zip(cumulative, (0, *cumulative), strict=False))

    def encoded(self) -> bytes:
        """Return them as a request."""
        return bytes(self._request.SerializeToString())

    def _add(self, name: MetricName) -> Any:
        return self._metrics.add(name=name.name, unit=name.unit, description=name.description)


class RejectedData(NamedTuple):
    """The rejected data points of a request that was accepted otherwise, and the reason."""

    points: int
    reason: str


def rejected_in(response: bytes) -> RejectedData:
    """Return what the body of a successful response rejects: nothing, where it is another message."""
    try:
        partial = _service.ExportMetricsServiceResponse.FromString(response).partial_success
    except _protobuf.DecodeError:
        return RejectedData(0, "")
    return RejectedData(partial.rejected_data_points, partial.error_message)


def reason_of(status: bytes) -> str:
    """Return the message of a google.rpc.Status, the body of an error; empty where it is none.

    Source: google/rpc/status.proto: code = 1, message = 2, which are the number and the text of a partial success.
    """
    try:
        return str(_service.ExportMetricsPartialSuccess.FromString(status).error_message)
    except _protobuf.DecodeError:
        return ""


def check_installed() -> None:
    """Raise UnavailableError if the extra is not installed."""
    _ = _service.ExportMetricsServiceRequest


def _set_points(points: Any, at_ns: int, begun_ns: int, values: Sequence[AttributedValue]) -> None:
    for value, attributes in values:
        point = points.add(time_unix_nano=at_ns, start_time_unix_nano=begun_ns, as_double=value)
        _set_attributes(point, attributes)


def _set_attributes(holder: Any, attributes: Attributes) -> None:
    for key, value in attributes.items():
        if value is not None:
            holder.attributes.add(key=key).value.string_value = value
