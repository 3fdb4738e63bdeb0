"""The broker's files: the fleet's ACL and the single lab's are one set of rules, and passwords are hashed as mosquitto does."""

import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter import collector
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from tests.fixtures.servers import Server

SHIPPED = Path(collector.__file__).parent / "deploy"


def rules(text):
    """Return who may do what: (user or None, line)."""
    lines, user = set(), None
    for line in text.splitlines():
        if line.startswith("user "):
            user = line.removeprefix("user ")
        elif line.strip() and not line.startswith("#"):
            lines.add((None if line.startswith("pattern") else user, line))
    return lines


def test_the_fleets_rules_are_the_labs_and_those_of_enrolment():
    """Neither has a rule that the other lacks, but for joining, what is measured now, and that a lab's broker serves any fleet."""
    fleet_rules, lab_rules = rules(broker_files.access_rules(["+"])), rules((SHIPPED / "acl").read_text())
    assert lab_rules - fleet_rules == set()
    assert fleet_rules - lab_rules == {
        (broker_files.SERVICE_USER, "topic read edgemeter/enrol/+/request"),
        (broker_files.SERVICE_USER, "topic write edgemeter/enrol/+/answer"),
        (broker_files.SERVICE_USER, "topic read edgemeter/v1/+/+/activity"),
        (None, "pattern write edgemeter/enrol/%u/request"),
        (None, "pattern read edgemeter/enrol/%u/answer"),
        (broker_files.SERVICE_USER, "topic read $SYS/broker/log/#"),
    }


def test_the_fleets_broker_has_the_labs_settings(tmp_path):
    """All but paths, and what has moved into a listener of its own."""

    def settings(text):
        lines = {line for line in text.splitlines() if line.strip() and not line.startswith("#")}
        return {line for line in lines if "/" not in line}

    text = broker_files.configuration(FleetFolder(tmp_path), ServerEntry(broker="x"))
    fleet_settings = settings(text)
    # Strangers at the port for tokens leave room for devices, also where the process may open the usual 1,024 files.
    assert text.count("\nlistener ") == text.count("\nmax_connections ") == 2
    assert broker_files.MOST_TOKENS < 512
    assert settings((SHIPPED / "mosquitto.conf").read_text()) - fleet_settings == set()


# Strangers in a process of their own: `select`, which clients wait with, knows 1,024 files.
SILENT = """
import socket, sys
connections = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) for _ in range(1100)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.mosquitto
@pytest.mark.needs("prlimit")
def test_silent_connections_to_the_port_for_tokens_leave_the_devices_theirs(broker_lab):
    """1,100 of them, at a broker with the usual limit of 1,024 open files: a board with a certificate is served."""
    lab = broker_lab
    limited = ["prlimit", "--nofile=1024:1024", *lab.broker.command]
    lab.__dict__["broker"] = Server(limited, lab.port, lab.enrol_port)
    lab.start()
    board = lab.joined()
    with subprocess.Popen([sys.executable, "-c", SILENT, str(lab.enrol_port)], stdout=subprocess.PIPE, stdin=subprocess.PIPE) as strangers:
        assert strangers.stdout.readline() == b"ready\n"
        assert board.client("pi-1").session.is_connected()
        strangers.stdin.close()
