"""The messages of OTLP: a request is made of resources with their metrics; requests joined as bytes are one request with all of them.

By the official messages, and not by OpenTelemetry's SDK: its instruments take no time of their own, so that a run of last night would
get the time of its export; and its exporter holds data in memory where ours are in the ledger. Packages: opentelemetry-proto (Apache-2.0,
0.1 MB, pure Python) on protobuf (BSD, wheels for x86-64 and aarch64, pure Python elsewhere).
Source: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto 1.10, metrics.proto.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from edgemeter.agent.base.plugins import ModuleOfExtra

_NEED = "OTLP needs opentelemetry-proto"
_service: Any = ModuleOfExtra("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", "otlp", _NEED)
_common: Any = ModuleOfExtra("opentelemetry.proto.common.v1.common_pb2", "otlp", _NEED)
_protobuf: Any = ModuleOfExtra("google.protobuf.message", "otlp", _NEED)
_CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
Attributes = list[Any]


def attributes_of(values: Mapping[str, str | None]) -> Attributes:
    """Return attributes by name, to be used many times; those that are None are left out."""
    key_value = _common.KeyValue
    return [key_value(key=key, value={"string_value": value}) for key, value in values.items() if value is not None]


class MetricName(NamedTuple):
    """The name of a metric, its unit by UCUM and its description."""

    name: str
    unit: str
    description: str


class MetricsOfResource:
    """The metrics of one resource, whose `attributes` say what it is. Times: UTC, ns since 1970."""

    def __init__(self, attributes: Attributes) -> None:
        self._request = _service.ExportMetricsServiceRequest()
        of_resource = self._request.resource_metrics.add(resource={"attributes": attributes})
        scope = of_resource.scope_metrics.add()
        scope.scope.name = "edgemeter"
        self._metrics = scope.metrics

    def add(self, name: MetricName, at_ns: int, values: Iterable[tuple[float, Attributes]], begun_ns: int | None = None) -> None:
        """Add a metric with its values at a time: a gauge, or, counted since `begun_ns`, a sum that only grows."""
        metric = self._add(name)
        if begun_ns is not None:
            metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, _CUMULATIVE
        points = (metric.gauge if begun_ns is None else metric.sum).data_points
        for value, attributes in values:
            points.add(time_unix_nano=at_ns, start_time_unix_nano=begun_ns or 0, as_double=value, attributes=attributes)

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


def rejected_in(response: bytes, *, is_error: bool = False) -> tuple[int, str]:
    """Return how many data points the body of a response rejects, and its message; of an error the number means nothing.

    The body of an error is a google.rpc.Status: its code = 1 and message = 2 are the number and the text of a partial success.
    """
    kind = _service.ExportMetricsPartialSuccess if is_error else _service.ExportMetricsServiceResponse
    try:
        message = kind.FromString(response)
    except _protobuf.DecodeError:
        return 0, ""
    partial = message if is_error else message.partial_success
    return partial.rejected_data_points, partial.error_message


def check_installed() -> None:
    """Raise UnavailableError if the extra is not installed."""
    _ = _service.ExportMetricsServiceRequest
