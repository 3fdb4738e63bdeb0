"""Tests of the status of a fleet's server: broker, service, collector, take-overs and bans."""

import json

import pytest

from edgemeter.agent.base.file_lock import DeviceLock
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.messages import CollectorState, encode_message
from edgemeter.collector.receive.collector import Collector
from edgemeter.collector.receive.fleet_address import fleet_address
from edgemeter.provisioning.health import overview, server_status
from edgemeter.provisioning.health.server_status import StatusHandler, take_overs
from edgemeter.provisioning.registry import certificates, devices
from edgemeter.provisioning.registry.devices import Device
from tests.fixtures.mqtt_peer import wait_until

S = 1_000_000_000


def start_service(lab):
    """Hold the lock that the service holds."""
    lock = DeviceLock(lab.folder.registry, server_status.CLIENT_ID)
    assert lock.take()
    return lock


def problems(lab):
    return [
        problem.split(",")[0]
        for problem in json.loads(lab.run("list", "--format", "json"))["server"]
    ]


@pytest.mark.mosquitto
def test_what_is_down_is_listed(broker_lab):
    """The list shows whether the service or the collector is down, and nothing when both run."""
    lab = broker_lab
    assert problems(lab)[0].startswith("the fleet's service is not running")
    lab.broker.start()
    lab.stack.callback(lab.broker.kill)
    lab.stack.callback(start_service(lab).release)
    lab.serve()
    assert wait_until(lambda: problems(lab) == ["no collector answers"])
    address = fleet_address(lab.folder.path)
    service = Collector(address, lab.path / "ledger.sqlite")
    service.start()
    lab.stack.callback(service.stop)
    assert wait_until(lambda: problems(lab) == [])
    service.stop()
    assert wait_until(lambda: problems(lab) == ["no collector answers"])


def test_a_server_without_a_service_is_named_with_its_broker(lab):
    """A missing service is reported; one that runs and has lost its broker names the broker."""
    with lab.registry.transaction() as statements:
        statements.execute("INSERT INTO server_parts VALUES ('broker', ?)", (100 * S,))
    assert "service is not running" in server_status.server_issues(lab.folder, 100 * S)[0]
    lock = start_service(lab)
    assert "no collector" in server_status.server_issues(lab.folder, 145 * S)[0]
    assert (
        "does not answer the fleet's service" in server_status.server_issues(lab.folder, 146 * S)[0]
    )
    with lab.registry.transaction() as statements:
        statements.execute("INSERT INTO server_parts VALUES ('collector 1', ?)", (100 * S,))
    assert server_status.server_issues(lab.folder, 110 * S) == []
    lock.release()


class Watched:
    """The handler for the server's status, on a clock of the test.

    It reads mosquitto's log of the connections of two devices.
    """

    def __init__(self, lab):
        self.folder, self.registry, self.now_ns = lab.folder, lab.registry, 1_000_000_000 * S
        self.handler = StatusHandler(lab.folder, lab.registry, None, lambda: 0.0)
        with lab.registry.transaction() as statements:
            for name in ("pi-1", "pi-2"):
                devices.put(statements, Device(name, "lab", name, trust="accepted"))

    def logs(self, line):
        self.handler.received(Message("$SYS/broker/log/N", f"1700000000: {line}".encode()))

    def comes(self, client_id, user):
        self.logs(
            f"New client connected from 192.0.2.1:4711 as {client_id} (p2, c1, k60, u'{user}')."
        )

    def banned(self):
        """Let five seconds pass and the handler look, and return who is banned."""
        self.now_ns += 5 * S
        self.handler.poll(self.now_ns)
        return set(certificates.active_bans(self.registry, self.now_ns))


@pytest.fixture
def watched(lab):
    return Watched(lab)


def test_take_overs_by_its_own_key_are_shown_when_they_repeat(watched):
    """Repeated take-overs by a device's own key are shown until an hour has passed.

    A line that breaks now and then causes one or two, which are not shown.
    """
    for number, expected in ((1, {}), (2, {}), (3, {"pi-1": 3})):
        watched.logs("Client pi-1 already connected, closing old connection.")
        watched.comes("pi-1", "pi-1")
        watched.banned()
        assert take_overs(watched.registry, watched.now_ns) == expected, number
    assert take_overs(watched.registry, watched.now_ns + 3600 * S) == {"pi-1": 3}
    watched.now_ns += 3600 * S
    assert take_overs(watched.registry, watched.now_ns + 1) == {}
    watched.logs("Client pi-1 already connected, closing old connection.")
    watched.comes("pi-1", "pi-1")
    watched.banned()
    assert take_overs(watched.registry, watched.now_ns) == {}


def test_a_session_that_is_taken_over_for_hours_is_told_with_what_was_counted(watched):
    """Five take-overs in more than three hours are not reported as five within one hour."""
    for _ in range(5):
        watched.now_ns += 50 * 60 * S
        watched.logs("Client pi-1 already connected, closing old connection.")
        watched.comes("pi-1", "pi-1")
        watched.banned()
    (device,) = [
        line
        for line in overview.read(watched.folder, watched.registry, watched.now_ns)
        if line.device.device == "pi-1"
    ]
    (text,) = [issue.text for issue in device.issues if issue.kind == "taken over"]
    assert text.startswith(
        "its session was taken over 5 times, each within an hour of the one before"
    )


def test_who_takes_anothers_client_id_is_banned(watched):
    """A device that takes another's client id is banned, and the reason names the victim.

    A second session of its own is allowed, and so is a client id that is no device's.
    """
    for client_id, user in (
        ("pi-1", "pi-1"),
        ("pi-1~2", "pi-1"),
        ("nobody", "pi-1"),
        ("pi-1", "edgemeter-operator"),
        ("pi-1", "stranger"),
    ):
        watched.comes(client_id, user)
    assert watched.banned() == set()
    for user in ("pi-1", "edgemeter-operator", "pi-2"):
        watched.logs("Client pi-1 already connected, closing old connection.")
        watched.comes("pi-1", user)
    assert watched.banned() == {"pi-2"}
    (ban,) = certificates.active_bans(watched.registry, watched.now_ns).values()
    assert ban.reason == "it connected with the client id of 'pi-1'"
    assert [tuple(row)[:2] for row in watched.registry.query("SELECT * FROM take_overs")] == [
        ("pi-1", 1)
    ]
    assert certificates.pending_disconnects(watched.registry) == ["pi-2"]


def test_who_connects_again_and_again_is_banned(watched):
    """A certificate with hundreds of sessions under different client ids is banned.

    If it comes back during the ban, it is thrown out again.
    """
    for number in range(240):
        watched.comes(f"pi-1~{number}", "pi-1")
    assert watched.banned() == set()
    watched.comes("pi-1~240", "pi-1")
    assert watched.banned() == {"pi-1"}
    with watched.registry.transaction() as statements:
        certificates.delete_pending_disconnect(statements, "pi-1")
    watched.comes("pi-1", "pi-1")
    watched.banned()
    assert certificates.pending_disconnects(watched.registry) == ["pi-1"]


def test_the_client_ids_of_a_device_are_known_while_it_is_connected(watched):
    """Every client id of a connected device is known, but none of services and strangers."""
    for client_id, user in (
        ("pi-1", "pi-1"),
        ("x disconnected. y", "pi-1"),
        ("z", "pi-1"),
        ("a", "pi-1"),
        ("s", "edgemeter-fleet"),
        ("t", "t"),
    ):
        watched.comes(client_id, user)
    watched.banned()
    assert certificates.client_ids(watched.registry, "pi-1") == [
        "pi-1",
        "a",
        "x disconnected. y",
        "z",
    ]
    for line in (
        "Client x disconnected. y closed its connection.",
        "Client z disconnected: Protocol error.",
        "Client a already connected, closing old connection.",
    ):
        watched.logs(line)
    watched.comes("a", "edgemeter-operator")
    watched.banned()
    assert certificates.client_ids(watched.registry, "pi-1") == ["pi-1"]


def test_a_revoked_device_that_comes_all_the_same_is_thrown_out(watched):
    """A revoked device that connects all the same is thrown out.

    Its TLS session may be older, at a broker that lets it resume one.
    """
    with watched.registry.transaction() as statements:
        devices.put(statements, Device("pi-1", "lab", "1", trust="revoked"))
    watched.comes("mine", "pi-1")
    watched.banned()
    assert certificates.pending_disconnects(watched.registry) == ["pi-1"]


def test_who_floods_the_collector_is_banned(watched):
    """A device that the collector names in its own state as flooding is banned."""
    state = CollectorState(state="online", flooding=("pi-2",))
    watched.handler.received(Message("edgemeter/collector/1/state", encode_message(state)))
    assert watched.banned() == {"pi-2"}
    assert (
        watched.registry.query("SELECT seen_ns FROM server_parts WHERE part = 'collector 1'")[0][
            "seen_ns"
        ]
        > 0
    )
    watched.handler.received(
        Message("edgemeter/collector/1/state", encode_message(CollectorState(state="offline")))
    )
    watched.banned()
    assert (
        watched.registry.query("SELECT seen_ns FROM server_parts WHERE part = 'collector 1'")[0][
            "seen_ns"
        ]
        == 0
    )
