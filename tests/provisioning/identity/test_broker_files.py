"""The broker's files: the fleet's ACL and the single lab's are one set of rules, and passwords are hashed as mosquitto does."""

import base64
import subprocess
from pathlib import Path

import pytest

from edgemeter import collector
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder

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

    fleet_settings = settings(broker_files.configuration(FleetFolder(tmp_path), ServerEntry(broker="x")))
    assert settings((SHIPPED / "mosquitto.conf").read_text()) - fleet_settings == set()


@pytest.mark.mosquitto
def test_a_password_is_hashed_as_mosquitto_does(tmp_path):
    """The same salt gives the line that mosquitto_passwd writes."""
    command = ["mosquitto_passwd", "-c", "-b", tmp_path / "passwords", "claim", "a-token"]
    subprocess.run(command, check=True, capture_output=True)
    name, _, hashed = (tmp_path / "passwords").read_text().strip().partition(":")
    salt = base64.b64decode(hashed.split("$")[3])
    assert (name, broker_files.hash_password("a-token", salt)) == ("claim", hashed)
    assert broker_files.hash_password("a-token") != broker_files.hash_password("a-token")
