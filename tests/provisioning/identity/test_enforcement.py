"""Tests of how the broker is made to do what the registry says, when that fails at first.

Others are about what is known of the broker's process.
"""

import json
import os
import time
from datetime import datetime, timezone

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.identity import authority, broker_files, enforcement
from edgemeter.provisioning.identity.enforcement import Enforcement
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.certificates import Certificate
from edgemeter.provisioning.registry.devices import Device
from tests.fixtures.rows import table_row

BEGIN_S = 1_700_000_000
NS = 1_000_000_000


class Enforced:
    """The part that keeps a broker up to date, and the sessions that it ends there.

    The test moves both clocks.
    """

    def __init__(self, lab, monkeypatch):
        self.lab, self.passed_s = lab, 0.0
        self.answers, self.ended = False, []
        monkeypatch.setattr(enforcement, "end_session", self._end)
        self.restart()

    def restart(self):
        lab = self.lab
        self.enforcement = Enforcement(
            lab.folder, lab.registry, broker_files.authority(lab.folder), lambda: self.passed_s
        )

    def _end(self, _address, client_id, state):
        if not self.answers:
            raise UnavailableError("no broker answers")
        self.ended.append((client_id, state and (state[0], json.loads(state[1])["state"])))

    def passes(self, seconds=0.0):
        """Let time pass and bring the broker up to date; return whether something is left to do."""
        self.passed_s += seconds
        return self.enforcement.enforce(
            datetime.fromtimestamp(BEGIN_S + self.passed_s, timezone.utc)
        )

    def write(self, put, *values):
        with self.lab.registry.transaction() as connection:
            put(connection, *values)

    def refused(self):
        """Return the numbers in the list, and how often a running broker was told of a new one."""
        links = sorted(self.lab.folder.revoked_lists.iterdir())
        assert links[-1].read_bytes() == self.lab.folder.revoked.read_bytes()
        return authority.revoked_numbers(self.lab.folder.revoked.read_bytes()), len(links)


@pytest.fixture
def enforced(lab, monkeypatch):
    """Return a fleet whose broker does not run, with a certificate of pi-1 and one of pi-2."""
    enforced_lab = Enforced(lab, monkeypatch)
    for number, device in (("a1", "pi-1"), ("a2", "pi-2")):
        enforced_lab.write(certificates.put, Certificate(number, device, device, device, "", 0, 0))
    return enforced_lab


def test_a_session_that_cannot_be_ended_now_is_ended_when_the_broker_runs(enforced):
    """All sessions of a device are ended, with retries after one, two and four seconds."""
    assert not enforced.passes()
    enforced.write(devices.put, Device("pi-1", "lab", trust="revoked", changed_ns=BEGIN_S * NS))
    enforced.write(
        certificates.note_sessions,
        {"pi-1": "pi-1", "mine": "pi-1", "gone": "pi-1", "pi-2": "pi-2"},
        [],
    )
    enforced.write(certificates.note_sessions, {}, ["gone"])
    enforced.write(certificates.put_pending_disconnect, "pi-1", 1)
    assert enforced.passes(40)
    enforced.answers = True
    assert enforced.passes()
    assert certificates.pending_disconnects(enforced.lab.registry) == ["pi-1"]
    assert not enforced.passes(2)
    assert certificates.pending_disconnects(enforced.lab.registry) == []
    assert enforced.ended == [
        (client_id, ("edgemeter/v1/lab/pi-1/state", "revoked")) for client_id in ("pi-1", "mine")
    ]
    enforced.write(certificates.put_pending_disconnect, "pi-2", 1)
    enforced.passes(1)
    assert enforced.ended[2:] == [("pi-2", None)]


def test_no_session_ends_before_its_device_is_on_the_list(enforced, monkeypatch):
    """A device revoked while the registry is read keeps its session until it is on the list.

    Otherwise it would come back.
    """
    enforced.answers = True
    enforced.passes()
    read_refused = certificates.refused

    def revoke_meanwhile(registry, now_ns):
        before = read_refused(registry, now_ns)
        enforced.write(certificates.revoke, "pi-1", BEGIN_S * NS, "stolen")
        enforced.write(certificates.put_pending_disconnect, "pi-1", 1)
        return before

    with monkeypatch.context() as revoking:
        revoking.setattr(certificates, "refused", revoke_meanwhile)
        enforced.passes(1)
    assert enforced.ended == []
    enforced.passes(1)
    assert [client_id for client_id, _ in enforced.ended] == ["pi-1"]
    assert enforced.refused()[0] == {"a1"}


def test_a_ban_ends_by_itself(enforced):
    """A banned device's certificates, also new ones, are refused, and it is shown as offline.

    A minute later it may come back.
    """
    enforced.answers = True
    enforced.write(devices.put, Device("pi-1", "lab", trust="accepted"))
    enforced.passes()
    enforced.write(
        lambda connection: certificates.ban_device(
            connection, enforced.lab.registry, "pi-1", "why", time.time_ns()
        )
    )
    enforced.write(
        lambda connection: connection.execute(
            "UPDATE bans SET until_ns = ?", ((BEGIN_S + 60) * NS,)
        )
    )
    assert not enforced.passes(1)
    assert enforced.refused() == ({"a1"}, 2)
    assert [client_id for client_id, _ in enforced.ended] == ["pi-1"]
    enforced.write(certificates.put, Certificate("a3", "pi-1", "1", "k", "", 0, 0))
    enforced.passes(58)
    assert enforced.refused() == ({"a1", "a3"}, 3)
    enforced.passes(1)
    assert enforced.refused() == (set(), 4)
    enforced.passes(1)
    assert enforced.refused() == (set(), 4)


def test_a_list_of_a_process_that_was_killed_is_announced_by_the_next_one(enforced, monkeypatch):
    """A list that a killed process wrote is announced to the broker by the next process.

    A running broker does not read a list that was not announced, though the file is the right one.
    """
    enforced.passes()
    enforced.write(certificates.revoke, "pi-1", BEGIN_S * NS, "stolen")
    with monkeypatch.context() as killing:
        killing.setattr(broker_files, "_announce_list", end)
        with pytest.raises(KeyboardInterrupt):
            enforced.passes(1)
    assert authority.revoked_numbers(enforced.lab.folder.revoked.read_bytes()) == {"a1"}
    enforced.restart()
    enforced.passes(1)
    assert enforced.refused() == ({"a1"}, 2)
    enforced.restart()
    enforced.passes(1)
    assert enforced.refused() == ({"a1"}, 2)


def end(*_arguments):
    raise KeyboardInterrupt


def test_the_list_of_a_ban_that_ended_meanwhile_is_mended_at_the_start(enforced):
    """A ban that ended while the service was down is removed from the list at the next start."""
    enforced.answers = True
    enforced.write(
        lambda connection: certificates.ban_device(
            connection, enforced.lab.registry, "pi-1", "why", time.time_ns()
        )
    )
    enforced.write(
        lambda connection: connection.execute(
            "UPDATE bans SET until_ns = ?", ((BEGIN_S + 60) * NS,)
        )
    )
    enforced.passes(1)
    assert enforced.refused()[0] == {"a1"}
    enforced.restart()
    enforced.passes(100)
    assert enforced.refused()[0] == set()


def test_a_revoked_certificate_stays_refused_where_the_registry_was_lost(enforced):
    """A revoked certificate stays refused although the lost registry no longer knows its device."""
    enforced.write(certificates.revoke, "pi-1", BEGIN_S * NS, "stolen")
    enforced.passes()
    enforced.write(lambda connection: connection.execute("DELETE FROM certificates"))
    enforced.passes()
    assert enforced.refused()[0] == {"a1"}


@pytest.fixture
def folder(tmp_path):
    fleet = FleetFolder(tmp_path)
    fleet.broker.mkdir()
    return fleet


def test_without_a_process_of_its_own_no_broker_is_running(folder):
    """A broker counts as running only if the process of its file is that broker.

    The file may be absent or empty, or its number may be that of no process of ours, or of another
    program.
    """
    for text in (None, "", "x", "0", "1", "-1", "99999999999", str(os.getpid())):
        with table_row(text):
            if text is not None:
                (folder.broker / "mosquitto.pid").write_text(text)
            assert enforcement.broker_process(folder) is None


def test_limits_that_are_too_low_are_named(folder, monkeypatch):
    """Too low limits of open files of the service and of the broker's process are named.

    Silent connections of strangers would take what is left. Nothing is named where no broker runs
    here.
    """
    monkeypatch.setattr(enforcement.resource, "getrlimit", lambda _: (1024, 1024))
    limit, where = enforcement.process_issues(folder)
    assert "1,024" in limit
    assert where == enforcement.ELSEWHERE
    monkeypatch.setattr(enforcement, "broker_process", lambda *_: 77)
    monkeypatch.setattr(enforcement.resource, "getrlimit", lambda _: (65536, 65536))
    for limit, count in ((4095, 1), (4096, 0)):
        monkeypatch.setattr(
            enforcement.resource, "prlimit", lambda process, _, limit=limit: (limit, process)
        )
        assert len(enforcement.process_issues(folder)) == count

    def end(*_):
        raise ProcessLookupError

    monkeypatch.setattr(enforcement.resource, "prlimit", end)
    assert enforcement.process_issues(folder) == []
