import json
import re
import sys
from email import message_from_string, policy

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.collector.alerts import check
from edgemeter.collector.alerts.channels import send_notices
from edgemeter.collector.alerts.firing import Firing, FiringMember
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.alerts.notices import Notice, notice_of_alert
from edgemeter.collector.alerts.rules import AlertRules, Channel
from tests.fixtures.listeners import http_listener, mail_listener, real_http
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import address_of, mosquitto

FACTS = {"fleet": "lab", "device": "pi-1", "metric": "energy_gross_mj"}
MAIL = {"kind": "email", "host": "127.0.0.1", "sender": "e@x.org", "recipients": ("a@x.org",)}
OPENED = Notice(
    "opened", 3, "confirmed step", "critical", "step: energy on pi-1", "+5%", FACTS, "2026-11-20T08:00:00Z", None, "https://f.example"
)
CLOSED = Notice("closed", 4, "drift", "info", "over: drift", "+1%", FACTS, "2026-11-19T08:00:00Z", "2026-11-20T08:00:00Z", None)


@pytest.fixture
def http():
    """Return an HTTP server that keeps what it is sent."""
    with http_listener() as server:
        yield server


@pytest.fixture
def mail():
    """Return an SMTP server that keeps mails."""
    with mail_listener() as server:
        yield server


def send(notices, **channel):
    """Send notices to a channel as a check does."""
    send_notices(Channel(name="c", **channel), notices)


def test_a_webhook_for_slack_gets_one_text(http):
    """Nothing but `text`, with everything that happened."""
    send([OPENED, CLOSED], kind="webhook", url=http.url + "/hook", format="slack")
    ((path, headers, body),) = http.kept
    assert path == "/hook"
    assert headers["Content-Type"] == "application/json"
    assert set(body) == {"text"}
    assert "step: energy on pi-1" in body["text"]
    assert "over: drift" in body["text"]


def test_a_notice_links_to_the_series_and_the_period():
    """Of an event to what all its members have in common; of a board without a series to the board."""

    def linked(facts, members=(), day=20_000):
        firing = Firing("r", "s", "warning", "t", "x", day, facts, tuple(FiringMember("s", "x", day, member) for member in members))
        return notice_of_alert("opened", Alert(1, firing, 0, 0, None, None, None), "https://f.example/").link

    facts_of_case = FACTS | {"board": "Pi 5", "model": "tiny", "precision": "int8", "case": "c"}
    # Fields stand in the order of the alphabet.
    period = f"between={(20_000 - 14) * 86_400_000}%2C{(20_000 + 30) * 86_400_000}&board=Pi+5"
    narrowed = "&device=pi-1&fleet=lab&metric=energy_gross_mj&model=tiny&precision=int8"
    assert linked(facts_of_case) == f"https://f.example/trend?{period}{narrowed}"
    event = linked({"fleet": "lab"}, [facts_of_case, {**facts_of_case, "device": "pi-2", "precision": "fp32"}])
    assert "device=" not in event
    assert "model=tiny" in event
    assert linked({"fleet": "lab", "device": "pi-1"}, day=0) == "https://f.example/device?device=pi-1&fleet=lab"


def test_a_webhook_gets_every_alert_as_json(http):
    """A message an alert, with text for people and facts for machines."""
    send([OPENED, CLOSED], kind="webhook", url=http.url)
    bodies = [body for _, _, body in http.kept]
    assert [(body["event"], body["alert"]["number"]) for body in bodies] == [("opened", 3), ("closed", 4)]
    assert bodies[0]["alert"]["facts"] == FACTS


def test_alertmanager_gets_labels_times_and_the_end(http):
    """The shape of POST /api/v2/alerts: an array, label names as Prometheus has them, RFC 3339 times."""
    send([OPENED, CLOSED], kind="alertmanager", url=http.url + "/")
    ((path, _, body),) = http.kept
    assert path == "/api/v2/alerts"
    first, second = body
    assert first["labels"] == {"alertname": "confirmed step", "severity": "critical", "number": "3", **FACTS}
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) for name in first["labels"])
    assert first["startsAt"] == "2026-11-20T08:00:00Z"
    assert "endsAt" not in first
    assert second["endsAt"] == "2026-11-20T08:00:00Z"
    assert first["generatorURL"] == "https://f.example"


def test_ntfy_gets_one_message_as_urgent_as_its_most_urgent(http, monkeypatch):
    """With the token of the environment as bearer; what is over alone is quiet."""
    monkeypatch.setenv("T", "secret")
    send([CLOSED, OPENED], kind="ntfy", url=http.url, topic="edge", token_env="T")
    send([CLOSED], kind="ntfy", url=http.url, topic="edge")
    (_, headers, body), (_, _, quiet) = http.kept
    assert headers["Authorization"] == "Bearer secret"
    assert (body["topic"], body["priority"], body["click"]) == ("edge", 5, "https://f.example")
    assert quiet["priority"] == 2


def test_a_mail_arrives_with_subject_and_text(mail):
    """Handed in over SMTP, umlauts and all."""
    notice = Notice(**{name: getattr(OPENED, name) for name in Notice.__slots__} | {"title": "step: Gerät pi-1"})
    send([notice], **MAIL | {"recipients": ("a@x.org", "b@x.org")}, port=mail.server_port, security="none")
    (mail_text,) = mail.kept
    message = message_from_string(mail_text, policy=policy.default)
    assert message["Subject"] == "Edgemeter: step: Gerät pi-1"
    assert message["To"] == "a@x.org, b@x.org"
    assert "+5%" in message.get_content()


def test_a_mail_server_that_refuses_is_distinguished_from_an_absent_one(mail):
    """No TLS where it was asked for, a recipient it does not know: correct it. Nobody listens: later."""
    port = mail.server_port
    for changes, error, words in (
        ({"port": port}, UnavailableError, "refuses"),
        ({"port": port, "security": "none", "recipients": ("nobody@x.org",)}, UnavailableError, "refuses"),
        ({"port": port - 1, "security": "none"}, TransientError, "cannot be reached"),
    ):
        with table_row(changes), pytest.raises(error, match=words):
            send([OPENED], **MAIL | changes)


def test_the_reply_of_a_server_decides_whether_it_is_tried_again(http):
    """Refused is refused; too busy is for later. The address, a secret, stands in no message."""
    for status, error in ((404, UnavailableError), (400, UnavailableError), (503, TransientError), (429, TransientError)):
        with table_row(status):
            http.status = status
            with pytest.raises(error) as raised:
                send([OPENED], kind="webhook", url=http.url + "/very-secret")
            assert str(status) in str(raised.value)
            assert "very-secret" not in str(raised.value)


def test_an_address_that_is_none_and_a_secret_that_is_absent_are_errors(tmp_path, monkeypatch, http):
    """Each named; an address is read from its file, and nobody listens there."""
    monkeypatch.delenv("NOPE", raising=False)
    (tmp_path / "url").write_text(f"http://127.0.0.1:{http.server_port - 1}/x\n")
    for address, error, words in (
        ({"url": "ftp://x"}, ConfigError, "not an http"),
        ({"url_env": "NOPE"}, ConfigError, "NOPE contains no address"),
        ({"url_file": str(tmp_path / "none")}, ConfigError, "cannot read the address"),
        ({"url_file": str(tmp_path / "url")}, TransientError, "cannot be reached"),
    ):
        with table_row(address), pytest.raises(error, match=words):
            send([OPENED], kind="webhook", **address)


@pytest.mark.mosquitto
def test_mqtt_gets_every_alert_as_json_and_a_broker_that_refuses_is_reported(tmp_path, monkeypatch):
    """The same document as a webhook's, not retained; a rule or a password is missing: correct it; a broker that is away is for later."""
    monkeypatch.setenv("P", "wrong")
    (tmp_path / "acl").write_text("topic readwrite edgemeter/alerts\n")
    server = mosquitto(tmp_path, f"acl_file {tmp_path}/acl")
    server.start()
    channel = {"kind": "mqtt", "url": f"mqtt://{address_of(server)}", "topic": "edgemeter/alerts"}
    peer = Peer(address_of(server), "edgemeter/alerts")
    send([OPENED, CLOSED], **channel)
    assert wait_until(lambda: len(peer.messages) == 2)
    bodies = [json.loads(message.payload) for message in peer.messages]
    assert [(body["event"], body["alert"]["number"]) for body in bodies] == [("opened", 3), ("closed", 4)]
    peer.close()
    late = Peer(address_of(server), "edgemeter/alerts", client_id="late")
    assert late.messages == []
    late.close()
    with pytest.raises(UnavailableError, match="refuses the topic 'other'"):
        send([OPENED], **channel | {"topic": "other"})
    server.kill()
    with pytest.raises(TransientError, match="no MQTT broker answers"):
        send([OPENED], **channel)
    (tmp_path / "users").write_text("")
    server = mosquitto(tmp_path, "allow_anonymous false", f"password_file {tmp_path}/users")
    server.start()
    with pytest.raises(ConfigError, match="refuses user 'me'"):
        send([OPENED], **channel | {"url": f"mqtt://me@{address_of(server)}", "password_env": "P"})
    server.kill()


def test_without_apprise_the_error_names_how_to_install_it(monkeypatch):
    """The pip command."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[apprise\]'"):
        send([OPENED], kind="apprise", url="json://127.0.0.1")


@pytest.mark.needs(module="apprise")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_apprise_delivers():
    """Through its own json:// to a real server."""
    with real_http() as http:
        send([OPENED], kind="apprise", url=f"json://127.0.0.1:{http.server_port}/x")
        assert http.kept[0][2]["title"] == "step: energy on pi-1"
        with pytest.raises(ConfigError, match="Apprise"):
            send([OPENED], kind="apprise", url="nonsense")


def test_a_test_goes_to_the_channel_that_is_named(http):
    """And only one that is there."""
    rules = AlertRules(channel=(Channel(name="chat", kind="webhook", url=http.url, format="slack"),))
    check.send_test(rules, "chat")
    assert "no alert has opened" in http.kept[0][2]["text"]
    with pytest.raises(ConfigError, match="the rules define chat"):
        check.send_test(rules, "pager")
