"""A fleet's server for tests: it gives orders over a real broker and serves content.

It keeps what devices report, and acknowledges it.
"""

import functools
import hashlib
import http.server
import threading
from contextlib import contextmanager

from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.messages import Topic, decode_state
from edgemeter.agent.contract.orders import Content, Order, ReportReceipt
from tests.fixtures.fleet_key import OrderSigner
from tests.fixtures.mqtt_peer import wait_until

FLEET, DEVICE = "lab", "pi-1"
LONG_S = 120.0


def topic(kind):
    return str(Topic(FLEET, DEVICE, kind))


class ServersEnd:
    """The server of orders over any line.

    `send(payload, kind)` is the line, and `acknowledges` tells whether it answers reports.
    """

    def __init__(self, send, signer):
        self.signer = signer
        self.reports = []
        self.contents = {}
        self.acknowledges = True
        self._send = send
        self._versions = {}
        self._orders = {}

    def hold(self, data, name):
        sha256 = hashlib.sha256(data).hexdigest()
        self.contents[sha256] = data
        return Content(sha256=sha256, size_bytes=len(data), name=name)

    def order(self, work, job="job-1", attempt=1, version=1, timeout_s=300.0):
        self._versions.setdefault((job, attempt), version)
        self._orders[job, attempt] = Order(
            job=job, attempt=attempt, version=version, work=work, timeout_s=timeout_s
        )
        self._command(self._orders[job, attempt])

    def challenged(self, challenge):
        """Take the challenge from the device's state, and resend the unanswered orders."""
        self.signer.challenged(challenge)
        answered = {(report.job, report.attempt) for report in self.reports}
        for key, order in self._orders.items():
            if key not in answered:
                self._command(order)

    def states(self, job="job-1"):
        return list(
            dict.fromkeys(report.state for report in list(self.reports) if report.job == job)
        )

    def ended(self, job, attempt):
        return [
            report
            for report in list(self.reports)
            if (report.job, report.attempt) == (job, attempt) and report.state in orders.FINAL
        ]

    def note(self, report):
        self.reports.append(report)
        if not self.acknowledges:
            return
        key = (report.job, report.attempt)
        if report.expected_version == self._versions.get(key, report.expected_version):
            self._versions[key] = report.expected_version + 1
        self._command(
            ReportReceipt(noted=report.job, attempt=report.attempt, version=self._versions[key])
        )

    def _command(self, command):
        self._send(self.signer.sealed(orders.encode_order(command)), "command")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A handler that serves the files of a folder without logging."""

    def log_message(self, *_):
        """Write nothing."""


@contextmanager
def file_server(folder):
    files = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder))
    )
    thread = threading.Thread(target=files.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{files.server_port}"
    finally:
        files.shutdown()
        thread.join()
        files.server_close()


class FleetServer(ServersEnd):
    """A server with one device over a real broker, which serves the folder `content`."""

    def __init__(self, address, folder):
        # Not flushed: that would wait in the thread which receives.
        super().__init__(
            lambda payload, kind: self.session.publish(topic(kind), payload),
            OrderSigner(folder, FLEET, DEVICE),
        )
        self.content = folder / "content"
        self.content.mkdir(parents=True)
        self.challenges = 0
        self._subscribed = threading.Event()
        self.session = MqttSession(address, SessionProfile("edgemeter-fleet"), self)
        self.session.connect()
        self._subscribed.wait(150)

    def connected(self):
        self.session.subscribe([topic(kind) for kind in ("job", "state")])
        self.session.publish("edgemeter-tests/marker", b"x")

    def disconnected(self, _reason):
        """It comes back."""

    def answered(self, _refusal):
        self._subscribed.set()

    def received(self, message):
        kind = message.topic.rpartition("/")[2]
        if kind == "state":
            if challenge := decode_state(message.payload).challenge:
                self.challenged(challenge)
                self.challenges += 1
        else:
            self.note(orders.decode_report(message.payload))

    def hold(self, data, name):
        """Keep content where it is served, and return what an order calls it."""
        content = super().hold(data, name)
        (self.content / content.sha256).write_bytes(data)
        return content

    def order(self, work, **settings):
        super().order(work, **settings)
        self.session.flush(5)

    def final(self, job="job-1", attempt=1, timeout_s=LONG_S):
        wait_until(lambda: self.ended(job, attempt), timeout_s)
        return self.ended(job, attempt)[-1]

    def close(self):
        self.session.close()
