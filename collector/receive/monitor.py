"""The monitor: `/metrics` for Prometheus and `/healthz`, over HTTP; on loopback unless told otherwise, because it asks for no password.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol

from edgemeter.agent.errors import ConfigError, EdgemeterError, UnavailableError

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without the prefix, what it says, and its value, or several by the value of one label."""

    name: str
    kind: Literal["counter", "gauge"]
    says: str
    value: float | Mapping[str, float]
    label: str = ""


class Watched(Protocol):
    """What is watched. Called from the monitor's threads."""

    def metrics(self) -> Iterator[Metric]:
        """Yield every metric; raises an EdgemeterError when they cannot be had."""
        ...

    def unwell(self) -> str | None:
        """Return why nothing can be received now, None when it can."""
        ...


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class Monitor:
    """Answers at `host` and `port` (0: a free one, then in `port`); `start` once, `stop` once or more."""

    def __init__(self, watched: Watched, host: str = LOOPBACK, port: int = 0) -> None:
        self.host = host
        self.port = port
        self._watched = watched
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Answer from now on.

        Raises:
            UnavailableError: the port is taken, or the host is not ours.
        """
        watched = self._watched

        class _Handler(_Answers):
            source = watched

        try:
            self._server = (_Server6 if ":" in self.host else ThreadingHTTPServer)((self.host, self.port), _Handler)
        except (OSError, OverflowError) as error:
            message = (
                f"cannot answer at {self.host}:{self.port} ({error}): name a host of this machine, and a free port (--metrics HOST:PORT)"
            )
            raise UnavailableError(message) from error
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="edgemeter-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer no more; may be called twice."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()


def parse(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`; the host is loopback where none is named.

    Raises:
        ConfigError: it is neither.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        message = f"{text!r} is no address to answer at: write PORT or HOST:PORT"
        raise ConfigError(message)
    return host.strip("[]") or LOOPBACK, int(port)


def as_text(metrics: Iterator[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    lines: list[str] = []
    for one in metrics:
        name = f"edgemeter_collector_{one.name}"
        lines += [f"# HELP {name} {one.says}", f"# TYPE {name} {one.kind}"]
        if isinstance(one.value, Mapping):
            lines += [f'{name}{{{one.label}="{_escaped(key)}"}} {_number(value)}' for key, value in one.value.items()]
        else:
            lines.append(f"{name} {_number(one.value)}")
    return "\n".join(lines) + "\n"


class _Answers(BaseHTTPRequestHandler):
    source: Watched
    # Whoever connects and says nothing is let go.
    timeout = TIMEOUT_S
    server_version = "edgemeter"
    sys_version = ""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            reason = self.source.unwell()
            self._answer(200 if reason is None else 503, f"{reason or 'ok'}\n", "text/plain; charset=utf-8")
        elif path == "/metrics":
            try:
                text = as_text(self.source.metrics())
            except EdgemeterError as error:
                self._answer(503, f"{error}\n", "text/plain; charset=utf-8")
            else:
                self._answer(200, text, "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._answer(404, "there is /metrics and /healthz\n", "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so there
        logger.debug(format, *args)

    def _answer(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
