"""`fleet serve` as a process: its broker may come up after it, and another service is refused."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.fixtures.mqtt_peer import Peer
from tests.fixtures.servers import LOOPBACK, address_of, mosquitto
from tests.provisioning.identity.lab import Lab

pytestmark = pytest.mark.mosquitto


class Served:
    """A fleet's folder, its broker, not started, and services that end with the test."""

    def __init__(self, path, stack):
        self.stack = stack
        self.folder = Lab(path, stack).folder
        self.broker = mosquitto(path)
        stack.callback(self.broker.kill)
        words = [
            "fleet",
            "--folder",
            str(self.folder.path),
            "serve",
            "--broker",
            f"{LOOPBACK}:{self.broker.port}",
        ]
        self.command = [sys.executable, "-m", "edgemeter.agent.cli.main", *words]

    def start(self):
        process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        self.stack.callback(process.communicate)
        self.stack.callback(process.kill)
        return process


@pytest.fixture
def served(tmp_path):
    with ExitStack() as stack:
        yield Served(tmp_path, stack)


def lines_until(service, text):
    lines = [service.stderr.readline()]
    while lines[-1] and text not in lines[-1]:
        lines.append(service.stderr.readline())
    assert text in lines[-1]
    return lines


def test_a_second_service_of_one_fleet_is_refused(served):
    """A second service of a fleet is refused until the first has ended, however it ended.

    The first one waits for a broker that is not up yet, and reports that once.
    """
    service = served.start()
    assert "retrying until it answers" in service.stderr.readline()
    served.broker.start()
    lines_until(service, "serving the fleet")
    second = subprocess.run(
        served.command, capture_output=True, text=True, timeout=300, check=False
    )
    assert second.returncode == 1
    assert "another service is running for the fleet" in second.stderr
    service.kill()
    service.wait()
    third = served.start()
    lines_until(third, "serving the fleet")
    third.send_signal(signal.SIGTERM)
    assert third.wait(150) == 0


def test_a_broker_that_resumes_sessions_is_named_at_the_start(broker_lab):
    """The service warns of a broker that resumes TLS sessions, and serves all the same.

    Such a broker was started without the settings that its unit gives to OpenSSL.
    """
    broker_lab.broker.command = broker_lab.broker.command[2:]
    broker_lab.start_broker()
    command = [
        sys.executable,
        "-m",
        "edgemeter.agent.cli.main",
        "fleet",
        "--folder",
        str(broker_lab.folder.path),
        "serve",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        lines = lines_until(service, "serving the fleet")
        service.kill()
    assert [line for line in lines if "resumes TLS sessions" in line and "openssl.cnf" in line]


def test_a_bad_board_fills_no_disk(served):
    """A thousand garbled messages from one board give one line of the log for each module."""
    served.broker.start()
    service = served.start()
    lines_until(service, "serving the fleet")
    board = Peer(address_of(served.broker))
    for _ in range(500):
        board.session.publish("edgemeter/v1/lab/bad/job", os.urandom(8))
        board.session.publish("edgemeter/v1/lab/bad/health", b"{")
    board.session.publish("edgemeter/v1/lab/other/health", b"{")
    lines = lines_until(service, "lab/other")
    board.close()
    assert sum("lab/bad" in line for line in lines) == 1
