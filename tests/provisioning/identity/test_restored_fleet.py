"""A fleet that comes back from a tar of its folder: boards enrolled since are marked and taken."""

import json
import subprocess
import time
from contextlib import ExitStack

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.messages import DeviceState, Topic, encode_message
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.service import FleetService
from tests.fixtures.fleet_command import run_fleet
from tests.provisioning.identity.lab import FLEET, Lab

pytestmark = [pytest.mark.mosquitto, pytest.mark.needs("openssl"), pytest.mark.slow]


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    """Return a lab whose broker still runs, and the folder restored from the backup before pi-2 was enrolled."""
    path = tmp_path_factory.mktemp("restored")
    with ExitStack() as stack:
        lab = Lab(path, stack)
        lab.broker.start()
        stack.callback(lab.broker.kill)
        service = lab.serve()
        boards = {"pi-1": lab.joined("pi-1", "1001")}
        lab.run("token", "pi-2", "--output", path / "early")
        service.stop()
        # As docs/tasks/fleet-keys.md does, without age.
        leaving = ["--exclude", "./content", "--exclude", "./broker/data"]
        packed = subprocess.run(["tar", "-C", lab.folder.path, *leaving, "-cf", "-", "."], check=True, capture_output=True).stdout
        service = lab.serve()
        boards["pi-2"] = lab.board("pi-2", "1002")
        boards["pi-2"].join(path / "early/pi-2.join.toml")
        boards["pi-4"] = lab.joined("pi-4", "1004")
        service.stop()
        folder = FleetFolder(path / "again")
        folder.path.mkdir()
        subprocess.run(["tar", "-C", folder.path, "-xf", "-"], input=packed, check=True)
        run_fleet(folder.path, "init")
        address = fleet_file.fleet_broker_address(folder)
        service = FleetService(folder, address)
        service.start()
        stack.callback(service.stop)
        yield lab, folder, boards


def noted(folder, device):
    """Return how `fleet list` marks a device, None where it does not."""
    entries = {entry["device"]: entry for entry in json.loads(run_fleet(folder.path, "list", "--json").stdout)["devices"]}
    return next((issue["text"] for issue in entries.get(device, {}).get("concerns", ()) if issue["kind"] == "asks"), None)


def await_note(folder, device):
    """Return the mark of a device once there is one."""
    deadline = time.monotonic() + 60
    while (text := noted(folder, device)) is None:
        assert time.monotonic() < deadline, device
        time.sleep(0.2)
    return text


def report(board, device, serial):
    """Let a board report its state and health."""
    peer = board.client(device)
    health = Health(device=device, fleet=FLEET, session=7, told_ns=time.time_ns(), agent="1", serial=serial)
    peer.session.publish(str(Topic(FLEET, device, "state")), encode_message(DeviceState(state="online", session=7)))
    peer.session.publish(str(Topic(FLEET, device, "health")), encode_message(health))


def test_boards_enrolled_since_are_marked_and_accepted(restored):
    """One that the registry never heard of, and one that it expects still: both report, are accepted, and have their serial again."""
    lab, folder, boards = restored
    for device, serial in (("pi-2", "1002"), ("pi-4", "1004")):
        report(boards[device], device, serial)
        assert "enrolled after the backup" in await_note(folder, device)
        assert "accepted" in run_fleet(folder.path, "requests", "accept", device).stdout
        assert noted(folder, device) is None
    with Registry(folder.registry, "read") as registry:
        assert {device.device: (device.trust, device.serial) for device in devices.read(registry)}.items() >= {
            ("pi-2", ("accepted", "1002")),
            ("pi-4", ("accepted", "1004")),
        }
    assert lab.path.exists()


def test_a_board_does_not_take_the_serial_of_another(restored):
    """What it reports of itself is its own word."""
    lab, folder, _ = restored
    board = lab.board("pi-6", "1006")
    run_fleet(folder.path, "token", "pi-6", "--output", lab.path / "late")
    board.join(lab.path / "late/pi-6.join.toml")
    with Registry(folder.registry) as registry:
        with registry.transaction() as statements:
            statements.execute("DELETE FROM devices WHERE device = 'pi-6'")
        report(board, "pi-6", "1001")
        await_note(folder, "pi-6")
        run_fleet(folder.path, "requests", "accept", "pi-6")
        assert (devices.find(registry, "pi-1").serial, devices.find(registry, "pi-6").serial) == ("1001", None)


def test_any_name_is_revoked_and_names_that_never_reported_are_not_accepted(restored):
    """A board that is off now keeps a valid certificate; a typing error accepts nobody."""
    _, folder, _ = restored
    assert "the registry did not know it" in run_fleet(folder.path, "revoke", "pi-5").stdout
    with pytest.raises(ConfigError, match="no pending request matches 'pi-9', and no board of that name"):
        run_fleet(folder.path, "requests", "accept", "pi-9")
    with pytest.raises(ConfigError, match="cannot be a device's name"):
        run_fleet(folder.path, "revoke", "pi/+")
    with Registry(folder.registry, "read") as registry:
        assert devices.find(registry, "pi-5").trust == "revoked"
