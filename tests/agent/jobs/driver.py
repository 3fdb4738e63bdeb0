"""A driver for the job handler that plays the broker, the clock and a job's process."""

import contextlib
import os
from collections import deque
from pathlib import Path

import msgspec

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages, orders
from edgemeter.agent.contract.messages import Measuring, parse_topic
from edgemeter.agent.contract.orders import Measure
from edgemeter.agent.daemon.handler import HandlerContext
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.jobs import fetch, journal
from edgemeter.agent.jobs.execution import Doing
from edgemeter.agent.jobs.jobs_handler import JobsHandler
from edgemeter.agent.jobs.journal import Journal
from tests.agent.jobs.fleet_server import ServersEnd
from tests.fixtures.plain_signature import PlainSignature, PlainSigner

REPLAY = b"""{"format": "edgemeter-replay", "schema": 1, "latencies_ms": [2.0, 2.5],
 "inputs": [{"name": "x", "shape": [1, 3], "dtype": "float32"}],
 "outputs": [{"name": "y", "shape": [1, 3], "dtype": "float32"}]}"""
CASE = """[[case]]
model = "m.replay.json"
mode = "rapid"
seconds = {seconds}
idle_seconds = 0
repeats = {repeats}
"""


def suite(seconds=0, repeats=1):
    return ('name = "nightly"\n' + CASE.format(seconds=seconds, repeats=repeats)).encode()


def records_in(home):
    """Return the records in the outbox of an agent's home, as JSON documents."""
    with Outbox(home / "outbox.sqlite") as outbox:
        # This machine's clock may not be kept: records would wait for it.
        outbox.leave_unstamped()
        return [msgspec.json.decode(pending.payload) for pending in outbox.pending(1000, 1 << 30)]


class PlayedExecution:
    """A stand-in for a job's process that writes its results when the test lets it.

    Until then it holds the run lock.
    """

    def __init__(self, task, _wake, begun, lock=None):
        self.task, self.place = task, task.place
        self.latest = None
        self.is_killed = False
        self._begun = begun
        self._status = None
        self._lock = None if lock is None else os.dup(lock)

    def measure(self, run, runs=1):
        self._begun(
            Measuring(
                suite="nightly", case="m.replay.json", run=run, runs=runs, job=self.task.order.job
            )
        )
        self.latest = Doing(doing=f"run {run}", done_ratio=run / runs)
        with self._journal() as book:
            book.kept(self.place, f"run-{run}", is_last=run == runs)

    def finish(self, state="done", reason=None):
        with self._journal() as book:
            book.ends(self.place, state, reason)
        self.leave(0)

    def leave(self, status):
        self._status = status
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _journal(self):
        return Journal(Path(self.task.home) / journal.JOURNAL_FILE)

    def status(self):
        return self._status

    def failure(self):
        return f"the process of the job ended with status {self._status}"

    def end(self):
        if self._status is None:
            self.is_killed = True
            self.leave(-9)


class FetchHere:
    """A stand-in for the process that fetches content, with `download` as its server.

    It fetches at once.
    """

    def __init__(self, task, download):
        self._status, self._reason = fetch.outcome(task, download)

    def poll(self):
        return self._status

    def communicate(self):
        return self._reason, None

    def kill(self):
        """It has ended."""


class Driver(ServersEnd):
    """A device whose broker is this object.

    `start` and `stop` act as a reboot does, and `plays` is what an execution does at its start.
    """

    def __init__(self, home, settings=None):
        self.home = home
        self.settings = settings or config.Config(content_url="https://fleet.example/content")
        self._on_the_way = deque()
        # An acknowledgement is heard with the next poll, as over a line.
        super().__init__(
            lambda payload, kind: self._on_the_way.append((payload, kind)), PlainSigner()
        )
        self.now_s = 1000.0
        self.doings, self.ratios = [], []
        self.activities = []
        self.executions = []
        self.plays = PlayedExecution.finish
        self.is_connected = True
        self.restarts = 0
        self.handler = None
        self.boot_id = "boot-1"
        self.downloads = []
        self.change = lambda data: data
        self.start()

    def start(self):
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
            log=lambda: [
                "2026-11-20T12:00:00Z info agent of 'pi-1'",
                "2026-11-20T12:00:01Z info password=hunter2",
            ],
        )
        self.handler = JobsHandler(
            context, lambda: self.boot_id, signature=PlainSignature(), **self.means()
        )
        self.handler.connected()

    def means(self):
        """Return the clock of the handler, and what it starts instead of processes."""
        return {
            "clock_s": lambda: self.now_s,
            "execute": self._execute,
            "begin_fetch": lambda task: FetchHere(task, self._download),
        }

    def _execute(self, *arguments):
        execution = PlayedExecution(*arguments)
        self.executions.append(execution)
        self.plays(execution)
        return execution

    def _download(self, address, part, size_bytes, *_, **__):
        """Append to `part` what `change` lets through of the rest.

        Less than all of it is a cut connection.
        """
        sha256, arrived_bytes = address.rpartition("/")[2], part.stat().st_size
        self.downloads.append((sha256, arrived_bytes))
        if sha256 not in self.contents:
            message = f"{address}: the server responds 404 Not Found"
            raise UnavailableError(message)
        data = self.change(self.contents[sha256][arrived_bytes:])
        with part.open("ab") as file:
            file.write(data)
        if arrived_bytes + len(data) < size_bytes:
            message = "the connection was cut"
            raise TransientError(message)

    def stop(self):
        if self.handler is not None:
            self.handler.close()
            self.handler = None

    def measure(self, document=None, models=(("m.replay.json", REPLAY),), **fields):
        contents = tuple(self.hold(data, name) for name, data in models)
        return Measure(
            suite=self.hold(document or suite(), "suite.toml"), models=contents, **fields
        )

    def order(self, work, job="job-1", attempt=1, version=1, timeout_s=300.0):
        super().order(work, job, attempt, version, timeout_s)
        self.say(*self._on_the_way.pop())

    def say(self, payload, kind="command"):
        self.handler.received(Message(f"edgemeter/v1/lab/pi-1/{kind}", payload))

    def turn(self):
        """Poll the handler once, deliver pending messages, and return its next interval."""
        pause_s = self.handler.poll()
        while self._on_the_way:
            # The daemon logs what a handler rejects, and goes on.
            with contextlib.suppress(ConfigError):
                self.say(*self._on_the_way.popleft())
        return pause_s

    def go_on(self, turns=30):
        for _ in range(turns):
            self.turn()

    def running(self):
        self.go_on()
        return self.executions[-1]

    def final(self, job="job-1", attempt=1):
        """Poll until a job has ended, at most 60 times, and return its last report."""
        for _ in range(60):
            pause_s = self.turn()
            if ended := self.ended(job, attempt):
                return ended[-1]
            self.now_s += min(pause_s, 1.0)
        raise AssertionError(self.reports)

    def _restart(self):
        self.restarts += 1

    def _publish(self, topic, payload, *, qos=1, lasting="passing"):
        if not self.is_connected:
            return False
        kind = parse_topic(topic).kind
        if kind == "job":
            self.note(orders.decode_report(payload))
        elif kind == "progress":
            progress = messages.decode_progress(payload)
            self.doings.append(progress.doing)
            self.ratios.append(progress.done_ratio)
        elif kind == "activity":
            assert (qos, lasting) == (0, "retained")
            self.activities.append(messages.decode_activity(payload).measuring)
        return True
