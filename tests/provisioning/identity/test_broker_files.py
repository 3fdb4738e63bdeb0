"""The broker's files: the fleet's rules and settings are those of a single lab's broker."""

from pathlib import Path

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


def test_the_fleets_rules_are_the_labs():
    """The broker's rules of a fleet are those of the lab, and two more for the service.

    These let the service read what is measured now, and the broker's log.
    """
    fleet_rules, lab_rules = (
        rules(broker_files.access_rules(["+"])),
        rules((SHIPPED / "acl").read_text()),
    )
    assert lab_rules - fleet_rules == set()
    assert fleet_rules - lab_rules == {
        (broker_files.SERVICE_USER, "topic read edgemeter/v1/+/+/activity"),
        (broker_files.SERVICE_USER, "topic read $SYS/broker/log/#"),
    }


def test_the_fleets_broker_has_the_labs_settings(tmp_path):
    """The broker's settings of a fleet and of the lab agree in all but paths."""

    def settings(text):
        lines = {line for line in text.splitlines() if line.strip() and not line.startswith("#")}
        return {line for line in lines if "/" not in line}

    fleet_settings = settings(
        broker_files.configuration(FleetFolder(tmp_path), ServerEntry(broker="x"))
    )
    assert settings((SHIPPED / "mosquitto.conf").read_text()) - fleet_settings == set()
