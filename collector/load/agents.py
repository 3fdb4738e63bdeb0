"""Simulated devices, each as on a board: an outbox on the disk, a publisher, a connection, a Will. About two threads a device."""

import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.delivery.messages import Birth, Receipt
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from edgemeter.agent.records import RunRecord
from edgemeter.collector.load.tally import Plan, Tally
from edgemeter.collector.load.template import Template

# Each waits for the disk at every record; so many at once keep one disk busy.
WRITERS = 8


class TimedOutbox(Outbox):
    """An outbox that tells the tally how long each record waited for its receipt."""

    def __init__(self, path: Path, tally: Tally) -> None:
        self._tally = tally
        self._due_s: dict[int, float] = {}
        super().__init__(path)

    def put_due(self, record: RunRecord, due_s: float) -> None:
        """Keep a record that was due then."""
        # Before it is kept, because its receipt may be here before `put` returns.
        self._due_s[len(self._due_s) + 1] = due_s
        self.put(record)
        self._tally.was_sent()

    def forget(self, receipt: Receipt) -> int:
        """Drop what the receipt names, and count each the first time."""
        for first, last in receipt.held:
            for seq in range(first, last + 1):
                due_s = self._due_s.get(seq)
                if due_s:
                    self._due_s[seq] = 0.0
                    self._tally.was_receipted(due_s)
        return super().forget(receipt)


@dataclass(slots=True)
class Agents:
    """`plan.devices` agents of this process at the broker at `address`."""

    address: BrokerAddress
    plan: Plan
    template: Template
    tally: Tally
    resent: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Send everything, then wait for the receipts as long as the plan says.

        Raises:
            UnavailableError: no broker answers, or the disk is full.
            ConfigError: the broker refuses us.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-load-")))
            stack.callback(self._stop.set)
            agents = [self._agent(stack, folder, number) for number in range(self.plan.devices)]
            self.tally.begin()
            start_s = time.monotonic()
            writers = [threading.Thread(target=self._write, args=(agents, start_s, first), daemon=True) for first in range(WRITERS)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            deadline = time.monotonic() + self.plan.patience_s
            for _, publisher in agents:
                publisher.drain(max(0.0, deadline - time.monotonic()))
            self.resent = sum(publisher.resent for _, publisher in agents)

    def _agent(self, stack: ExitStack, folder: Path, number: int) -> tuple[TimedOutbox, Publisher]:
        device = self.plan.device(number)
        outbox = TimedOutbox(folder / f"{device}.sqlite", self.tally)
        stack.callback(outbox.close)
        birth = Birth(
            device=device,
            fleet=self.plan.name,
            session=outbox.session,
            agent=version("edgemeter"),
            board=None,
            os=None,
            arch="replay",
            runtimes={},
        )
        publisher = Publisher(self.address, outbox, birth)
        stack.callback(publisher.close)
        publisher.connect()
        return outbox, publisher

    def _write(self, agents: list[tuple[TimedOutbox, Publisher]], start_s: float, first: int) -> None:
        # Record n belongs to device n modulo devices, and every device to one writer, so that its numbers keep their order.
        for number in range(self.plan.records):
            device = number % self.plan.devices
            if device % WRITERS != first:
                continue
            due_s = start_s + number / self.plan.rate_per_s
            if self._stop.wait(max(0.0, due_s - time.monotonic())):
                return
            outbox, publisher = agents[device]
            outbox.put_due(self.template.record(self.plan.device(device), self.plan.name, time.time_ns()), due_s)
            publisher.wake()
