"""The load generator: simulated devices against one broker, as agents, or in large numbers as many devices a connection.

An agent is like one on a board: an outbox on the disk, a publisher, a connection, a Will; about two threads a device.
Thousands of devices share few connections: the records, topics and receipts of each, without outbox and Will.
"""

import contextlib
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import TOPIC_ROOT, Birth, Receipt, Topic
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.collector.load.tally import LoadPlan, LoadResult, LoadTally, RecordNumber, RecordTemplate

# Each waits for the disk at every record; this many keep one disk busy.
WRITERS = 8


class TimedOutbox(Outbox):
    """An outbox that reports to the tally how long each record waited for its receipt."""

    def __init__(self, path: Path, tally: LoadTally) -> None:
        self._tally = tally
        self._due_s: dict[int, float] = {}
        super().__init__(path)

    def put_due(self, record: RunRecord, due_s: float) -> None:
        """Store a record that was due at `due_s`."""
        # Before it is stored, because its receipt may arrive before `put` returns.
        self._due_s[len(self._due_s) + 1] = due_s
        self.put(record)
        self._tally.was_sent()

    def forget(self, receipt: Receipt) -> int:
        """Drop the receipted records, and count each the first time."""
        for first, last in receipt.held:
            for seq in range(first, last + 1):
                due_s = self._due_s.get(seq)
                if due_s:
                    self._due_s[seq] = 0.0
                    self._tally.was_receipted(due_s)
        return super().forget(receipt)


# The most records without a receipt, of one connection.
WINDOW_RECORDS = 2000
OVERDUE_S = 5.0
OVERDUE_POLL_S = 0.005


@dataclass(slots=True)
class _UnconfirmedRecord:
    device: str
    number: RecordNumber
    due_s: float
    again_s: float


@dataclass(slots=True)
class SimulatedDevices(SessionEvents):
    """The devices `first, first + step, ...` of the plan, over one connection; they send every `step`-th record."""

    address: BrokerAddress
    plan: LoadPlan
    template: RecordTemplate
    tally: LoadTally
    first: int
    step: int
    resent: int = 0
    refusal: str | None = None
    _sent: dict[tuple[int, int], _UnconfirmedRecord] = field(default_factory=dict)
    _sessions: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _session: MqttSession | None = None

    @property
    def fleet(self) -> str:
        """The fleet of this connection's devices, so that it receives their receipts only."""
        return f"{self.plan.name}-{self.first}"

    def connect(self) -> None:
        """Return when the broker has accepted us.

        Raises:
            UnavailableError: no broker answers.
            ConfigError: it refuses the credentials.
        """
        session = self._session = MqttSession(self.address, SessionProfile(self.fleet), self)
        session.connect()

    def run(self, start_s: float, stop: threading.Event) -> None:
        """Send each record when it is due, again when its receipt is overdue, until every receipt has arrived or patience ends."""
        if self._session is None:
            return
        sent_records, share = 0, len(range(self.first, self.plan.records, self.step))
        deadline_s = float("inf")
        while not stop.is_set() and time.monotonic() < deadline_s and self.refusal is None:
            sent_records += self._send_due(self._session, start_s, sent_records, share)
            if sent_records >= share:
                if not self._sent:
                    return
                deadline_s = min(deadline_s, time.monotonic() + self.plan.patience_s)
            self._send_again(self._session)
            stop.wait(OVERDUE_POLL_S)

    def close(self) -> None:
        """End the connection; may be called twice."""
        if self._session is not None:
            self._session.close()

    def connected(self) -> None:
        """Session event: a connection is up."""
        if self._session is not None:
            self._session.subscribe([f"{TOPIC_ROOT}/{self.fleet}/+/receipt"])
            with self._lock:
                for sent in self._sent.values():
                    sent.again_s = 0.0

    def received(self, message: Message) -> None:
        """Session event: a receipt."""
        try:
            receipt = messages.decode_receipt(message.payload)
        except ConfigError:
            return
        for first, last in receipt.held:
            for seq in range(first, last + 1):
                with self._lock:
                    sent = self._sent.pop((receipt.session, seq), None)
                if sent is not None:
                    self.tally.was_receipted(sent.due_s)

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer to a publish or a subscription."""
        if refusal is not None and "uthorized" in refusal:
            self.refusal = refusal

    def _send_due(self, session: MqttSession, start_s: float, sent_records: int, share: int) -> int:
        room = min(session.room(), WINDOW_RECORDS - len(self._sent), share - sent_records) if session.is_connected() else 0
        for turn in range(sent_records, sent_records + room):
            now_s = time.monotonic()
            due_s = start_s + (turn * self.step + self.first) / self.plan.rate_per_s
            if due_s > now_s:
                return turn - sent_records
            sent = self._next(turn, due_s, now_s)
            with self._lock:
                self._sent[sent.number.session, sent.number.seq] = sent
            self._publish(session, sent)
            self.tally.was_sent()
        return room

    def _next(self, turn: int, due_s: float, now_s: float) -> _UnconfirmedRecord:
        device_count = len(range(self.first, self.plan.devices, self.step))
        device = self.first + self.step * (turn % device_count)
        if device not in self._sessions:
            self._sessions[device] = secrets.randbits(52) | 1
        number = RecordNumber(self._sessions[device], turn // device_count + 1, time.time_ns())
        return _UnconfirmedRecord(self.plan.device(device), number, due_s, now_s + OVERDUE_S)

    def _send_again(self, session: MqttSession) -> None:
        now_s = time.monotonic()
        with self._lock:
            overdue = [sent for sent in self._sent.values() if sent.again_s <= now_s]
        for sent in overdue[: session.room() if session.is_connected() else 0]:
            sent.again_s = now_s + OVERDUE_S
            self._publish(session, sent)
            self.resent += 1

    def _publish(self, session: MqttSession, sent: _UnconfirmedRecord) -> None:
        session.publish(str(Topic(self.fleet, sent.device, "result")), self.template.payload(sent.device, self.fleet, sent.number))


LoadMode = Literal["agents", "crowd"]

# An agent has some seven files and sockets open, and paho-mqtt waits with select, which knows no file number from 1024 on.
MOST_AGENTS = 100
CONNECTIONS = 8
TICK_S = 0.2

LoadWatch = Callable[[LoadTally], None]


def run_load(
    address: BrokerAddress, plan: LoadPlan, mode: LoadMode, template: RecordTemplate, watch: LoadWatch = lambda _: None
) -> LoadResult:
    """Run the load against the broker at `address` and return the result; `watch` sees the counts while it runs.

    Raises:
        UnavailableError: no broker answers, or it rejects the messages.
        ConfigError: the broker refuses the credentials.
    """
    tally = LoadTally()
    with _watched(tally, watch):
        connections, resent = (_as_agents if mode == "agents" else _as_devices)(address, plan, template, tally)
    size = len(template.payload(plan.device(0), plan.name, RecordNumber(2**52, 1, time.time_ns())))
    return tally.result(plan, mode, connections, resent, size)


def _as_agents(address: BrokerAddress, plan: LoadPlan, template: RecordTemplate, tally: LoadTally) -> tuple[int, int]:
    """Send everything, then wait for the receipts until the plan's patience ends; return the connections and what was sent again."""
    agents: list[tuple[TimedOutbox, Publisher]] = []
    stop = threading.Event()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-load-")))
        stack.callback(stop.set)
        release = version("edgemeter")
        for device in map(plan.device, range(plan.devices)):
            outbox = TimedOutbox(folder / f"{device}.sqlite", tally)
            stack.callback(outbox.close)
            birth = Birth(
                device=device, fleet=plan.name, session=outbox.session, agent=release, board=None, os=None, arch="replay", runtimes={}
            )
            publisher = Publisher(address, outbox, birth)
            stack.callback(publisher.close)
            publisher.connect()
            agents.append((outbox, publisher))
        tally.begin()
        start_s = time.monotonic()

        def write(first: int) -> None:
            # Record n belongs to device n modulo devices, and each device to one writer, so that its numbers stay in order.
            for number in range(plan.records):
                device = number % plan.devices
                if device % WRITERS != first:
                    continue
                due_s = start_s + number / plan.rate_per_s
                if stop.wait(max(0.0, due_s - time.monotonic())):
                    return
                outbox, publisher = agents[device]
                outbox.put_due(template.record(plan.device(device), plan.name, time.time_ns()), due_s)
                publisher.wake()

        _join([threading.Thread(target=write, args=(first,), daemon=True) for first in range(WRITERS)])
        deadline = time.monotonic() + plan.patience_s
        for _, publisher in agents:
            publisher.drain(max(0.0, deadline - time.monotonic()))
        return plan.devices, sum(publisher.resent for _, publisher in agents)


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _as_devices(address: BrokerAddress, plan: LoadPlan, template: RecordTemplate, tally: LoadTally) -> tuple[int, int]:
    step = min(CONNECTIONS, plan.devices)
    stop = threading.Event()
    with ExitStack() as stack:
        groups = [SimulatedDevices(address, plan, template, tally, first, step) for first in range(step)]
        for group in groups:
            stack.callback(group.close)
            group.connect()
        stack.callback(stop.set)
        tally.begin()
        _join([threading.Thread(target=group.run, args=(time.monotonic(), stop), daemon=True) for group in groups])
    refused = next((group.refusal for group in groups if group.refusal), None)
    if refused:
        raise UnavailableError(
            f"the broker at {address} rejects the messages of {plan.devices} devices over {step} connections ({refused}): "
            f"it lets each device write below its own name only; use a broker without that restriction"
        )
    return step, sum(group.resent for group in groups)


@contextlib.contextmanager
def _watched(tally: LoadTally, watch: LoadWatch) -> Iterator[None]:
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(TICK_S):
            watch(tally)

    watcher = threading.Thread(target=report, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
