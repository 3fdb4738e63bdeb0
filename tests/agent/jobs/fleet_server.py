"""The server's end of jobs in tests: gives orders over a real broker, keeps what devices report, acknowledges, and hands out content."""

import hashlib
import threading

from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import orders
from edgemeter.agent.contract.messages import Topic, decode_state
from edgemeter.agent.contract.orders import Chunk, Content, Order, ReportReceipt
from tests.fixtures.fleet_key import OrderSigner
from tests.fixtures.mqtt_peer import wait_until

FLEET, DEVICE = "lab", "pi-1"
LONG_S = 120.0


def topic(kind):
    """Return a topic of the device."""
    return str(Topic(FLEET, DEVICE, kind))


class ServersEnd:
    """What a server of orders does over any line: `send(payload, kind)` is the line, `acknowledges` whether it answers reports."""

    def __init__(self, send, signer):
        self.signer = signer
        self.reports = []
        self.wants = []
        self.contents = {}
        self.acknowledges = True
        self._send = send
        self._versions = {}
        self._orders = {}

    def hold(self, data, name):
        """Keep content, and return what an order calls it."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.contents[sha256] = data
        return Content(sha256=sha256, size_bytes=len(data), name=name)

    def order(self, work, job="job-1", attempt=1, version=1, timeout_s=300.0):
        """Give an order."""
        self._versions.setdefault((job, attempt), version)
        self._orders[job, attempt] = Order(job=job, attempt=attempt, version=version, work=work, timeout_s=timeout_s)
        self._command(self._orders[job, attempt])

    def challenged(self, challenge):
        """Take the challenge of the device's state, and give the orders again that it has not answered."""
        self.signer.challenged(challenge)
        answered = {(report.job, report.attempt) for report in self.reports}
        for key, order in self._orders.items():
            if key not in answered:
                self._command(order)

    def states(self, job="job-1"):
        """Return the states that were reported, each once, in order."""
        return list(dict.fromkeys(report.state for report in list(self.reports) if report.job == job))

    def ended(self, job, attempt):
        """Return the reports of a job that has ended."""
        return [report for report in list(self.reports) if (report.job, report.attempt) == (job, attempt) and report.state in orders.FINAL]

    def note(self, report):
        """Keep a report, and acknowledge it."""
        self.reports.append(report)
        if not self.acknowledges:
            return
        key = (report.job, report.attempt)
        if report.expected_version == self._versions.get(key, report.expected_version):
            self._versions[key] = report.expected_version + 1
        self._command(ReportReceipt(noted=report.job, attempt=report.attempt, version=self._versions[key]))

    def _command(self, command):
        self._send(self.signer.sealed(orders.encode_order(command)), "command")

    def chunk(self, want):
        """Note a request for content, and return head and bytes of the chunk that it asks for."""
        self.wants.append(want)
        data = self.contents.get(want.sha256)
        head = Chunk(sha256=want.sha256, offset=want.offset, size_bytes=None if data is None else len(data))
        return head, b"" if data is None else data[want.offset : want.offset + want.length]


class FleetServer(ServersEnd):
    """A server with one device over a real broker; `contents` by hash is what it hands out."""

    def __init__(self, address, folder):
        # Not flushed: that would wait in the thread which receives.
        super().__init__(lambda payload, kind: self.session.publish(topic(kind), payload), OrderSigner(folder, FLEET, DEVICE))
        self.challenges = 0
        self._subscribed = threading.Event()
        self.session = MqttSession(address, SessionProfile("edgemeter-fleet"), self)
        self.session.connect()
        self._subscribed.wait(150)

    def connected(self):
        """Subscribe."""
        self.session.subscribe([topic(kind) for kind in ("job", "want", "state")])
        self.session.publish("edgemeter-tests/marker", b"x")

    def disconnected(self, _reason):
        """It comes back."""

    def answered(self, _refusal):
        """The subscription stands."""
        self._subscribed.set()

    def received(self, message):
        """Keep it, and answer."""
        kind = message.topic.rpartition("/")[2]
        if kind == "state":
            if challenge := decode_state(message.payload).challenge:
                self.challenged(challenge)
                self.challenges += 1
        elif kind == "want":
            head, data = self.chunk(orders.decode_want(message.payload))
            self._send(orders.join_chunk(head, data), "content")
        else:
            self.note(orders.decode_report(message.payload))

    def order(self, work, **settings):
        """Give an order, and return when the broker has it."""
        super().order(work, **settings)
        self.session.flush(5)

    def final(self, job="job-1", attempt=1, timeout_s=LONG_S):
        """Return the last report of a job that has ended, once it is here."""
        wait_until(lambda: self.ended(job, attempt), timeout_s)
        return self.ended(job, attempt)[-1]

    def close(self):
        """End the session."""
        self.session.close()
