"""`edgemeter fleet` commands reach an agent through the real service and a real broker."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgemeter.agent.contract.messages import Topic, decode_state
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.service import FleetService
from tests.agent.jobs.driver import REPLAY, suite
from tests.agent.jobs.fleet_server import DEVICE, FLEET, LONG_S
from tests.fixtures.collecting import collecting
from tests.fixtures.fleet_key import give_service
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.publishing import peer
from tests.fixtures.servers import address_of

pytestmark = pytest.mark.mosquitto


@dataclass
class Births:
    """A listener that counts the challenges in the agent's states.

    The real service is the only one that answers the agent.
    """

    heard: Peer
    content: Path

    @property
    def challenges(self):
        return sum(
            decode_state(message.payload).challenge is not None for message in self.heard.messages
        )


@pytest.fixture
def server(broker, tmp_path):
    """Return a listener in place of the server's end that other tests play."""
    with peer(address_of(broker), str(Topic(FLEET, DEVICE, "state"))) as heard:
        yield Births(heard, tmp_path / "fleet/content")


@pytest.fixture
def folder(tmp_path, broker):
    """Return the folder of a fleet of one device, which is served."""
    fleet_folder = give_service(FleetFolder(tmp_path / "fleet"))
    registry = Registry(fleet_folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, Device(DEVICE, FLEET, "serial", "pi5", (), "accepted", 1))
    registry.close()
    running = FleetService(fleet_folder, address_of(broker))
    running.start()
    yield fleet_folder
    running.stop()


def called(folder, *arguments):
    result = CliRunner().invoke(fleet, ["--folder", str(folder.path), *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_suite_goes_from_a_command_to_the_device_and_its_result_back(
    folder, agent, broker, tmp_path
):
    """`fleet run` waits for the result.

    The runs that the job names, and no others, are in the collector's ledger.
    """
    (tmp_path / "suite.toml").write_bytes(suite(repeats=2))
    (tmp_path / "m.replay.json").write_bytes(REPLAY)
    with collecting(address_of(broker), tmp_path / "ledger.sqlite"):
        agent.start()
        job = json.loads(
            called(
                folder,
                "run",
                tmp_path / "suite.toml",
                "--on",
                f"device={DEVICE}",
                "--timeout",
                600,
                "--format",
                "json",
            )
        )
        (execution,) = job["executions"]
        assert (execution["state"], len(execution["runs"])) == ("done", 2), execution
        with SqliteLedger(tmp_path / "ledger.sqlite", "read") as ledger:
            assert wait_until(
                lambda: {entry.record.id for entry in ledger.records()} == set(execution["runs"]),
                LONG_S,
            )


@pytest.mark.nightly
def test_a_device_that_is_killed_while_it_measures_does_it_in_the_second_attempt(
    folder, agent, tmp_path
):
    """The first attempt is interrupted, and only the second gives a run."""
    (tmp_path / "suite.toml").write_bytes(suite(seconds=12))
    (tmp_path / "m.replay.json").write_bytes(REPLAY)
    agent.start()
    job = json.loads(
        called(
            folder,
            "run",
            tmp_path / "suite.toml",
            "--on",
            "all",
            "--timeout",
            600,
            "--detach",
            "--format",
            "json",
        )
    )["job"]
    # The lock is taken a moment before the journal knows that it began.
    assert wait_until(
        lambda: (
            json.loads(called(folder, "jobs", job, "--format", "json"))["executions"][0]["state"]
            == "running"
        ),
        LONG_S,
    )
    agent.kill()
    agent.start()

    def ended():
        document = json.loads(called(folder, "jobs", job, "--format", "json"))
        return [execution for execution in document["executions"] if execution["state"] == "done"]

    # The server waits a minute before a retry.
    for _ in range(150):
        if ended():
            break
        time.sleep(2.0)
    assert ended(), called(folder, "jobs", job, "--format", "json")
    (execution,) = ended()
    assert (execution["attempt"], len(execution["runs"])) == (2, 1)
