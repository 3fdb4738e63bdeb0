"""Making the broker do what the registry says, when that does not work at once; and what is known of its process."""

import json
import logging
import os
from datetime import datetime, timezone

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import broker_files, enforcement
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.inventory.fleet_file import ServerEntry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import EnrolmentToken
from edgemeter.provisioning.registry.devices import Device
from tests.fixtures.rows import table_row
from tests.provisioning.identity.plugin import Plugin

SERVER = ServerEntry(broker="x")
BEGIN_S = 1_700_000_000
NS = 1_000_000_000


class Enforced:
    """What keeps a broker up to date, and the broker's plug-in; the test moves both clocks."""

    def __init__(self, lab, monkeypatch):
        self.lab, self.plugin, self.passed_s = lab, Plugin(), 0.0
        self._answers = False
        monkeypatch.setattr(enforcement, "BrokerAccess", self._connect)
        self.enforcement = Enforcement(lab.folder, lab.registry, broker_files.authority(lab.folder), clock=lambda: self.passed_s)

    def _connect(self, address):
        if not self._answers:
            raise UnavailableError("no broker answers")
        return self.plugin.access(address)

    def starts(self):
        """Let the broker start, and know what its file holds."""
        self._answers = True
        for client in json.loads(self.lab.folder.broker_access.read_text())["clients"]:
            self.plugin.clients[client["username"]] = {"roles": [role["rolename"] for role in client["roles"]]}

    def passes(self, seconds=0.0):
        """Let time pass, and bring the broker up to date; return whether something is left to do."""
        self.passed_s += seconds
        return self.enforcement.enforce(datetime.fromtimestamp(BEGIN_S + self.passed_s, timezone.utc))

    def write(self, put, *values):
        """Change the registry as another process does."""
        with self.lab.registry.transaction() as connection:
            put(connection, *values)


@pytest.fixture
def enforced(lab, monkeypatch):
    """Return a fleet whose broker does not run."""
    return Enforced(lab, monkeypatch)


def test_a_broker_that_does_not_run_finds_in_its_file_what_changed(enforced):
    """Who cannot be thrown out now waits, and is thrown out when it runs; it is asked again after a second, two, four."""
    assert not enforced.passes()
    enforced.write(devices.put, Device("pi-1", "lab", trust="revoked", changed_ns=BEGIN_S * NS))
    enforced.write(certificates.put_pending_disconnect, "pi-1", 1)
    assert enforced.passes(40)
    assert '"pi-1"' in enforced.lab.folder.broker_access.read_text()
    enforced.starts()
    assert enforced.passes()
    assert certificates.pending_disconnects(enforced.lab.registry) == ["pi-1"]
    assert not enforced.passes(2)
    assert certificates.pending_disconnects(enforced.lab.registry) == []
    assert enforced.plugin.names() == {"pi-1"}
    ((topic, payload),) = enforced.plugin.retained.items()
    assert (topic, json.loads(payload)["state"]) == ("edgemeter/v1/lab/pi-1/state", "revoked")


def test_a_token_that_another_process_made_delays_no_disconnect(enforced, caplog):
    """The broker may not know it for half a minute; then it is named. It is no longer open when its time is over."""
    enforced.starts()
    enforced.passes()
    made_ns = BEGIN_S * NS
    token = EnrolmentToken("0" * 32, broker_files.hash_password("x"), "pi-1", "lab", made_ns, made_ns + 100 * NS)
    enforced.write(certificates.put_token, token)
    enforced.write(certificates.put_pending_disconnect, "pi-2", 1)
    assert enforced.passes(1)
    assert certificates.pending_disconnects(enforced.lab.registry) == []
    assert enforced.plugin.retained == {}
    enforced.passes(31)
    assert [record.levelno for record in caplog.records if "'pi-1'" in record.message] == [logging.WARNING]
    enforced.plugin.clients["0" * 32] = {"roles": ["token"]}
    enforced.passes(67)
    assert "0" * 32 in enforced.plugin.clients
    enforced.passes(1)
    assert "0" * 32 not in enforced.plugin.clients


def test_a_ban_ends_by_itself(enforced):
    """A banned device is denied everything and said to be offline; a minute later it may come back."""
    enforced.starts()
    enforced.passes()
    enforced.write(lambda connection: certificates.ban_device(connection, enforced.lab.registry, "pi-1", "why", BEGIN_S * NS))
    enforced.passes(1)
    assert enforced.plugin.clients["pi-1"]["disabled"]
    enforced.passes(58)
    assert enforced.plugin.names() == {"pi-1"}
    enforced.passes(1)
    assert enforced.plugin.names() == set()


@pytest.mark.services
def test_a_command_brings_the_files_elsewhere_until_it_succeeds(enforced, tmp_path):
    """One that fails is an error and is owed, though the files changed once; not run at each poll."""
    mark, fleet_toml = tmp_path / "told", enforced.lab.folder.fleet_file
    text = fleet_toml.read_text().rstrip()
    for command in ('["false"]', f'["{tmp_path / "absent"}"]'):
        fleet_toml.write_text(f"{text}\nbroker_reload = {command}\n")
        enforced.lab.folder.revoked.unlink(missing_ok=True)
        with pytest.raises(UnavailableError, match="broker_reload"):
            enforced.passes(60)
    fleet_toml.write_text(f'{text}\nbroker_reload = ["touch", "{mark}"]\n')
    assert enforced.passes()
    assert not mark.exists()
    assert not enforced.passes(60)
    assert mark.exists()


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


def test_limits_that_are_too_low_are_named(folder, monkeypatch):
    """Those of the service and of the broker's process, as strangers' silent connections would take what is left."""
    monkeypatch.setattr(enforcement.resource, "getrlimit", lambda _: (1024, 1024))
    assert ["1,024" in issue for issue in enforcement.low_limits(folder, SERVER)] == [True]
    process = folder.path / "proc" / "77"
    process.mkdir(parents=True)
    (folder.broker / "mosquitto.pid").write_text("77\n")
    (process / "comm").write_text("mosquitto\n")
    monkeypatch.setattr(enforcement.resource, "getrlimit", lambda _: (65536, 65536))
    for limit, count in ((4095, 1), (4096, 0)):
        (process / "limits").write_text(f"Max processes  1  1  processes\nMax open files            {limit}       524288          files\n")
        assert len(enforcement.low_limits(folder, SERVER, folder.path / "proc")) == count
