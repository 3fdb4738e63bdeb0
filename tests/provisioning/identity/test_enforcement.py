"""Making the broker do what the registry says, when that does not work at once; and what is known of its process."""

import os
import time

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import broker_files, enforcement
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates
from edgemeter.provisioning.registry.certificates import EnrolmentToken
from tests.fixtures.rows import table_row
from tests.provisioning.identity.lab import now

SERVER = ServerEntry(broker="x")


def notify_by(lab, command):
    """Let a command notify the broker."""
    text = lab.folder.fleet_file.read_text()
    lab.folder.fleet_file.write_text(text.split("broker_reload")[0].rstrip() + f"\nbroker_reload = {command}\n")


def test_a_broker_elsewhere_that_could_not_be_notified_is_notified_later(lab, tmp_path, monkeypatch):
    """The files changed once, and the command is owed until it succeeds; not run twice a second."""
    notify_by(lab, '["false"]')
    broker_enforcement = Enforcement(lab.folder, lab.registry, broker_files.authority(lab.folder))
    lab.folder.revoked.unlink()
    with pytest.raises(UnavailableError):
        broker_enforcement.enforce(now())
    mark = tmp_path / "told"
    notify_by(lab, f'["touch", "{mark}"]')
    assert broker_enforcement.enforce(now())
    assert not mark.exists()
    monkeypatch.setattr(enforcement.time, "monotonic", lambda real=enforcement.time.monotonic: real() + enforcement.BROKER_RETRY_S)
    assert not broker_enforcement.enforce(now())
    assert mark.exists()


def test_whoever_cannot_be_thrown_out_now_waits(lab):
    """The broker does not answer: it stays on the list, and a broker that starts later knows the device as revoked."""
    lab.token("pi-1")
    lab.run("revoke", "pi-1")
    assert certificates.pending_disconnects(lab.registry) == ["pi-1"]
    assert '"pi-1"' in lab.folder.broker_access.read_text()


@pytest.mark.mosquitto
@pytest.mark.services
def test_a_token_that_another_process_made_delays_no_disconnect(lab):
    """The broker may not know it for half a minute; a board that was replaced meanwhile is disconnected at once."""
    lab.broker.start()
    lab.stack.callback(lab.broker.kill)
    broker_enforcement = Enforcement(lab.folder, lab.registry, broker_files.authority(lab.folder))
    broker_enforcement.enforce(now())
    with lab.registry.transaction() as connection:
        token = EnrolmentToken("0" * 32, broker_files.hash_password("x"), "pi-1", "lab", time.time_ns(), time.time_ns() + 10**12)
        certificates.put_token(connection, token)
    assert broker_enforcement.enforce(now())
    with lab.registry.transaction() as connection:
        certificates.put_pending_disconnect(connection, "pi-2", time.time_ns())
    broker_enforcement.enforce(now())
    assert certificates.pending_disconnects(lab.registry) == []


@pytest.fixture
def folder(tmp_path):
    """Return a fleet's folder with a place for the broker."""
    fleet = FleetFolder(tmp_path)
    fleet.broker.mkdir()
    return fleet


def test_without_a_process_of_its_own_no_broker_is_running(folder):
    """No file, an empty one, a number that is no process of ours, or that of another program."""
    for text in (None, "", "x", "0", "1", "-1", "99999999999", str(os.getpid())):
        with table_row(text):
            if text is not None:
                (folder.broker / "mosquitto.pid").write_text(text)
            assert enforcement.broker_process(folder, SERVER) is None


def test_a_command_brings_the_files_elsewhere(tmp_path):
    """And one that fails or is not there is one line."""
    mark = tmp_path / "told"
    enforcement.run_reload_command(ServerEntry(broker="x", broker_reload=("touch", str(mark))))
    assert mark.exists()
    for command in (("false",), (str(tmp_path / "absent"),)):
        with pytest.raises(UnavailableError, match="broker_reload"):
            enforcement.run_reload_command(ServerEntry(broker="x", broker_reload=command))
