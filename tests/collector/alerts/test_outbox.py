"""Facts about the notices that wait: one of an alert for each channel, until it is delivered or over."""

import time

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.collector.alerts import check, lifecycle, outbox
from edgemeter.collector.alerts.firing import Firing
from edgemeter.collector.alerts.rules import AlertRule, AlertRules, Channel
from edgemeter.collector.alerts.waiting import last_check_ns
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.watch_file import WatchFile
from tests.fixtures.listeners import http_listener

HOUR_NS = 3600 * 10**9
NOW = 500_000 * HOUR_NS


@pytest.fixture
def file(tmp_path):
    """Return a watch file."""
    with WatchFile(tmp_path / "w") as opened:
        yield opened


@pytest.fixture
def server():
    """Return an HTTP server that keeps what it is sent."""
    with http_listener() as listener:
        yield listener


@pytest.fixture
def at(file, monkeypatch):
    """Return what checks after some hours, with what fires then."""

    def run(hours, rules, *subjects, text="x", severity="critical"):
        firing_now = [Firing("r", name, severity, f"lost: {name}", text, 0, {}) for name in subjects]
        monkeypatch.setattr(check, "firings", lambda *_: firing_now)
        return check.check_alerts(RunHistory([]), "runs.json", file, rules, NOW + int(hours * HOUR_NS))

    return run


def rules_for(server, *, repeat_hours=None, **settings):
    """Return a rule and its one channel."""
    channel = Channel(name="hook", kind="webhook", url=server.url, **settings)
    rule = AlertRule(name="r", kind="device-lost", channels=("hook",), repeat_hours=repeat_hours)
    return AlertRules(rule=(rule,), channel=(channel,))


def messages_of(server):
    """Return event and title of every message, and forget them."""
    messages, server.kept = server.kept, []
    return [(body["event"], body["alert"]["title"]) for *_, body in messages]


def test_an_alert_that_is_over_before_it_was_sent_is_sent_as_over_alone(server, at):
    """Its opening is no news any more, that it happened is; a channel that is not told the end of alerts is told nothing."""
    for send, expected in ((("opened", "closed"), [("closed", "over: lost: a")]), (("opened",), [])):
        server.status = 503
        rules = rules_for(server, send=send)
        at(0, rules, "a")
        at(1, rules)
        server.status = 200
        messages_of(server)
        assert at(2, rules).waiting == []
        assert messages_of(server) == expected
        at(400, rules)


def test_what_comes_back_before_anything_was_sent_opens(server, at):
    """It was over in between, which nobody has to know; also where the channel is not told the end of alerts."""
    for send in (("opened", "closed"), ("opened",)):
        server.status = 503
        rules = rules_for(server, send=send)
        subject = f"a-{len(send)}"
        at(0, rules, subject)
        at(1, rules)
        at(2, rules, subject)
        server.status = 200
        messages_of(server)
        at(3, rules, subject)
        assert messages_of(server) == [("opened", f"lost: {subject}")]
        at(4, rules)
        messages_of(server)


def test_what_comes_back_after_its_end_was_sent_is_sent_again(server, at):
    """The receiver takes it for over; one that was not told that it is over has it open still, and is told nothing."""
    rules = rules_for(server)
    assert [len(at(hours, rules, *subjects).changes) for hours, subjects in ((0, ["pi-1"]), (1, []), (2, ["pi-1"]))] == [1, 1, 1]
    assert [event for event, _ in messages_of(server)] == ["opened", "closed", "opened"]
    server.status = 503
    at(3, rules)
    at(3.01, rules, "pi-1")
    server.status = 200
    server.kept.clear()
    assert not at(4, rules, "pi-1").waiting
    assert messages_of(server) == []


def test_an_alert_that_becomes_more_severe_is_sent_again(server, at):
    """A warning that is critical now is news; one that is less severe, or says something else, is not."""
    rules = rules_for(server)
    for hours, severity in enumerate(("warning", "critical", "warning")):
        at(hours, rules, "pi-1", severity=severity)
    assert [event for event, _ in messages_of(server)] == ["opened", "opened"]


def test_an_update_waits_once_and_shows_how_it_is_now(server, at):
    """Three updates while the receiver is away are one message; an opening that waits says it too."""
    rules = rules_for(server, send=("opened", "updated", "closed"))
    at(0, rules, "a")
    server.status = 503
    for hour in (1, 2, 3):
        at(hour, rules, "a", "b", text=f"x{hour}")
    server.status = 200
    server.kept.clear()
    at(4, rules, "a", "b", text="x3")
    assert [(body["event"], body["alert"]["text"]) for *_, body in server.kept] == [("updated", "x3"), ("opened", "x3")]


def test_an_alert_that_nobody_acknowledged_is_repeated(file, server, at):
    """Every four hours, over restarts; until it is acknowledged, dismissed or closed."""
    rules = rules_for(server, repeat_hours=4.0)
    repeated = ("updated", "still: lost: a")
    expected = {0: [("opened", "lost: a")], 1: [], 4: [repeated], 5: [], 7.9: [], 8: [repeated]}
    for hour, messages in expected.items():
        at(hour, rules, "a")
        assert messages_of(server) == messages, hour
    lifecycle.acknowledge(file, 1, None)
    for hour in (12, 16):
        at(hour, rules, "a")
        assert messages_of(server) == []
    at(20, rules, "a", "b")
    lifecycle.dismiss(file, 2, None)
    messages_of(server)
    at(24, rules, "a", "b")
    assert messages_of(server) == []


def test_a_repetition_that_waits_is_dropped_when_somebody_acknowledges(file, server, at):
    """Who acknowledged it has heard of it."""
    rules = rules_for(server, repeat_hours=4.0)
    at(0, rules, "a")
    server.status = 503
    assert len(at(4, rules, "a").waiting) == 1
    lifecycle.acknowledge(file, 1, None)
    assert at(5, rules, "a").waiting == []


def test_quiet_hours_are_no_failure(server, at, file):
    """What waits for the morning is not undelivered, also where the receiver failed before the night."""
    begin = time.localtime((NOW + HOUR_NS) / 1e9)
    quiet = f"{begin.tm_hour:02}:{begin.tm_min:02}-{(begin.tm_hour + 6) % 24:02}:00"
    rules = rules_for(server, quiet=quiet, quiet_severities=("critical",))
    server.status = 503
    assert len(at(0, rules, "a").waiting) == 1
    server.status = 200
    messages_of(server)
    result = at(2, rules, "a", "b")
    assert (result.waiting, result.sent, messages_of(server)) == ([], [], [])
    with file.reading() as statements:
        assert {unsent.state for unsent in outbox.unsent_notices(statements)} == {"quiet"}
    assert at(9, rules, "a", "b").waiting == []
    assert len(messages_of(server)) == 2


def test_what_waits_for_a_channel_that_was_removed_is_kept_and_reported(file, server, at):
    """The file of rules may be the wrong one: restored, it gets everything; otherwise a person drops it."""
    rules = rules_for(server)
    server.status = 503
    at(0, rules, "a")
    for _ in range(2):
        (waiting,) = at(1, AlertRules(rule=rules.rule), "a").waiting
        assert "the rules have no such channel: restore it, or drop them" in waiting.error
    server.status = 200
    messages_of(server)
    at(2, rules, "a")
    assert messages_of(server) == [("opened", "lost: a")]
    server.status = 503
    at(3, rules)
    with pytest.raises(ConfigError, match="no such notice waits"):
        outbox.drop_notices(file, (77,), None)
    assert outbox.drop_notices(file, (), "hook") == 1
    assert at(4, AlertRules()).waiting == []


def test_a_clock_that_was_stepped_holds_nothing_up(server, at):
    """A failure while the clock stood a year ahead; a check of long ago is none of the future."""
    rules = rules_for(server, repeat_hours=4.0)
    server.status = 503
    at(24 * 365, rules, "a")
    server.status = 200
    messages_of(server)
    at(0, rules, "a")
    assert ("opened", "lost: a") in messages_of(server)
    at(1, rules, "a")
    at(5, rules, "a")
    assert messages_of(server) == [("updated", "still: lost: a")]


def test_a_full_disk_sends_nothing_that_it_could_not_note(file, server, at):
    """The check fails before the first message, or the next check would send all of it again; then it is sent once."""
    rules = rules_for(server)
    file.connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(Exception, match="disk is full"):
        at(0, rules, *map(str, range(200)))
    assert server.kept == []
    file.connection.execute("PRAGMA max_page_count = 100000")
    at(1, rules, "a")
    at(2, rules, "a")
    assert messages_of(server) == [("opened", "lost: a")]


def test_a_check_and_its_outbox_are_one_transaction(file, server, at, monkeypatch):
    """What stops it between the two leaves neither."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(outbox, "_queue_repeats", stop)
    with pytest.raises(KeyboardInterrupt):
        at(0, rules_for(server), "a")
    assert lifecycle.read_alerts(file, with_closed=True) == []


def test_the_end_of_a_check_is_noted(file, server, at, monkeypatch):
    """By the clock, whatever was delivered; a check that is in progress holds off another, in this process too."""
    server.status = 503
    monkeypatch.setattr(time, "time_ns", lambda: 77)
    at(0, rules_for(server), "a")
    with file.reading() as statements:
        assert last_check_ns(statements) == 77
    with file.checking(), pytest.raises(TransientError, match="in progress: nothing was checked or sent"):
        at(1, rules_for(server), "a")
