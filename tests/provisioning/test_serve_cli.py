"""`fleet serve`: its broker may come up after it."""

import signal
import subprocess
import sys

import pytest

from tests.fixtures.servers import LOOPBACK, mosquitto

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def broker(tmp_path):
    """Return a broker that is not started yet."""
    server = mosquitto(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def service(tmp_path, broker):
    """Return the service, started while there is no broker."""
    (tmp_path / "fleet").mkdir()
    command = [sys.executable, "-m", "edgemeter.agent.cli", "fleet", "serve", "--folder", str(tmp_path / "fleet")]
    process = subprocess.Popen([*command, "--broker", f"{LOOPBACK}:{broker.port}"], stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_a_broker_that_is_not_there_yet_is_waited_for(service, broker):
    """It is said once; the service begins when the broker is there."""
    assert "trying again until it is there" in service.stderr.readline()
    broker.start()
    assert "serving the fleet" in service.stderr.readline()


def test_a_service_that_waits_for_its_broker_ends_when_it_is_told_to(service):
    """By SIGTERM, with status 0, and it never says that it serves."""
    assert "trying again" in service.stderr.readline()
    service.send_signal(signal.SIGTERM)
    assert service.wait(30) == 0
    assert service.stderr.read() == ""
