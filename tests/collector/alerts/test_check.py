"""Test how a check records deliveries.

A channel that accepts an alert is noted, one that does not is tried again, and only one check runs
at a time.
"""

import itertools
from contextlib import contextmanager

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.delivery.outbox_file import DiskReserve
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.alerts import check
from edgemeter.collector.alerts.check import alerts_of, check_alerts, undelivered_texts
from edgemeter.collector.alerts.rules import AlertRule, AlertRules, Channel
from edgemeter.collector.trend.watch_file import WatchFile, open_watch
from tests.fixtures.rows import table_row

HOUR_NS = 3_600 * 10**9
NOW = 500_000 * HOUR_NS
RULES = AlertRules(
    rule=(AlertRule(name="lost", kind="device-lost", hours=1.0, channels=("chat", "pager")),),
    channel=(Channel(name="chat", url="json://h"), Channel(name="pager", url="json://h")),
)


class Receivers:
    """The messages that the channels were sent; a channel that is `away` accepts nothing.

    `step` is called before and after each message.
    """

    def __init__(self):
        self.messages, self.away, self.step = [], set(), lambda: None

    def sent(self, channel, alerts, _page, _now_ns):
        """Accept each alert in a message of its own."""
        for alert in alerts:
            if channel.name in self.away:
                raise TransientError("503")
            self.step()
            self.messages.append((channel.name, alert.state, alert.title))
            self.step()
            yield [alert]


@pytest.fixture
def receivers(monkeypatch):
    """Return receivers in the place of every channel."""
    receivers = Receivers()
    monkeypatch.setattr(check, "sent_messages", receivers.sent)
    return receivers


@pytest.fixture
def ledger(tmp_path):
    SqliteLedger(tmp_path / "ledger.sqlite").close()
    return tmp_path / "ledger.sqlite"


def heard(ledger, state, hours, *devices):
    with SqliteLedger(ledger) as opened:
        report = DeviceState(state=state, session=1)
        opened.commit(
            [],
            [],
            [
                PresenceChange("lab", device, report, NOW + int(hours * HOUR_NS))
                for device in devices
            ],
        )


def at(ledger, hours, rules=RULES):
    """Return what a check after some hours does."""
    return check_alerts([str(ledger)], rules, lambda: NOW + int(hours * HOUR_NS))


def test_each_channel_is_told_once_and_of_the_end(ledger, receivers):
    """A channel that was away hears of both lost devices when it is there again.

    One of the two devices has come back by then.
    """
    heard(ledger, "lost", -2, "a", "b")
    receivers.away = {"pager"}
    at(ledger, 0)
    assert undelivered_texts(alerts_of(ledger)[1]) == ["2 alerts undelivered to pager: 503"]
    receivers.away = set()
    at(ledger, 1)
    assert undelivered_texts(alerts_of(ledger)[1]) == []
    heard(ledger, "online", 1, "a")
    assert dict(at(ledger, 2).sent) == {"chat": 1, "pager": 1}
    assert dict(at(ledger, 3).sent) == {}
    assert sorted(receivers.messages) == [
        ("chat", "closed", "device lost: a"), ("chat", "open", "device lost: a"),
        ("chat", "open", "device lost: b"),
        ("pager", "closed", "device lost: a"), ("pager", "open", "device lost: a"),
        ("pager", "open", "device lost: b"),
    ]  # fmt: skip
    alerts, notified = alerts_of(ledger)
    assert [alert.closed_ns is None for alert in alerts] == [False, True]
    assert [(row.alert, row.channel, row.state) for row in notified] == [
        (1, "chat", "closed"),
        (2, "chat", "open"),
        (1, "pager", "closed"),
        (2, "pager", "open"),
    ]


def test_what_ended_before_a_channel_heard_of_it_is_told_as_over(ledger, receivers):
    """The alert is still sent, because somebody waited to hear of it."""
    heard(ledger, "lost", -2, "a")
    receivers.away = {"chat"}
    at(ledger, 0)
    heard(ledger, "online", 0, "a")
    at(ledger, 1)
    receivers.away = set()
    at(ledger, 2)
    assert sorted(receivers.messages) == [
        ("chat", "closed", "device lost: a"), ("pager", "closed", "device lost: a"),
        ("pager", "open", "device lost: a"),
    ]  # fmt: skip


def test_rules_without_a_channel_for_a_while_tell_nothing_twice(ledger, receivers):
    """One check with the wrong rules file repeats no sent alert and loses no unsent one."""
    heard(ledger, "lost", -2, "a")
    receivers.away = {"pager"}
    at(ledger, 0)
    at(ledger, 1, AlertRules(rule=(AlertRule(name="lost", kind="device-lost", hours=1.0),)))
    assert undelivered_texts(alerts_of(ledger)[1]) == []
    receivers.away = set()
    at(ledger, 2)
    assert receivers.messages == [
        ("chat", "open", "device lost: a"),
        ("pager", "open", "device lost: a"),
    ]


def test_one_check_runs_at_a_time(ledger, receivers):
    """A second check fails and sends nothing."""
    heard(ledger, "lost", -2, "a")
    with (
        open_watch(ledger) as file,
        file.checking(),
        pytest.raises(TransientError, match="in progress"),
    ):
        at(ledger, 0)
    assert receivers.messages == []


def test_a_check_reads_nothing_before_no_other_can_run(ledger, receivers, monkeypatch):
    """A check with older facts than another would close what that one opened, and send so."""
    read = check.History

    def read_while_another_begins(stores):
        heard(ledger, "lost", -2, "a")
        with pytest.raises(TransientError, match="in progress"):
            at(ledger, 0)
        return read(stores)

    monkeypatch.setattr(check, "History", read_while_another_begins)
    at(ledger, 0)
    assert receivers.messages == [
        ("chat", "open", "device lost: a"),
        ("pager", "open", "device lost: a"),
    ]


class KilledError(Exception):
    """Stands for the end of the process: from then on nothing is sent or written."""


def test_a_check_that_is_killed_at_any_step_loses_no_alert_and_repeats_only_what_was_on_its_way(
    ledger, receivers, monkeypatch
):
    write, expected = (
        WatchFile.writing,
        {(name, "open", f"device lost: {device}") for name in ("chat", "pager") for device in "ab"},
    )
    steps = itertools.count()

    def step():
        if next(steps) >= fatal_step:
            raise KilledError

    @contextmanager
    def writing(file):
        step()
        with write(file) as statements:
            yield statements
            step()
        step()

    monkeypatch.setattr(WatchFile, "writing", writing)
    receivers.step = step
    for number in itertools.count():
        path = ledger.with_name(f"{number}.sqlite")
        SqliteLedger(path).close()
        heard(path, "lost", -2, "a", "b")
        receivers.messages, steps, fatal_step = [], itertools.count(), number
        try:
            at(path, 0)
        except KilledError:
            last = {name: message for name, *message in receivers.messages}
            before = list(receivers.messages)
            fatal_step = float("inf")
            at(path, 1)
        else:
            break
        with table_row(number):
            assert set(receivers.messages) == expected
            told_again = [message for message in before if receivers.messages.count(message) > 1]
            assert all(last[name] == message for name, *message in told_again)
    assert number > 15


def test_a_disk_that_gets_full_repeats_no_message(ledger, receivers, monkeypatch):
    """On a full disk nothing is sent that could not be noted.

    Before the first message nothing is sent; after it, the reserve has room for what the channels
    accepted.
    """
    write, writes = WatchFile.writing, []

    @contextmanager
    def writing(file):
        writes.append(file)
        if len(writes) == 1 or (len(writes) > 2 and DiskReserve(file.path).is_whole()):
            raise UnavailableError("the disk is full")
        with write(file) as statements:
            yield statements

    heard(ledger, "lost", -2, "a", "b")
    with monkeypatch.context() as full:
        full.setattr(WatchFile, "writing", writing)
        with pytest.raises(UnavailableError):
            at(ledger, 0)
        assert receivers.messages == []
        at(ledger, 0)
    at(ledger, 1)
    assert len(receivers.messages) == len(set(receivers.messages)) == 4
