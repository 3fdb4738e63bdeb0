"""Tests of the recovery of records that a failover to a lagging standby has lost.

Devices bring them again when they are asked.
"""

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgemeter.agent.base import broker_address
from edgemeter.agent.delivery import outbox_file
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import LOOPBACK, mosquitto
from tools.chaos.agents import Agent
from tools.chaos.database import Pair
from tools.chaos.judge import expected, in_ledger, judge
from tools.chaos.supervised import Supervised

DEVICES = ("pi-1", "pi-2")
DELIVERED_WITHIN_S = 120


def deliver(agents, records):
    """Keep so many more records on each device, and return when receipts have named all."""
    for agent in agents:
        goal = len(agent.journal.kept) + records
        while len(agent.journal.kept) < goal:
            agent.put()
    assert wait_until(
        lambda: all(agent.outbox.is_empty(agent.device) for agent in agents), DELIVERED_WITHIN_S
    )


def missing(pair, folder):
    """Return how many of the kept records the ledger does not hold."""
    counts, _ = in_ledger(pair.primary.server.address("edgemeter"))
    return len(expected(folder).kept - set(counts))


@pytest.mark.postgresql
@pytest.mark.mosquitto
@pytest.mark.nightly
def test_what_a_failover_lost_the_devices_bring_again(monkeypatch):
    """Receipted records that a failover lost come again when the devices are asked.

    The standby was down when the primary was lost.
    """
    # However full the disk of this machine is.
    monkeypatch.setattr(outbox_file, "has_disk_room", lambda _path: True)
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="edgemeter-failover-"))
        )
        # The server is another user, who has to get to its disks.
        folder.chmod(0o755)
        pair = Pair(folder, 512, is_synchronous=False)
        stack.callback(pair.stop)
        pair.start()
        pair.settle()
        subprocess.run(
            [*EDGEMETER, "collector", "init-ledger", "--ledger", pair.address],
            check=True,
            timeout=120,
        )
        broker = mosquitto(folder, "set_tcp_nodelay true")
        broker.start()
        stack.callback(broker.kill)
        address = f"{LOOPBACK}:{broker.port}"
        command = [*EDGEMETER, "collector", "up", "--broker", address, "--ledger", pair.address]
        collector = Supervised("collector", command, folder / "collector.log")
        stack.callback(collector.stop)
        collector.start()
        (folder / "outboxes").mkdir()
        agents = [
            Agent(folder, broker_address.parse_address(address), device) for device in DEVICES
        ]
        for agent in agents:
            stack.callback(agent.outbox.close)
            stack.callback(agent.publisher.close)
        deliver(agents, 100)
        pair.standby.end()
        deliver(agents, 150)
        pair.lose_commits()
        assert missing(pair, folder) == 300
        # Later records are stored as before: their numbers are not confused with the lost ones.
        deliver(agents, 50)
        assert missing(pair, folder) == 300
        subprocess.run(
            [
                *EDGEMETER,
                "collector",
                "request-again",
                "--broker",
                address,
                "--ledger",
                pair.address,
            ],
            check=True,
            timeout=120,
        )
        assert wait_until(lambda: missing(pair, folder) == 0, DELIVERED_WITHIN_S)
        collector.stop()
        counts, quarantined = in_ledger(pair.primary.server.address("edgemeter"))
        verdict = judge(expected(folder), [counts], counts, quarantined, 0)
        assert verdict.holds, verdict.examples
        assert verdict.sent == 600
