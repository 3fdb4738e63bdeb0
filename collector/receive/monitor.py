"""The monitor: `/metrics` for Prometheus and `/healthz`, over HTTP; on the loopback by default, because it has no authentication."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Literal

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.http_server import LOOPBACK, HttpHandler, HttpServer
from edgemeter.agent.base.plugins import import_extra

REQUEST_TIMEOUT_S = 10.0
PREFIX = "edgemeter_collector_"


class Histogram:
    """How many values are at most each of `bounds` (rising) and above the last, and their sum; one thread observes, any may read."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that came so many times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[int]:
        """Return how many values are at most each bound, and last how many there are."""
        return list(accumulate(self._counts))


@dataclass(frozen=True, slots=True)
class MonitorMetric:
    """One metric: its name after `PREFIX`, its help text, and its value, several values by one label, or a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    value: float | Mapping[str, float] | Histogram
    label: str = ""


class Monitor(HttpServer):
    """Serves `metrics`, which may raise an EdgemeterError, and why the service is `unwell`, None if it is not; asked from its threads."""

    def __init__(
        self, metrics: Callable[[], Iterable[MonitorMetric]], unwell: Callable[[], str | None], host: str = LOOPBACK, port: int = 0
    ) -> None:
        _prometheus()
        self.metrics, self.unwell = metrics, unwell
        super().__init__(host, port, _MonitorHandler, "--metrics HOST:PORT")


def parse_monitor_address(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`; the default host is the loopback. Raises ConfigError if it is neither."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"{text!r} is not an address: write PORT or HOST:PORT")
    return host.strip("[]") or LOOPBACK, int(port)


def as_text(metrics: Iterable[MonitorMetric]) -> str:
    """Return metrics in Prometheus' text format, and after them those of this process."""
    prometheus = _prometheus()
    families = [_family(prometheus, metric) for metric in metrics]
    process = prometheus.ProcessCollector(registry=None)
    return str(prometheus.generate_latest(SimpleNamespace(collect=lambda: [*families, *process.collect()])).decode())


def _family(prometheus: Any, metric: MonitorMetric) -> Any:
    name = PREFIX + metric.name
    family = prometheus.Metric(name.removesuffix("_total"), metric.description, metric.kind)
    if isinstance(metric.value, Histogram):
        counts = metric.value.cumulative()
        for bound, count in zip([*map(str, metric.value.bounds), "+Inf"], counts, strict=True):
            family.add_sample(f"{name}_bucket", {"le": bound}, count)
        family.add_sample(f"{name}_sum", {}, metric.value.sum)
        family.add_sample(f"{name}_count", {}, counts[-1])
    elif isinstance(metric.value, Mapping):
        for key, value in metric.value.items():
            family.add_sample(name, {metric.label: key}, value)
    else:
        family.add_sample(name, {}, metric.value)
    return family


def _prometheus() -> Any:
    return import_extra("prometheus_client", "collector", "/metrics needs prometheus-client")


class _MonitorHandler(HttpHandler):
    server: Monitor
    timeout = REQUEST_TIMEOUT_S

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            reason = self.server.unwell()
            self._respond(200 if reason is None else 503, f"{reason or 'ok'}\n")
        elif path == "/metrics":
            try:
                text = as_text(self.server.metrics())
            except EdgemeterError as error:
                self._respond(503, f"{error}\n")
            else:
                self._respond(200, text, "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._respond(404, "not found: use /metrics or /healthz\n")

    def _respond(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        self.respond(status, text.encode(), [("Content-Type", kind)])
