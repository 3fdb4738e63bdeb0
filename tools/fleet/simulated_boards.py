"""Simulated boards, many in one process, until SIGTERM.

Usage: `python -m tools.fleet.simulated_boards FOLDER FIRST COUNT`. Each has a certificate, a
connection, a journal and a real record for each run; the tokens are in FOLDER/join.

A board joins as a real one does. What its agent does with orders is `agent/jobs/`; here only its
protocol is played: journal first, one order at a time, a report again and again at growing
intervals until it is acknowledged, a record until its receipt, none while the broker has yet to
take the last one. Time is simulated by waiting a little for each run.
"""

import heapq
import itertools
import random
import secrets
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from edgemeter.agent.base import config as configuration
from edgemeter.agent.base.broker_address import BrokerAddress, parse_address
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.agent.contract import messages, orders
from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.orders import FINAL, Cancel, ExecutionReport, Order, ReportReceipt
from edgemeter.agent.contract.record import encode
from edgemeter.agent.identity.joining import join_fleet
from edgemeter.agent.jobs.jobs_handler import FIRST_REPORT_PAUSE_S
from edgemeter.agent.machine.machine import Machine
from tests.fixtures.fleet_key import command_in, online
from tests.fixtures.record_factory import make_record

LONGEST_PAUSE_S = 60.0
TICK_S = 0.02
CONNECT_S = 60.0
# So many join at a time.
AT_ONCE = 4
OVERLAP = "two orders at a time"


@dataclass(slots=True)
class Entry:
    """One order in a device's journal.

    `said` is the state of the report that has no acknowledgement yet.
    """

    order: Order
    state: str = "accepted"
    version: int = 0
    noted: str | None = None
    said: str | None = None
    runs: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(slots=True)
class Device:
    """One device; `waiting` are accepted orders in their turn."""

    name: str
    session: int
    journal: dict[tuple[str, int], Entry] = field(default_factory=dict)
    waiting: list[tuple[str, int]] = field(default_factory=list)
    sequence: int = 0


class _Sent:
    """A message by its number on the way to the broker, and when it is sent again.

    It is sent again unless it is answered: later each time, as boards do.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._pause_s = FIRST_REPORT_PAUSE_S
        self.again_s = time.monotonic() + FIRST_REPORT_PAUSE_S

    def after(self, last: "_Sent | None") -> "_Sent":
        """Return it as the next try after `last`."""
        if last is not None:
            self._pause_s = min(LONGEST_PAUSE_S, 2 * last._pause_s)
            self.again_s = time.monotonic() + self._pause_s
        return self


def board_name(number: int) -> str:
    return f"board-{number:04d}"


def join(join_file: Path, folder: Path, number: int) -> BrokerAddress:
    """Join as the nth board with the token in a file.

    Returns: where this board finds its broker.
    """
    (folder / "etc").mkdir(parents=True)
    (folder / "etc" / "machine-id").write_text(f"{number + 1:032x}\n")
    config = folder / "config.toml"
    join_fleet(join_file, folder, config, Machine(folder))
    return parse_address(configuration.read(config).broker or "")


class SimulatedBoards:
    """Boards of a fleet, each with the address of its broker; `start` once, `stop` once."""

    def __init__(
        self, addresses: Mapping[str, BrokerAddress], fleet: str, run_s: float, seed: int = 1
    ) -> None:
        self.fleet = fleet
        self.devices = {name: Device(name, secrets.randbits(50) | 1) for name in addresses}
        # Every tenth is interrupted at its first attempt of each job, and does it at the second.
        self._flaky = set([*addresses][::10])
        self._record = make_record()
        self._run_s = run_s
        self._draw = random.Random(seed)  # noqa: S311 - a test
        self._lock = threading.Lock()
        self._events: list[tuple[float, int, Device, tuple[str, int]]] = []
        self._turn = itertools.count()
        # Messages to send again: owner and state.
        self._receipts: dict[tuple[int, int], tuple[str, bytes, _Sent]] = {}
        self._unsaid: dict[tuple[str, tuple[str, int]], _Sent] = {}
        self._ended = threading.Event()
        self._lines = {name: _Line(self, address, name) for name, address in addresses.items()}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Connect, and say that everybody is there."""
        for line in self._lines.values():
            line.session.connect(CONNECT_S)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        for line in self._lines.values():
            line.session.close()

    def received(self, message: Message) -> None:
        """Take what the broker brings, on any connection."""
        topic = message.topic.split("/")
        device = self.devices[topic[3]]
        with self._lock:
            if topic[4] == "receipt":
                receipt = messages.decode_receipt(message.payload)
                for first, last in receipt.held:
                    for sequence in range(first, last + 1):
                        self._receipts.pop((receipt.session, sequence), None)
                return
            command = orders.decode_command(command_in(message.payload))
            if isinstance(command, ReportReceipt):
                self._noted(device, command)
            else:
                self._ordered(device, command)

    def _noted(self, device: Device, noted: ReportReceipt) -> None:
        entry = device.journal.get((noted.noted, noted.attempt))
        if entry is None or noted.version <= entry.version:
            return
        entry.version = noted.version
        if entry.said is not None:
            # A report of another state than the server holds is said again.
            is_held = noted.state in {None, entry.said, *FINAL}
            entry.noted, entry.said = entry.said if is_held else entry.noted, None
            self._unsaid.pop((device.name, (noted.noted, noted.attempt)), None)
        self._report(device, entry)

    def _ordered(self, device: Device, order: Order) -> None:
        key = (order.job, order.attempt)
        entry = device.journal.get(key)
        if isinstance(order.work, Cancel):
            if entry is None:
                entry = device.journal[key] = Entry(order, "cancelled", order.version)
            elif entry.state not in FINAL:
                entry.state = "cancelled"
                device.waiting.remove(key)
        elif entry is None:
            still = [
                other for other, execution in device.journal.items() if execution.state not in FINAL
            ]
            if still:
                print(f"{OVERLAP}: {device.name}: {key} while {still}", flush=True)
            entry = device.journal[key] = Entry(order, "accepted", order.version)
            device.waiting.append(key)
            if len(device.waiting) == 1:
                self._later(device, key, 0.05)
        # Known or new, the server hears how it stands.
        entry.version, entry.noted, entry.said = max(entry.version, order.version), None, None
        self._report(device, entry)

    def _report(self, device: Device, entry: Entry) -> None:
        if entry.said is not None or entry.noted == entry.state:
            return
        entry.said = entry.state
        self._send_report(device, entry)

    def _send_report(self, device: Device, entry: Entry) -> None:
        key = (entry.order.job, entry.order.attempt)
        report = ExecutionReport(
            job=key[0],
            attempt=key[1],
            expected_version=entry.version,
            state=entry.said,
            session=device.session,
            runs=entry.runs if entry.said == "done" else (),
            reason=entry.reason,
        )
        number = self._publish(device, "job", orders.encode_order(report))
        self._unsaid[device.name, key] = _Sent(number).after(self._unsaid.get((device.name, key)))

    def _later(self, device: Device, key: tuple[str, int], seconds: float) -> None:
        heapq.heappush(self._events, (time.monotonic() + seconds, next(self._turn), device, key))

    def _advance(self, device: Device, key: tuple[str, int]) -> None:
        entry = device.journal[key]
        if entry.state == "accepted":
            entry.state = "running"
            self._later(device, key, self._run_s * self._draw.uniform(0.5, 1.5))
        elif entry.state == "running":
            self._finish(device, entry)
            device.waiting.remove(key)
            if device.waiting:
                self._later(device, device.waiting[0], 0.05)
        self._report(device, entry)

    def _finish(self, device: Device, entry: Entry) -> None:
        if device.name in self._flaky and entry.order.attempt == 1:
            entry.state, entry.reason = "failed", "interrupted by a restart"
            return
        entry.state = "done"
        device.sequence += 1
        key = (device.session, device.sequence)
        run = uuid.UUID(int=device.session << 64 | device.sequence).hex
        payload = encode(
            msgspec.structs.replace(
                self._record,
                id=run,
                job=entry.order.job,
                device=device.name,
                fleet=self.fleet,
                session=key[0],
                seq=key[1],
                started_at_ns=time.time_ns(),
            )
        )
        self._receipts[key] = (
            device.name,
            payload,
            _Sent(self._publish(device, "result", payload)),
        )
        entry.runs = (run,)

    def _publish(self, device: Device, kind: str, payload: bytes) -> int:
        return self._lines[device.name].session.publish(
            str(Topic(self.fleet, device.name, kind)), payload
        )

    def _is_due(self, name: str, sent: "_Sent", now_s: float) -> bool:
        return sent.again_s <= now_s and not self._lines[name].session.is_on_its_way(sent.number)

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            now_s = time.monotonic()
            with self._lock:
                while self._events and self._events[0][0] <= now_s:
                    _, _, device, key = heapq.heappop(self._events)
                    self._advance(device, key)
                for (name, key), sent in list(self._unsaid.items()):
                    if self._is_due(name, sent, now_s):
                        self._send_report(self.devices[name], self.devices[name].journal[key])
                for record, (name, payload, sent) in list(self._receipts.items()):
                    if self._is_due(name, sent, now_s):
                        repeated = _Sent(
                            self._publish(self.devices[name], "result", payload)
                        ).after(sent)
                        self._receipts[record] = (name, payload, repeated)


class _Line:
    """The connection of one board."""

    def __init__(self, boards: SimulatedBoards, address: BrokerAddress, name: str) -> None:
        self._boards = boards
        self._name = name
        self.session = MqttSession(address, SessionProfile(name, "persistent"), self)

    def connected(self) -> None:
        """Subscribe, and report that the board is there."""
        self.session.subscribe(
            [str(Topic(self._boards.fleet, self._name, kind)) for kind in ("command", "receipt")]
        )
        state = online(self._boards.devices[self._name].session)
        self.session.publish(
            str(Topic(self._boards.fleet, self._name, "state")), state, lasting="retained"
        )

    def disconnected(self, reason: str) -> None:
        """It comes back by itself."""

    def received(self, message: Message) -> None:
        self._boards.received(message)

    def answered(self, refusal: str | None) -> None:
        """Take the broker's answer: reports and records have their own."""


def main() -> None:
    """Join as the boards FIRST, FIRST + 1, ... of FOLDER, and play them until SIGTERM."""
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    numbers = range(first, first + count)
    names = [board_name(number) for number in numbers]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        addresses = pool.map(
            join,
            [folder / "join" / f"{name}.join.toml" for name in names],
            [folder / name for name in names],
            numbers,
        )
        boards = SimulatedBoards(dict(zip(names, addresses, strict=True)), "lab", run_s=2.0)
    boards.start()
    signal.sigwait({signal.SIGTERM})
    boards.stop()


if __name__ == "__main__":
    # Threads inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main()
