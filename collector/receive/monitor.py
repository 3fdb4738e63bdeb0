"""The monitor: `/metrics` for Prometheus and `/healthz`, over HTTP; on the loopback by default, because it has no authentication.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.http_server import LOOPBACK, HttpHandler, HttpServer

REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without the prefix, its help text, and its value, or several values by one label."""

    name: str
    kind: Literal["counter", "gauge"]
    description: str
    value: float | Mapping[str, float]
    label: str = ""


class MonitoredService(Protocol):
    """What is monitored. Called from the monitor's threads."""

    def metrics(self) -> Iterator[Metric]:
        """Yield every metric; raises an EdgemeterError if they are unavailable."""
        ...

    def unwell(self) -> str | None:
        """Return why nothing can be received now, None if it can."""
        ...


class Monitor(HttpServer):
    """Serves the metrics and the health of `service`."""

    def __init__(self, service: MonitoredService, host: str = LOOPBACK, port: int = 0) -> None:
        self.service = service
        super().__init__(host, port, _MonitorHandler, "--metrics HOST:PORT")


def parse_monitor_address(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`; the default host is the loopback.

    Raises:
        ConfigError: it is neither.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"{text!r} is not an address: write PORT or HOST:PORT")
    return host.strip("[]") or LOOPBACK, int(port)


def as_text(metrics: Iterator[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    lines: list[str] = []
    for one in metrics:
        name = f"edgemeter_collector_{one.name}"
        lines += [f"# HELP {name} {one.description}", f"# TYPE {name} {one.kind}"]
        if isinstance(one.value, Mapping):
            lines += [f'{name}{{{one.label}="{_escaped(key)}"}} {_number(value)}' for key, value in one.value.items()]
        else:
            lines.append(f"{name} {_number(one.value)}")
    return "\n".join(lines) + "\n"


class _MonitorHandler(HttpHandler):
    server: Monitor
    timeout = REQUEST_TIMEOUT_S

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            reason = self.server.service.unwell()
            self._respond(200 if reason is None else 503, f"{reason or 'ok'}\n")
        elif path == "/metrics":
            try:
                text = as_text(self.server.service.metrics())
            except EdgemeterError as error:
                self._respond(503, f"{error}\n")
            else:
                self._respond(200, text, "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._respond(404, "not found: use /metrics or /healthz\n")

    def _respond(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        self.respond(status, text.encode(), [("Content-Type", kind)])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
