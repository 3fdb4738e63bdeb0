"""Strangers at open ports: silent connections take no room from devices, and limits that are too low are named."""

import subprocess
import sys

import pytest

from edgemeter.provisioning.identity import broker_files, enforcement
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.servers import Server

# Strangers in a process of their own: `select`, which clients wait with, knows 1,024 files.
SILENT = """
import socket, sys
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) for _ in range(1100)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.mosquitto
@pytest.mark.needs("prlimit")
@pytest.mark.services
def test_silent_connections_to_the_port_for_tokens_leave_the_devices_theirs(lab):
    """1,100 of them, at a broker with the usual limit of 1,024 open files: a board with a certificate is served."""
    board_limit = ["prlimit", "--nofile=1024:1024", *lab.broker.command]
    lab.__dict__["broker"] = Server(board_limit, lab.port, lab.enrol_port)
    lab.start()
    board = lab.joined()
    with subprocess.Popen([sys.executable, "-c", SILENT, str(lab.enrol_port)], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as strangers:
        assert strangers.stdout.readline() == b"ready\n"
        assert board.client("pi-1").session.is_connected()
        strangers.stdin.close()


def test_limits_that_are_too_low_are_named_with_the_remedy(tmp_path, monkeypatch):
    """Those of the service and of the broker's process; a broker elsewhere is not looked at."""
    folder, server = FleetFolder(tmp_path), ServerEntry(broker="x")
    monkeypatch.setattr(enforcement.resource, "getrlimit", lambda _: (1024, 1024))
    assert ["the service may open 1,024 files" in issue for issue in enforcement.low_limits(folder, server)] == [True]
    process = tmp_path / "proc" / "77"
    process.mkdir(parents=True)
    folder.broker.mkdir()
    (folder.broker / "mosquitto.pid").write_text("77\n")
    (process / "comm").write_text("mosquitto\n")
    (process / "limits").write_text(
        "Max processes  1  1  processes\nMax open files            1024                 524288               files\n"
    )
    monkeypatch.setattr(enforcement.resource, "getrlimit", lambda _: (65536, 65536))
    (issue,) = enforcement.low_limits(folder, server, tmp_path / "proc")
    assert "the broker may hold 1,024 connections only" in issue
    assert "ulimit -n 65536" in issue


def test_every_listener_has_a_limit(tmp_path):
    """That of the port for tokens leaves the devices room even where the process may open 1,024 files."""
    text = broker_files.configuration(FleetFolder(tmp_path), ServerEntry(broker="x"))
    assert text.count("\nlistener ") == text.count("\nmax_connections ") == 2
    assert broker_files.MOST_TOKENS < 512
