"""Some agents in one process, to be killed.

Usage: `python -m tools.chaos.agents FOLDER BROKER RECORDS RATE DEVICE...`. The outbox and publisher
of each device are real. A journal that is not the outbox says which records were meant to be kept
and which were, so that the judge knows which had to arrive: `i N` before a record is put, `k N`
once `put` has returned, `r N` that N more were sent again. Started again after a kill it goes on
where the journal ends. It ends with status 0 when every device has kept RECORDS records and
receipts have named them all.
"""

import os
import sys
import time
from pathlib import Path

from edgemeter.agent.base import broker_address
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract import messages
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.publisher import Publisher
from tests.fixtures.record_factory import make_record

FLEET = "chaos"
LOOK_S = 0.2
LATEST_REPEAT_S = 2.0


class Journal:
    """The journal of one device.

    Every line is on its way out of the process before anything else happens.
    """

    def __init__(self, path: Path) -> None:
        self.meant, self.kept = read(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        # A kill may have cut a line, which must neither swallow the next one nor become a
        # statement.
        os.write(self._file, b" cut\n")

    def note(self, event: str, number: int) -> None:
        os.write(self._file, f"{event} {number}\n".encode())


def read(path: Path) -> tuple[int, set[int]]:
    """Return the highest number that was meant to be kept, and those that were."""
    meant, numbers = 0, set()
    for event, number in lines(path):
        if event == "i":
            meant = max(meant, number)
        elif event == "k":
            numbers.add(number)
    return meant, numbers


def lines(path: Path) -> list[tuple[str, int]]:
    """Return the journal's whole lines."""
    text = path.read_text() if path.exists() else ""
    # A line that a kill cut short has no end of line of its own, and is no statement.
    fields = [line.split(" ") for line in text.split("\n")[:-1]]
    return [(parts[0], int(parts[1])) for parts in fields if len(parts) == 2 and parts[1].isdigit()]


class Agent:
    """One device: outbox, publisher, journal."""

    def __init__(self, folder: Path, address: broker_address.BrokerAddress, device: str) -> None:
        self.device = device
        self.journal = Journal(folder / f"{device}.journal")
        self.outbox = Outbox(folder / "outboxes" / f"{device}.sqlite")
        birth = messages.Birth(
            device=device,
            fleet=FLEET,
            session=self.outbox.session,
            agent="0",
            board=None,
            os=None,
            arch="x",
            runtimes={},
        )
        self.publisher = Publisher(address, self.outbox, birth, receipt_timeout_s=LATEST_REPEAT_S)
        self.publisher.start()
        self._resent = 0

    def put(self) -> None:
        """Keep one more record, if the disk allows."""
        self.journal.meant += 1
        number = self.journal.meant
        self.journal.note("i", number)
        # Where clocks are stepped, some records know that theirs was wrong: the collector stamps
        # these.
        is_right = "EDGEMETER_TEST_CLOCK" not in os.environ or number % 10 != 0
        name = f"{self.device}:{number}"
        record = make_record(
            id=name,
            device=self.device,
            fleet=FLEET,
            started_at_ns=time.time_ns(),
            clock_synchronised=is_right,
            stamped_by="device",
        )
        try:
            self.outbox.put(record)
        except EdgemeterError:
            return
        self.journal.note("k", number)
        self.journal.kept.add(number)
        self.publisher.wake()

    def is_done(self, records: int) -> bool:
        """Return whether it has kept so many and all have receipts.

        Notes how many were sent again.
        """
        if self.publisher.resent > self._resent:
            resent, self._resent = self.publisher.resent - self._resent, self.publisher.resent
            self.journal.note("r", resent)
        return len(self.journal.kept) >= records and self.outbox.is_empty(self.device)


def main(folder: Path, broker: str, records: int, rate_per_s: float, devices: list[str]) -> None:
    address = broker_address.parse_address(broker)
    agents = [Agent(folder, address, device) for device in devices]
    due_s = looked_s = time.monotonic()
    while True:
        open_agents = [agent for agent in agents if len(agent.journal.kept) < records]
        for agent in open_agents:
            agent.put()
            # After a stop it does not catch up: the rate is what the servers see.
            due_s = max(due_s + 1 / rate_per_s, time.monotonic() - 1.0)
            time.sleep(max(0.0, due_s - time.monotonic()))
        if time.monotonic() - looked_s > LOOK_S:
            looked_s = time.monotonic()
            are_done = [agent.is_done(records) for agent in agents]
            if all(are_done):
                break
        if not open_agents:
            time.sleep(LOOK_S)
    for agent in agents:
        agent.publisher.close()
        agent.outbox.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
