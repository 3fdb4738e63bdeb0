"""The whole way of health: a real agent, a real broker, the fleet's service, and what `edgemeter fleet list` shows."""

import json
import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from click.testing import CliRunner

from edgemeter.agent.contract import messages
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.receive.service import Collector
from edgemeter.provisioning.cli.main import fleet
from edgemeter.provisioning.health.health_handler import FleetHealthHandler
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve import handler, service
from tests.fixtures.fleet_command import run_fleet
from tests.fixtures.fleet_key import give_board
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.servers import address_of, mosquitto

pytestmark = [pytest.mark.mosquitto, pytest.mark.services]


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
    deadline = time.monotonic() + 450
    registry = Registry(folder.registry, "read")
    try:
        while time.monotonic() < deadline:
            presence = devices.find_presence(registry, "pi-1")
            if presence is not None and fits(presence):
                return presence
            time.sleep(0.1)
    finally:
        registry.close()
    pytest.fail(f"pi-1 said {presence}")


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


def test_what_a_device_measures_is_listed_until_it_is_gone(served, broker, tmp_path):
    """Over a real broker to the fleet's service and to a collector: a run begins, the next one does, the line breaks."""
    ledger = tmp_path / "ledger.sqlite"
    collecting = Collector(address_of(broker), ledger)
    collecting.start()
    peer = Peer(address_of(broker), client_id="pi-1")

    def says(kind, message):
        peer.session.publish(f"edgemeter/v1/lab/pi-1/{kind}", messages.encode_message(message), lasting="retained")

    def listed():
        (line,) = json.loads(run_fleet(served.path, "list", "--json").stdout)["devices"]
        document = json.loads(CliRunner().invoke(collector, ["devices", "--json", "--ledger", str(ledger)], catch_exceptions=False).stdout)
        return line["measuring"], document["devices"][0]["measuring"] if document["devices"] else None

    try:
        says("state", messages.DeviceState(state="online", session=5))
        for run in (3, 4):
            now = messages.Measuring(suite="nightly", case="tiny litert", run=run, runs=12)
            says("activity", messages.Activity(session=5, measuring=now))
            assert wait_until(lambda run=run: all(measuring is not None and measuring["run"] == run for measuring in listed()), 60)
        text = CliRunner().invoke(fleet, ["--folder", str(served.path), "list"], env={"COLUMNS": "200"}).stdout
        assert "run 4 of 12" in text
        text = CliRunner().invoke(fleet, ["--folder", str(served.path), "show", "pi-1"], env={"COLUMNS": "200"}).stdout
        assert "tiny litert: run 4 of 12 of suite nightly" in text
        says("state", messages.DeviceState(state="lost", session=5))
        assert wait_until(lambda: listed() == (None, None), 60)
    finally:
        peer.session.close()
        collecting.stop()
