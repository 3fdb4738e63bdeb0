"""The server's end of jobs in tests: gives orders over a real broker, keeps what devices report, acknowledges, and hands out content."""

import hashlib
import threading
import time

from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.messages import Topic, decode_activity
from edgemeter.agent.contract.orders import Chunk, Content, Order, ReportReceipt
from tests.fixtures.mqtt_peer import wait_until

FLEET, DEVICE = "lab", "pi-1"
LONG_S = 120.0


def topic(kind):
    """Return a topic of the device."""
    return str(Topic(FLEET, DEVICE, kind))


class FleetServer:
    """A server with one device; `contents` by hash is what it hands out, `acknowledges` whether it answers reports."""

    def __init__(self, address):
        self.reports = []
        self.progress = []
        self.activities = []
        self.wants = []
        self.births = 0
        self.contents = {}
        self.acknowledges = True
        self.change_piece = lambda _head, piece: piece
        self._versions = {}
        self._subscribed = threading.Event()
        self.session = MqttSession(address, SessionProfile("edgemeter-fleet"), self)
        self.session.connect()
        self._subscribed.wait(150)

    def connected(self):
        """Subscribe."""
        self.session.subscribe([topic(kind) for kind in ("job", "want", "progress", "birth", "activity")])
        self.session.publish("edgemeter-tests/marker", b"x")

    def disconnected(self, _reason):
        """It comes back."""

    def answered(self, _refusal):
        """The subscription stands."""
        self._subscribed.set()

    def received(self, message):
        """Keep it, and answer."""
        kind = message.topic.rpartition("/")[2]
        if kind == "birth":
            self.births += 1
        elif kind == "activity":
            self.activities.append((time.monotonic_ns(), decode_activity(message.payload)))
        elif kind == "progress":
            self.progress.append(message.payload)
        elif kind == "want":
            self._hand_out(orders.decode_want(message.payload))
        else:
            self._note(orders.decode_report(message.payload))

    def hold(self, data, name):
        """Keep content, and return what an order calls it."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.contents[sha256] = data
        return Content(sha256=sha256, size_bytes=len(data), name=name)

    def order(self, work, job="job-1", attempt=1, version=1, timeout_s=LONG_S):
        """Order something, and return the order."""
        order = Order(job=job, attempt=attempt, version=version, work=work, timeout_s=timeout_s)
        self._versions.setdefault((job, attempt), version)
        self.say(orders.encode_order(order))
        return order

    def say(self, payload, kind="command"):
        """Publish any bytes to the device."""
        self.session.publish(topic(kind), payload)
        self.session.flush(5)

    def states(self, job="job-1", attempt=1):
        """Return the states that were reported, each once, in order."""
        seen = []
        for report in self.reports:
            if (report.job, report.attempt) == (job, attempt) and report.state not in seen:
                seen.append(report.state)
        return seen

    def final(self, job="job-1", attempt=1, timeout_s=LONG_S):
        """Return the last report of a job that has ended, once it is here."""

        def ends():
            return [r for r in list(self.reports) if (r.job, r.attempt) == (job, attempt) and r.state in orders.FINAL]

        wait_until(ends, timeout_s)
        return ends()[-1]

    def wait_for(self, state, job="job-1"):
        """Return whether that state is reported in time."""
        return wait_until(lambda: state in self.states(job), LONG_S)

    def close(self):
        """End the session."""
        self.session.close()

    def _note(self, report):
        self.reports.append(report)
        if not self.acknowledges:
            return
        key = (report.job, report.attempt)
        if report.expected_version == self._versions.get(key, report.expected_version):
            self._versions[key] = report.expected_version + 1
        noted = ReportReceipt(noted=report.job, attempt=report.attempt, version=self._versions[key])
        self.session.publish(topic("command"), orders.encode_order(noted))

    def _hand_out(self, want):
        self.wants.append(want)
        data = self.contents.get(want.sha256)
        head = Chunk(sha256=want.sha256, offset=want.offset, size_bytes=None if data is None else len(data))
        piece = b"" if data is None else data[want.offset : want.offset + want.length]
        self.session.publish(topic("content"), orders.join_chunk(head, self.change_piece(head, piece)))
