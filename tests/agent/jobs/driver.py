"""Drives the handler of jobs without a broker: what it publishes is kept, and content that it wants is handed to it."""

import contextlib
import time
from collections import deque

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages, orders
from edgemeter.agent.contract.messages import parse_topic
from edgemeter.agent.contract.orders import Measure
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.jobs.jobs_handler import JobsHandler
from tests.agent.jobs.fleet_server import ServersEnd
from tests.fixtures.fleet_key import OrderSigner, give_board

REPLAY = b"""{"format": "edgemeter-replay", "schema": 1, "latencies_ms": [2.0, 2.5],
 "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}], "outputs": [{"name": "y", "shape": [1, 3], "dtype": "float32"}]}"""
CASE = """[[case]]
model = "m.replay.json"
mode = "rapid"
queries = 20
seconds = {seconds}
idle_seconds = 0
repeats = {repeats}
"""


def suite(seconds=0, repeats=1):
    """Return a suite of one short case."""
    return ('name = "nightly"\n' + CASE.format(seconds=seconds, repeats=repeats)).encode()


def records_in(home):
    """Return the records in the outbox of an agent's home, as JSON documents."""
    with Outbox(home / "outbox.sqlite") as outbox:
        # This machine's clock may not be kept: records would wait for it.
        outbox.leave_unstamped()
        return [msgspec.json.decode(pending.payload) for pending in outbox.pending(1000, 1 << 30)]


class Driver(ServersEnd):
    """One device whose broker is this object; `start` and `stop` as a reboot does."""

    def __init__(self, home, settings=None):
        self.home = home
        self.settings = settings or config.Config()
        self._on_the_way = deque()
        # An acknowledgement is heard with the next poll, as over a line.
        super().__init__(
            lambda payload, kind: self._on_the_way.append((payload, kind)), OrderSigner(give_board(home) / "service", "lab", "pi-1")
        )
        self.doings = []
        self.activities = []
        self.is_connected = True
        self.restarts = 0
        self.handler = None
        self.boot_id = "boot-1"
        self.change = lambda payload: payload
        self.start()

    def start(self):
        """Make the handler, as the agent does at its start."""
        context = HandlerContext(
            device="pi-1",
            fleet="lab",
            session=7,
            settings=self.settings,
            home=self.home,
            config=None,
            publish=self._publish,
            report_challenge=self.signer.challenged,
            is_connected=lambda: self.is_connected,
            wake=lambda: None,
            restart=self._restart,
            log=lambda: ["2026-11-20T12:00:00Z info agent of 'pi-1'", "2026-11-20T12:00:01Z info password=hunter2"],
        )
        self.handler = JobsHandler(context, boot_id=lambda: self.boot_id)
        self.handler.connected()

    def stop(self):
        """End it in good order."""
        if self.handler is not None:
            self.handler.close()
            self.handler = None

    def measure(self, document=None, models=(("m.replay.json", REPLAY),), **fields):
        """Return the work of measuring a suite."""
        contents = tuple(self.hold(data, name) for name, data in models)
        return Measure(suite=self.hold(document or suite(), "suite.toml"), models=contents, **fields)

    def order(self, work, job="job-1", attempt=1, version=1, timeout_s=300.0):
        """Give an order."""
        super().order(work, job, attempt, version, timeout_s)
        self.say(*self._on_the_way.pop())

    def say(self, payload, kind="command"):
        """Let the device hear any bytes."""
        self.handler.received(Message(f"edgemeter/v1/lab/pi-1/{kind}", payload))

    def until(self, condition, timeout_s=300.0):
        """Let the handler look until `condition()` holds; return whether it did."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.handler.poll()
            while self._on_the_way:
                # The daemon logs what a handler rejects, and goes on.
                with contextlib.suppress(ConfigError):
                    self.say(*self._on_the_way.popleft())
            if condition():
                return True
            time.sleep(0.02)
        return False

    def final(self, job="job-1", attempt=1):
        """Return the last report of a job, once it has ended."""
        assert self.until(lambda: self.ended(job, attempt)), self.reports
        return self.ended(job, attempt)[-1]

    def _restart(self):
        self.restarts += 1

    def _publish(self, topic, payload, *, qos=1, lasting="passing"):
        if not self.is_connected:
            return False
        kind = parse_topic(topic).kind
        if kind == "job":
            self.note(orders.decode_report(payload))
        elif kind == "progress":
            self.doings.append(messages.decode_progress(payload).doing)
        elif kind == "activity":
            assert (qos, lasting) == (0, "retained")
            self.activities.append(messages.decode_activity(payload).measuring)
        elif kind == "want":
            changed = self.change(orders.join_chunk(*self.chunk(orders.decode_want(payload))))
            if changed is not None:
                self._on_the_way.append((changed, "content"))
        return True
