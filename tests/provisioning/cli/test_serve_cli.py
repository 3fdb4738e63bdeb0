"""`fleet serve`: its broker may come up after it."""

import os
import signal
import subprocess
import sys

import pytest

from tests.fixtures.mqtt_peer import Peer
from tests.fixtures.servers import LOOPBACK, address_of, mosquitto

pytestmark = pytest.mark.mosquitto


@pytest.fixture
def broker(tmp_path):
    """Return a broker that is not started yet."""
    server = mosquitto(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def command(tmp_path, broker):
    """Return the command that serves the fleet."""
    (tmp_path / "fleet").mkdir()
    words = ["fleet", "--folder", str(tmp_path / "fleet"), "serve", "--broker", f"{LOOPBACK}:{broker.port}"]
    return [sys.executable, "-m", "edgemeter.agent.cli.main", *words]


@pytest.fixture
def service(command):
    """Return the service, started while there is no broker."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def await_service(service):
    """Return when the service says that it serves, before or after its first look at what is open."""
    lines = [service.stderr.readline()]
    while lines[-1] and "serving the fleet" not in lines[-1]:
        lines.append(service.stderr.readline())
    assert "retrying" not in "".join(lines[1:])
    assert "serving the fleet" in lines[-1]


def test_a_service_that_waits_for_its_broker_ends_on_a_signal(service):
    """By SIGTERM, with status 0, and it never reports that it serves."""
    assert "retrying" in service.stderr.readline()
    service.send_signal(signal.SIGTERM)
    assert service.wait(150) == 0
    assert service.stderr.read() == ""


def test_a_second_service_of_one_fleet_is_refused(service, broker, command):
    """The two would throw each other out of the broker for ever; when the first has gone, however it went, the next one serves.

    The first waits for a broker that is not up yet, and reports that once.
    """
    assert "retrying until it answers" in service.stderr.readline()
    broker.start()
    await_service(service)
    second = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert second.returncode == 1
    assert "another service is running for the fleet" in second.stderr
    assert "Traceback" not in second.stderr
    service.kill()
    service.wait()
    third = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        await_service(third)
    finally:
        third.kill()
        third.communicate()


def test_a_bad_board_fills_no_disk(service, broker):
    """A thousand garbled messages of one board are a line of each module, and another board's trouble is still reported."""
    broker.start()
    await_service(service)
    board = Peer(address_of(broker))
    for _ in range(500):
        board.session.publish("edgemeter/v1/lab/bad/job", os.urandom(8))
        board.session.publish("edgemeter/v1/lab/bad/health", b"{")
    board.session.publish("edgemeter/v1/lab/other/health", b"{")
    lines = []
    while not lines or "lab/other" not in lines[-1]:
        lines.append(service.stderr.readline())
    board.close()
    assert sum("lab/bad" in line for line in lines) == 1
