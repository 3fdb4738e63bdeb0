"""The whole way of health: a real agent, a real broker, the fleet's service, and what `edgemeter fleet list` shows."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from edgemeter.provisioning.health.health_handler import FleetHealthHandler
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve import handler, service
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.fleet_key import give_board
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import address_of, mosquitto

pytestmark = pytest.mark.mosquitto


class Board:
    """The agent that stays, as a process of its own."""

    def __init__(self, home, broker):
        self.home = home
        self.orders = msgspec.json.encode(
            {"device": "pi-1", "fleet": "lab", "broker": str(address_of(broker)), "config": None, "files": {}}
        ).decode()
        self.process = None

    def start(self):
        """Begin to stay."""
        command = [sys.executable, "-m", "edgemeter.agent.daemon", self.orders]
        self.process = subprocess.Popen(command, env={**os.environ, "EDGEMETER_HOME": str(self.home)}, stderr=subprocess.DEVNULL)

    def end(self, number):
        """End it by a signal."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=300)
            self.process = None


@pytest.fixture
def broker(tmp_path):
    """Serve a real mosquitto."""
    server = mosquitto(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def served(broker, tmp_path, monkeypatch):
    """Serve a fleet with its handler for health."""
    monkeypatch.setattr(
        handler, "make_handlers", lambda folder, registry, publish: {"health": FleetHealthHandler(folder, registry, publish)}
    )
    folder = FleetFolder(tmp_path / "fleet")
    folder.path.mkdir()
    folder.fleet_file.write_text('fleet = "lab"\n[device.pi-1]\nboard = "pi5"\n')
    fleet_service = service.FleetService(folder, address_of(broker))
    fleet_service.start()
    yield folder
    fleet_service.stop()


@pytest.fixture
def board(broker, tmp_path):
    """Return a board whose agent is not there yet."""
    board = Board(give_board(tmp_path / "home"), broker)
    yield board
    board.end(signal.SIGKILL)


def until(folder, fits):
    """Return what pi-1 last said, once it fits."""
    with Registry(folder.registry, "read") as registry:
        assert wait_until(lambda: presence_of(registry) is not None and fits(presence_of(registry))), presence_of(registry)
        return presence_of(registry)


def presence_of(registry):
    """Return what pi-1 last said."""
    return devices.find_presence(registry, "pi-1")


def test_a_device_reports_its_status_and_how_it_ended_before(served, board):
    """First there was none; then it was killed, and reports it; then it got a signal."""
    board.start()
    first = until(served, lambda presence: presence.state == "online" and presence.health is not None)
    assert first.health.last_words.kind == "first"
    board.end(signal.SIGKILL)
    assert until(served, lambda presence: presence.state == "lost").session == first.session
    board.start()
    second = until(served, lambda presence: presence.health.session != first.session)
    assert second.health.last_words.kind in {"killed", "unknown"}
    (line,) = json.loads(run_fleet(served.path, "list", "--json").stdout)["devices"]
    assert (line["device"], line["presence"], line["agent"]) == ("pi-1", "online", second.health.agent)
    board.end(signal.SIGTERM)
    until(served, lambda presence: presence.state == "offline")
    board.start()
    third = until(served, lambda presence: presence.health.session != second.health.session)
    assert third.health.last_words.kind == "clean"
