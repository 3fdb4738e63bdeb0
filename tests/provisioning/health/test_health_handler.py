import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract import messages
from edgemeter.provisioning.health import health_handler, overview
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.devices import Device
from tests.fixtures.rows import table_row


def test_an_online_device_without_a_challenge_takes_no_orders_and_the_list_has_the_reason(lab):
    """A device without a challenge is online, as its runs arrive, but it takes no orders.

    With the agent's challenge the note in the list disappears.
    """

    def noted():
        (line,) = overview.read(lab.folder, lab.registry, lab.now_ns)
        return line.state, [issue.remedy for issue in line.issues if issue.kind == "orders"]

    lab.says("a", "online", challenge=None)
    lab.passes(1)
    assert noted() == ("online", ["`systemctl status edgemeter-agent` there shows why"])
    lab.says("a", "online")
    lab.passes(1)
    assert noted() == ("online", [])


def test_a_late_will_changes_nothing_about_the_session_after_it(lab):
    """A will of an old session, which the broker sends late, leaves the new session online."""
    lab.says("pi-1", "online", session=1)
    lab.says("pi-1", "online", session=2)
    lab.says("pi-1", "lost", session=1)
    lab.passes(1)
    assert devices.find_presence(lab.registry, "pi-1").state == "online"
    lab.says("pi-1", "lost", session=2)
    lab.passes(1)
    lost = devices.find_presence(lab.registry, "pi-1")
    assert lost.state == "lost"
    # Retained messages come again when the service starts.
    lab.passes(1)
    lab.says("pi-1", "lost", session=2)
    lab.passes(1)
    repeated = devices.find_presence(lab.registry, "pi-1")
    assert repeated == lost


def test_what_was_received_before_a_revocation_and_is_written_after_it_leaves_nobody_online(lab):
    """A device that was revoked before its messages were written is not shown as online.

    The broker has disconnected it meanwhile, so that it reports nothing any more.
    """
    lab.says("pi-1", "online")
    with lab.registry.transaction() as connection:
        devices.put(connection, Device("pi-1", "lab", "1000", "pi5", (), "revoked", 5))
    lab.passes(1)
    assert devices.find_presence(lab.registry, "pi-1") is None


def test_a_health_that_is_none_or_of_another_device_is_refused(lab):
    """A health report is refused if it is malformed, or names another device than its topic."""
    for payload in (
        b"{",
        b'{"device": "pi-2", "fleet": "lab", "session": 1, "told_ns": 5, "agent": "1"}',
    ):
        with table_row(payload), pytest.raises(ConfigError):
            lab.handler.received(Message("edgemeter/v1/lab/pi-1/health", payload))


def test_what_a_device_measures_is_listed_until_it_is_gone(lab):
    """The list shows a device's current run until it ends, the next begins, or the line breaks."""

    def listed():
        (line,) = overview.read(lab.folder, lab.registry, lab.now_ns)
        return line.heard.measuring and line.heard.measuring.run

    lab.says("pi-1", "online", session=5)
    for run in (3, 4):
        now = messages.Measuring(suite="nightly", case="tiny litert", run=run, runs=12)
        payload = messages.encode_message(messages.Activity(session=5, measuring=now))
        lab.handler.received(Message("edgemeter/v1/lab/pi-1/activity", payload))
        lab.passes(1)
        assert listed() == run
    lab.says("pi-1", "lost", session=5)
    lab.passes(1)
    assert listed() is None


def test_devices_that_come_back_together_cost_a_few_commits(lab, monkeypatch):
    """All that is heard between two looks is one transaction.

    That holds as long as it takes no time from other handlers.
    """
    monkeypatch.setattr(health_handler, "MOST_REPORTS", 50)
    commits = []
    lab.registry.connection.set_trace_callback(
        lambda statement: commits.append(statement) if statement == "COMMIT" else None
    )
    for number in range(60):
        lab.says(f"pi-{number}", "online", boot_id="a")
    for _ in range(4):
        lab.passes(1)
    lab.registry.connection.set_trace_callback(None)
    assert len(commits) == 3
    assert len(devices.read_presence(lab.registry)) == 60
