"""Tests of jobs share a broker, the server's end, and an agent that stays."""

import os
import subprocess
import sys

import pytest

from tests.agent.jobs.driver import Driver
from tests.agent.jobs.fleet_server import DEVICE, FLEET, LONG_S, FleetServer, file_server
from tests.fixtures.fleet_key import give_board
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.servers import address_of, mosquitto


@pytest.fixture
def broker(tmp_path):
    server = mosquitto(tmp_path, "set_tcp_nodelay true")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(broker, tmp_path):
    fleet_server = FleetServer(address_of(broker), tmp_path / "service")
    yield fleet_server
    fleet_server.close()


class Agent:
    """An agent that stays in a process of its own, as a service manager starts it."""

    def __init__(self, home, broker, server, content_url):
        self.home = home
        self._server = server
        self.config = home / "config.toml"
        self.config.write_text(
            f'device = "{DEVICE}"\nfleet = "{FLEET}"\nbroker = "127.0.0.1:{broker.port}"\n'
            f'content_url = "{content_url}"\nunconfined_orders = "allow"\n'
        )
        self.process = None
        self.log = home / "agent.log"

    def start(self):
        challenges = self._server.challenges
        self.begin()
        assert wait_until(lambda: self._server.challenges > challenges, LONG_S), (
            self.log.read_text()
        )

    def begin(self):
        # INVOCATION_ID is how systemd names this start: somebody starts it again.
        variables = {"EDGEMETER_HOME": str(self.home), "INVOCATION_ID": "test"}
        command = [
            sys.executable,
            "-m",
            "edgemeter.agent.cli.main",
            "agent",
            "up",
            "--config",
            str(self.config),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=os.environ | variables, stderr=log, stdout=log
            )

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def agent(tmp_path, broker, server):
    home = give_board(tmp_path / "home")
    with file_server(server.content) as content_url:
        new_agent = Agent(home, broker, server, content_url)
        yield new_agent
        new_agent.kill()


@pytest.fixture
def device(tmp_path):
    home = tmp_path / "device"
    home.mkdir()
    driver = Driver(home)
    yield driver
    driver.stop()
