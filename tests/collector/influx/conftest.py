import http.server
import threading

import pytest

from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.ledgers import ledger_place

__all__ = ["ledger_place"]


class Scripted(http.server.BaseHTTPRequestHandler):
    """A server that answers each write with the next status of its script, then 204; that takes at most so many lines in time."""

    protocol_version = "HTTP/1.1"
    script: list[tuple[int, str]]
    bodies: list[bytes]
    paths: list[str]
    most_lines = 10**9

    def do_POST(self):
        """Answer a write; an empty one (the question whether all is well) always with 204."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        status, text = self.script.pop(0) if self.script and body else (204, "")
        if body.count(b"\n") + 1 > self.most_lines:
            status = 503
        self.paths.append(self.path)
        if body:
            self.bodies.append(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        """Have nothing else: no organisations, as 1.8 and 3 have none."""
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        """Keep quiet."""


@pytest.fixture
def scripted():
    """Return a running scripted server, with how it is reached as an InfluxDB 2."""
    handler = type("Handler", (Scripted,), {"script": [], "bodies": [], "paths": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.handler = handler
        server.config = InfluxConfig(f"http://127.0.0.1:{server.server_port}", "t", "org", "b")
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
