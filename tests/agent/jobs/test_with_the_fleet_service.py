"""Facts about both ends together: `edgemeter fleet` commands, the real service, a real broker, and an agent that stays."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.base.mqtt_session import MqttSession, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic, decode_state
from edgemeter.agent.contract.order_suite import SHIPPED
from edgemeter.collector.index.sources import LedgerSource
from edgemeter.collector.receive.service import Collector
from edgemeter.collector.web.activity import read_activities
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.service import FleetService
from tests.agent.jobs.driver import REPLAY, records_in, suite
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


SCENES = SHIPPED.parent / "scenes"
MODEL = "edgemeter-shapes_int8.tflite"
CASE = """
mode = "rapid"
repeats = 1
idle_seconds = 0
data = "scenes/images"
annotations = "scenes/annotations.json"
subset = 24
seed = 3
"""


@pytest.fixture
def scenes(tmp_path):
    """Return a folder with the shipped detector, the shipped scenes, a suite and a campaign over them."""
    scenes_folder = tmp_path / "scenes"
    scenes_folder.mkdir()
    shutil.copytree(SCENES, scenes_folder / "scenes")
    for name in (MODEL, f"{MODEL}.toml"):
        shutil.copy(SHIPPED / name, scenes_folder)
    (scenes_folder / "suite.toml").write_text(f'name = "shapes"\n[[case]]\nmodel = "{MODEL}"\n{CASE}')
    (scenes_folder / "campaign.toml").write_text(
        f'name = "autumn"\non = "all"\nmodels = ["{MODEL}"]\n[[modes]]\nname = "m"\n[modes.case]{CASE}'
    )
    return scenes_folder


def measured_here(scenes):
    """Return what `edgemeter run` on this machine says of the suite."""
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "run", str(scenes / "suite.toml"), "--device", "server-1", "--json"]
    home = {"EDGEMETER_HOME": str(scenes / "home")}
    completed = subprocess.run(command, capture_output=True, env=os.environ | home, check=True)
    (scenes / "here.json").write_bytes(completed.stdout)
    return json.loads(completed.stdout)["runs"]


def measured_there(agent, scenes):
    """Return what the device has in its outbox."""
    runs = records_in(agent.home)
    (scenes / "there.json").write_bytes(msgspec.json.encode({"runs": runs}))
    return runs


@pytest.mark.nightly
@pytest.mark.needs(module="ai_edge_litert")
def test_a_device_measures_the_accuracy_that_is_measured_here(folder, agent, scenes):
    """Photographs by hash: the same AP to the last digit, the same data set and case, so that `compare` sets both side by side."""
    agent.start()
    call = ("run", scenes / "suite.toml", "--on", "all", "--timeout", 600, "--json")
    rehearsed = json.loads(called(folder, *call, "--dry-run"))["contents"]
    (execution,) = json.loads(called(folder, *call))["executions"]
    assert execution["state"] == "done", execution
    local_runs, device_runs = measured_here(scenes), measured_there(agent, scenes)
    assert [run["id"] for run in device_runs] == execution["runs"]
    for key in ("accuracy", "dataset", "case", "suite", "model"):
        assert device_runs[0][key] == local_runs[0][key], key
    assert device_runs[0]["accuracy"]["value"] > 0
    assert device_runs[0]["dataset"]["subset"]["images"] == 24
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "compare", "--reference", "server-1", "--json"]
    stores = [word for name in ("here", "there") for word in ("--ledger", str(scenes / f"{name}.json"))]
    compared = json.loads(subprocess.run([*command, *stores], capture_output=True, check=True).stdout)
    assert {row["device"] for row in compared["rows"]} == {"server-1", DEVICE}, compared["left_out"]
    contents = {path.name.partition(".")[0] for path in (agent.home / "content").iterdir()}
    assert contents == {content["sha256"] for content in rehearsed}


MODES = """name = "autumn"
on = "all"
models = ["m.replay.json"]

[[modes]]
name = "short"
case = {{ mode = "rapid", repeats = 2, queries = 20, seconds = 0, idle_seconds = 0 }}

[[modes]]
name = "long"
case = {{ mode = "rapid", repeats = 2, queries = 20, seconds = {seconds}, idle_seconds = 0 }}
"""


@pytest.fixture
def collector(tmp_path, broker):
    """Return a function that starts a collector of the same ledger, once more after `stop`."""
    running = []

    def start():
        collector = Collector(address_of(broker), tmp_path / "ledger.sqlite")
        collector.start()
        running.append(collector)
        return collector

    yield start
    for collector in running:
        collector.stop()


def begun(folder, tmp_path, seconds):
    """Start a campaign of two modes by its command."""
    (tmp_path / "m.replay.json").write_bytes(REPLAY)
    (tmp_path / "campaign.toml").write_text(MODES.format(seconds=seconds))
    called(folder, "campaign", "start", tmp_path / "campaign.toml")


def activities_in(tmp_path):
    """Return what the page says is measured, by device, and how far campaigns are."""
    activities = read_activities(LedgerSource(tmp_path / "ledger.sqlite"), time.time_ns())
    return {activity.device: activity for activity in activities.devices}, [activity.progress for activity in activities.campaigns]


@pytest.mark.nightly
def test_a_page_follows_a_campaign_run_by_run_and_lets_a_lost_device_go(folder, agent, collector, tmp_path):
    """The run, its job, the campaign's counts; a collector that was away states since when it knows; a killed agent measures nothing."""
    first = collector()
    registry = Registry(folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, Device("pi-away", FLEET, "another", "pi5", (), "accepted", 1, 1))
    registry.close()
    agent.start()
    begun(folder, tmp_path, seconds=60)
    assert wait_until(lambda: DEVICE in activities_in(tmp_path)[0] and activities_in(tmp_path)[1], LONG_S)
    assert wait_until(lambda: activities_in(tmp_path)[1][0].done == 1, LONG_S), activities_in(tmp_path)
    assert wait_until(lambda: activities_in(tmp_path)[0].get(DEVICE) and activities_in(tmp_path)[1][0].running == 1, LONG_S)
    measured, (campaign,) = activities_in(tmp_path)
    now = measured[DEVICE]
    assert now.fleet == FLEET
    assert now.measuring.run == 1
    assert now.measuring.runs == 2
    assert now.is_stale is False
    assert now.measuring.job.startswith("measure-")
    # The other device is away: both of its executions wait.
    assert (campaign.state, campaign.group, campaign.groups) == ("running", 1, 1)
    assert campaign.done == 1
    assert campaign.running == 1
    assert campaign.waiting == 2
    assert campaign.failed == 0
    assert campaign.total == 4
    first.stop()
    collector()
    assert wait_until(lambda: activities_in(tmp_path)[0].get(DEVICE) == now, LONG_S)
    agent.kill()
    assert wait_until(lambda: DEVICE not in activities_in(tmp_path)[0], LONG_S)
