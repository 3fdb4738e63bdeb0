"""Facts about the delivery of alerts: nothing is lost, nothing is told twice that was accepted, and nobody waits for another."""

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from email import message_from_string, policy

import pytest

from edgemeter.agent.contract.messages import DeviceState
from edgemeter.agent.ledger.presence import PresenceChange
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.alerts import check, delivery
from edgemeter.collector.alerts.firing import Firing
from edgemeter.collector.alerts.rules import AlertRule, AlertRules, Channel
from edgemeter.collector.trend.history import RunHistory
from edgemeter.collector.trend.watch_file import WatchFile, watch_file_beside
from tests.fixtures.listeners import http_listener, mail_listener, real_http

HOUR_NS = 3600 * 10**9
NOW = 500_000 * HOUR_NS


@pytest.fixture
def file(tmp_path):
    """Return a watch file."""
    with WatchFile(tmp_path / "w") as opened:
        yield opened


@pytest.fixture
def at(file, monkeypatch):
    """Return what checks after some hours, with what fires then: `at(hours, rules, "a", "b")`."""

    def run(hours, rules, *subjects):
        facts = {"fleet": "lab"}
        firing_now = [Firing("r", name, "critical", f"lost: {name}", "x", 0, facts) for name in subjects]
        monkeypatch.setattr(check, "firings", lambda *_: firing_now)
        return check.check_alerts(RunHistory([]), "runs.json", file, rules, NOW + int(hours * HOUR_NS))

    return run


def rules_for(*channels, **rule):
    """Return one rule that tells all of these channels."""
    names = tuple(channel.name for channel in channels)
    return AlertRules(rule=(AlertRule(name="r", kind="device-lost", severity="critical", channels=names, **rule),), channel=channels)


def hook(server, name="hook", **settings):
    """Return a channel of one JSON message for every alert."""
    return Channel(name=name, kind="webhook", url=server.url, **settings)


def messages_of(server):
    """Return event and title of every message that a listener kept."""
    return [(body["event"], body["alert"]["title"]) for *_, body in server.kept]


def rows(file):
    """Return channel and event of what waits, as SQLite has it."""
    return sqlite3.connect(file.path).execute("SELECT channel, event FROM unsent ORDER BY number").fetchall()


def test_the_pause_after_a_failure_doubles_up_to_a_quarter_of_an_hour(file, at):
    """A check each minute fails and says so; what opened before and during the outage arrives once the receiver is back, each once."""
    with http_listener() as server:
        rules = rules_for(hook(server))
        server.status = 503
        tried_at = []
        for minute in range(50):
            subjects = ("a", "b") if minute > 40 else ("a",)
            (waiting,) = at(minute / 60, rules, *subjects).waiting
            assert (waiting.channel, waiting.notices, waiting.since_ns) == ("hook", len(subjects), NOW)
            assert "503" in waiting.error
            tried_at += [minute] * bool(server.kept)
            server.kept.clear()
        # On minute 41 the second alert opens.
        assert tried_at == [0, 1, 3, 7, 15, 30, 41]
        server.status = 200
        results = [at(1 + number, rules, "a", "b") for number in range(2)]
        assert sorted(messages_of(server)) == [("opened", "lost: a"), ("opened", "lost: b")]
        assert (results[-1].waiting, results[-1].sent) == ([], [])
        assert rows(file) == []


def test_a_receiver_that_refuses_gets_it_when_it_is_corrected(file, at):
    """404 waits longer than 503, and is not given up either; `retry` does not wait."""
    with http_listener() as server:
        rules = rules_for(hook(server))
        server.status = 404
        at(0, rules, "a")
        server.status = 200
        server.kept.clear()
        assert len(at(0.3, rules, "a").waiting) == 1
        assert server.kept == []
        assert at(0.6, rules, "a").waiting == []
        server.status = 404
        at(1, rules, "a", "b")
        server.status = 200
        check.send_waiting(file, rules, NOW + HOUR_NS, is_retry=True)
        assert at(1.1, rules, "a", "b").waiting == []
        assert messages_of(server) == [("opened", "lost: a"), ("opened", "lost: b"), ("opened", "lost: b")]


def test_what_was_accepted_is_not_sent_again_because_another_was_refused(at):
    """The second of three is more than the receiver takes: the first and the third are delivered, and stay so."""
    with http_listener(lambda request, body: request.respond(413 if body["alert"]["title"] == "lost: b" else 200)) as server:
        rules = rules_for(hook(server))
        assert [waiting.notices for waiting in at(0, rules, "a", "b", "c").waiting] == [1]
        assert [body["alert"]["title"] for *_, body in server.kept] == ["lost: a", "lost: b", "lost: c"]
        at(1, rules, "a", "b", "c")
        assert [body["alert"]["title"] for *_, body in server.kept][3:] == ["lost: b"]
        # The same notice has the same identity.
        assert server.kept[1][2]["alert"]["id"] == server.kept[3][2]["alert"]["id"] != ""


def test_a_message_for_all_that_was_refused_holds_up_no_other(at):
    """One text for all alerts: what was in a refused one goes alone the next time."""
    with http_listener(lambda request, body: request.respond(400 if "lost: b" in body["text"] else 200)) as server:
        rules = rules_for(hook(server, format="slack"))
        at(0, rules, "a", "b")
        assert [waiting.notices for waiting in at(1, rules, "a", "b", "c").waiting] == [1]
        assert [body["text"].count("lost:") for *_, body in server.kept] == [2, 1, 1, 1]


def test_a_channel_that_hangs_delays_no_other(at):
    """Another has its alert while the first answers nothing yet."""
    delivered_meanwhile = threading.Event()

    def hang(request, _):
        request.respond(200 if delivered_meanwhile.wait(60) else 500)

    def take(request, _):
        request.respond(200)
        delivered_meanwhile.set()

    with http_listener(hang) as slow, http_listener(take) as quick:
        assert at(0, rules_for(hook(slow, "slow"), hook(quick, "quick")), "a").waiting == []


@pytest.mark.services
def test_a_channel_that_drips_is_given_up_at_its_deadline(file, at, monkeypatch):
    """A byte of its answer now and then, which no timeout of a socket ends."""
    monkeypatch.setattr(delivery, "MESSAGE_S", 1.0)
    is_over = threading.Event()

    def drip(request, _):
        for byte in itertools.cycle(b"HTTP/1.1 200 OK"):
            request.wfile.write(bytes([byte]))
            if is_over.wait(0.1):
                return

    with real_http(drip) as slow:
        (sent,) = at(0, rules_for(hook(slow, "slow")), "a").sent
        is_over.set()
    assert "no complete answer" in sent.error
    assert rows(file) == [("slow", "opened")]


def test_a_mail_that_comes_again_is_recognised(file, at):
    """Its Message-ID is that of the first try, its Date is there; another alert has another, the end of an alert too.

    What a server takes is delivered, though this one hangs up before the goodbye.
    """
    with mail_listener() as server:
        mail = {"kind": "email", "host": "127.0.0.1", "security": "none", "sender": "Edge <e@x.org>", "recipients": ("a@x.org",)}
        rules = rules_for(Channel(name="mail", port=server.server_port, **mail))
        at(0, rules, "a")
        with sqlite3.connect(file.path) as connection:
            # As if the process had been killed before it noted the answer.
            connection.execute(
                "INSERT INTO unsent (number, alert, channel, event, tries, since_ns) VALUES (1, 1, 'mail', 'opened', 0, ?)", (NOW,)
            )
        assert at(1, rules, "a", "b").waiting == []
        at(2, rules, "b")
        mails = [message_from_string(text, policy=policy.default) for text in server.kept]
    first, second, other, over = [message["Message-ID"] for message in mails]
    assert first == second
    assert len({first, other, over}) == 3
    assert first.endswith("@x.org>")
    assert all(message["Date"].datetime is not None for message in mails)
    assert mails[0]["References"] == mails[3]["References"] != mails[2]["References"]


def test_alertmanagers_failed_sends_wait_too(at):
    """It is told of every open alert at every check; while it is away that counts, and one success is enough for all."""
    with http_listener() as server:
        rules = rules_for(Channel(name="pager", kind="alertmanager", url=server.url))
        assert [at(number / 12, rules, "a").waiting for number in (-1, 0)] == [[], []]
        assert [len(body) for *_, body in server.kept] == [1, 1]
        server.status = 500
        for number in range(1, 4):
            (waiting,) = at(number / 12, rules, "a", "b").waiting
            assert (waiting.channel, waiting.notices) == ("pager", 2)
        server.status = 200
        server.kept.clear()
        assert at(0.5, rules, "a", "b").waiting == []
        assert [len(body) for *_, body in server.kept] == [2]


def test_a_fault_of_ours_in_one_channel_is_that_channels_alone(at, monkeypatch):
    """A sender that fails in a way that nobody thought of."""
    original = delivery.sent_messages

    def sent_messages(channel, notices):
        if channel.name == "bad":
            raise KeyError("x")
        return original(channel, notices)

    monkeypatch.setattr(delivery, "sent_messages", sent_messages)
    with http_listener() as server:
        result = at(0, rules_for(hook(server, "bad"), hook(server, "good")), "a")
    assert [(waiting.channel, waiting.error) for waiting in result.waiting] == [("bad", "channel 'bad': KeyError: 'x'")]
    assert messages_of(server) == [("opened", "lost: a")]


def fleet_of_lost_devices(tmp_path, *channels):
    """Return the command of a check of a ledger with five devices that are lost, three of them critical, and these channels."""
    ledger, rules = tmp_path / "ledger.sqlite", tmp_path / "alerts.toml"
    with SqliteLedger(ledger) as opened:
        then = time.time_ns() - 24 * HOUR_NS
        states = [(fleet, f"pi-{number}") for fleet, count in (("lab", 3), ("field", 2)) for number in range(count)]
        opened.commit([], [], [PresenceChange(fleet, name, DeviceState(state="lost", session=1), then) for fleet, name in states])
    names = json.dumps([name for name, _ in channels])
    rule = '[[rule]]\nname = "{0}"\nkind = "device-lost"\nfleet = "{0}"\nseverity = "{1}"\nchannels = {2}\n'
    text = rule.format("lab", "critical", names) + rule.format("field", "warning", names)
    rules.write_text(text + "".join(f'[[channel]]\nname = "{name}"\nkind = "webhook"\nurl = "{url}"\n' for name, url in channels))
    return ledger, [
        *(sys.executable, "-m", "edgemeter.agent.cli.main", "trend", "alerts", "check"),
        *("--rules", str(rules), "--ledger", str(ledger)),
    ]


@pytest.mark.services
def test_a_killed_check_loses_nothing(tmp_path):
    """SIGKILL while the first webhook hangs: five alerts are open, and the next check tells both channels of all, critical ones first."""
    is_reached, is_over = threading.Event(), threading.Event()

    def hang(request, _):
        if is_over.is_set():
            request.respond(200)
        is_reached.set()
        is_over.wait(60)

    with real_http(hang) as pager, real_http() as chat:
        ledger, command = fleet_of_lost_devices(tmp_path, ("pager", pager.url), ("chat", chat.url))
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        assert is_reached.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        is_over.set()
        pager.kept.clear()
        with sqlite3.connect(watch_file_beside(str(ledger))) as connection:
            assert connection.execute("SELECT count(*) FROM alerts WHERE closed_ns IS NULL").fetchone() == (5,)
            assert connection.execute("SELECT count(*) FROM unsent WHERE channel = 'pager'").fetchone() == (5,)
        assert subprocess.run(command, check=False, capture_output=True).returncode == 0
        assert [body["alert"]["severity"] for *_, body in pager.kept] == 3 * ["critical"] + 2 * ["warning"]
        numbers = [body["alert"]["number"] for *_, body in chat.kept]
        assert {*numbers} == {1, 2, 3, 4, 5}
