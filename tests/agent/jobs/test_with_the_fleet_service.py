"""Facts about both ends together: `edgemeter fleet` commands, the real service, a real broker, and an agent that stays."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic, decode_state
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.service import FleetService
from tests.agent.jobs.driver import REPLAY, suite
from tests.agent.jobs.fleet_server import DEVICE, FLEET, LONG_S
from tests.fixtures.fleet_key import give_service
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import address_of

pytestmark = pytest.mark.mosquitto


class Births:
    """Hears only that the agent is there: the real service is the only one who answers it."""

    def __init__(self, address):
        self.challenges = 0
        self.session = MqttSession(address, SessionProfile("edgemeter-tests"), self)
        self.session.connect()

    def connected(self):
        """Subscribe."""
        self.session.subscribe([str(Topic(FLEET, DEVICE, "state"))])

    def disconnected(self, _reason):
        """It comes back."""

    def answered(self, _refusal):
        """The subscription stands."""

    def received(self, message):
        """Count it."""
        self.challenges += decode_state(message.payload).challenge is not None


@pytest.fixture
def server(broker):
    """Return who hears of the agent; in the place of the server's end that other tests play."""
    heard = Births(address_of(broker))
    yield heard
    heard.session.close()


@pytest.fixture
def idle_folder(tmp_path):
    """Return the folder of a fleet of one device, which nobody serves."""
    fleet_folder = give_service(FleetFolder(tmp_path / "fleet"))
    registry = Registry(fleet_folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, Device(DEVICE, FLEET, "serial", "pi5", (), "accepted", 1, 1))
    registry.close()
    return fleet_folder


@contextmanager
def service(fleet_folder, broker):
    """Serve a fleet for the block."""
    running = FleetService(fleet_folder, address_of(broker))
    running.start()
    try:
        yield
    finally:
        running.stop()


@pytest.fixture
def folder(idle_folder, broker):
    """Return the folder of a fleet of one device, which is served."""
    with service(idle_folder, broker):
        yield idle_folder


def called(folder, *arguments, code=0):
    """Return what an `edgemeter fleet` command prints."""
    result = CliRunner().invoke(fleet, ["--folder", str(folder.path), *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.stdout


def test_a_suite_goes_from_a_command_to_the_device_and_its_result_back(folder, agent, tmp_path):
    """`fleet run` waits for it; the device's journal and the server's agree."""
    (tmp_path / "suite.toml").write_bytes(suite(repeats=2))
    (tmp_path / "m.replay.json").write_bytes(REPLAY)
    agent.start()
    job = json.loads(called(folder, "run", tmp_path / "suite.toml", "--on", f"device={DEVICE}", "--timeout", 600, "--json"))
    (execution,) = job["executions"]
    assert (execution["state"], len(execution["runs"])) == ("done", 2), execution


@pytest.mark.nightly
def test_orders_arrive_after_a_second_agent_was_tried_and_the_service_started_again(idle_folder, agent, broker, tmp_path):
    """Also where a clone of the card was reported lost last: what the broker retains is the state of the agent that is there."""
    (tmp_path / "suite.toml").write_bytes(suite())
    (tmp_path / "m.replay.json").write_bytes(REPLAY)
    with service(idle_folder, broker):
        agent.start()
    second = subprocess.run(
        [sys.executable, "-m", "edgemeter.agent.cli.main", "agent", "up", "--config", str(agent.config)],
        env=os.environ | {"EDGEMETER_HOME": str(agent.home)}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert second.returncode == 1
    assert "belongs to another agent" in second.stderr
    clone = Peer(address_of(broker), client_id="clone")
    lost = messages.DeviceState(state="lost", session=7)
    clone.session.publish(str(Topic(FLEET, DEVICE, "state")), messages.encode_message(lost), lasting="retained")
    clone.session.flush(LONG_S)
    clone.close()
    with service(idle_folder, broker):
        job = json.loads(called(idle_folder, "run", tmp_path / "suite.toml", "--on", DEVICE, "--timeout", 600, "--json"))
    (execution,) = job["executions"]
    assert execution["state"] == "done", execution


@pytest.mark.nightly
def test_a_device_that_is_killed_while_it_measures_does_it_in_the_second_attempt(folder, agent, tmp_path):
    """The first is interrupted; the retry is a new attempt, and the only one that gives a run."""
    (tmp_path / "suite.toml").write_bytes(suite(seconds=12))
    (tmp_path / "m.replay.json").write_bytes(REPLAY)
    agent.start()
    job = json.loads(called(folder, "run", tmp_path / "suite.toml", "--on", "all", "--timeout", 600, "--detach", "--json"))["job"]
    # The lock is taken a moment before the journal knows that it began.
    assert wait_until(lambda: json.loads(called(folder, "jobs", job, "--json"))["executions"][0]["state"] == "running", LONG_S)
    agent.kill()
    agent.start()

    def ended():
        document = json.loads(called(folder, "jobs", job, "--json"))
        return [execution for execution in document["executions"] if execution["state"] == "done"]

    # The server waits a minute before a retry.
    for _ in range(150):
        if ended():
            break
        time.sleep(2.0)
    assert ended(), called(folder, "jobs", job, "--json")
    (execution,) = ended()
    assert (execution["attempt"], len(execution["runs"])) == (2, 1)
