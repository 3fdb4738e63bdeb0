"""One real device, `edgemeter agent up`, with the real service and collector: a suite ordered, its model fetched, measured, delivered."""

import json
import subprocess

import pytest

from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.registry import Registry
from tests.chaos.supervised import Supervised
from tests.fixtures.fleet_key import give_board, give_service
from tests.fixtures.servers import LOOPBACK, mosquitto
from tests.fleet.fleet_world import EDGEMETER

SUITE = """
name = "replayed"
[[case]]
model = "m.replay.json"
queries = 16
seconds = 0.0
repeats = 2
mode = "rapid"
agreement = "never"
"""
MODEL = {
    "format": "edgemeter-replay",
    "schema": 1,
    "latencies_ms": [1.0],
    "inputs": [{"name": "x", "shape": [1, 2], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}],
}


@pytest.fixture
def lab(tmp_path):
    """Return the fleet's folder, with service, collector and one device up."""
    broker = mosquitto(tmp_path)
    broker.start()
    address = f"mqtt://{LOOPBACK}:{broker.port}"
    folder = give_service(FleetFolder(tmp_path / "fleet"))
    registry = Registry(folder.registry)
    with registry.transaction() as connection:
        devices.put(connection, Device("pi", "lab", "1", "pi5", (), "accepted", 1, 1))
    registry.close()
    (tmp_path / "config.toml").touch()
    home = {"EDGEMETER_HOME": str(give_board(tmp_path / "home"))}
    agent = [*EDGEMETER, "agent", "up", "--broker", address, "--device", "pi", "--fleet", "lab", "--config", str(tmp_path / "config.toml")]
    processes = [
        Supervised("service", [*EDGEMETER, "fleet", "--folder", str(folder.path), "serve", "--broker", address], tmp_path / "service.log"),
        Supervised(
            "collector", [*EDGEMETER, "collector", "up", "--broker", address, "--ledger", str(tmp_path / "ledger")], tmp_path / "c.log"
        ),
        Supervised("agent", agent, tmp_path / "agent.log", home),
    ]
    for process in processes:
        process.start()
    yield folder
    for process in processes:
        process.stop()
    broker.kill()


@pytest.mark.services
@pytest.mark.mosquitto
def test_a_suite_is_ordered_measured_and_delivered(lab, tmp_path):
    """The runs that the device names are in the ledger; the model came by hash, from the fleet's content."""
    (tmp_path / "suite.toml").write_text(SUITE)
    (tmp_path / "m.replay.json").write_text(json.dumps(MODEL))
    command = [
        *EDGEMETER,
        "fleet",
        "--folder",
        str(lab.path),
        "run",
        str(tmp_path / "suite.toml"),
        "--on",
        "pi",
        "--json",
        "--timeout",
        "200",
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    (execution,) = json.loads(completed.stdout)["executions"]
    logs = "\n".join((tmp_path / f"{name}.log").read_text()[-2000:] for name in ("agent", "service"))
    assert (completed.returncode, execution["state"], len(execution["runs"])) == (0, "done", 2), (execution, completed.stderr, logs)
    listed = subprocess.run(
        [*EDGEMETER, "collector", "devices", "--ledger", str(tmp_path / "ledger"), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    (device,) = json.loads(listed.stdout)["devices"]
    assert (device["device"], device["records"], device["missing"]) == ("pi", 2, 0)
