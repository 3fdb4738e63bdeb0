"""Test what a receiver gets from a channel and what counts as delivered.

No error shows a secret.
"""

import sys
import time

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.alerts import check
from edgemeter.collector.alerts.channels import sent_messages
from edgemeter.collector.alerts.check import alerts_of, check_alerts, undelivered_texts
from edgemeter.collector.alerts.firing import Alert, AlertFinding
from edgemeter.collector.alerts.rules import AlertRules, Channel
from tests.fixtures.listeners import real_http, real_mail
from tests.fixtures.mqtt_peer import Peer, wait_until
from tests.fixtures.rows import table_row
from tests.fixtures.servers import address_of, mosquitto

FACTS = {"fleet": "lab", "device": "pi-1", "metric": "energy_gross_mj", "model": "tiny"}
NOW_NS = 1_800_000_000 * 10**9
PAGE = "https://fleet.example/"
# Apprise imports what warns.
pytestmark = [
    pytest.mark.needs(module="apprise"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def make_alert(number, *, closed_ns=None, severity="critical", text="+5%", kind="limit"):
    finding = AlertFinding(kind, f"{kind}: energy on pi-1", text, 20_000, FACTS)
    times = {"number": number, "opened_ns": NOW_NS, "closed_ns": closed_ns}
    return Alert("over 5 J", severity, ("c",), finding.title, text, (finding,), **times)


OPENED, CLOSED = make_alert(3), make_alert(4, closed_ns=NOW_NS + 10**9, severity="info")


def send(alerts, **channel):
    """Send alerts to a channel; return those of each message."""
    return list(sent_messages(Channel(name="c", **channel), alerts, PAGE, NOW_NS))


@pytest.mark.services
def test_alertmanager_gets_labels_times_and_the_end():
    """Alertmanager gets an array; an open alert ends after three checks that do not come.

    A step keeps its labels when other boards join it.
    """
    with real_http() as http:
        send([OPENED, CLOSED], kind="alertmanager", url=http.url + "/")
        ((path, _, body),) = http.kept
        assert path == "/api/v2/alerts"
        first, second = body
        assert first["labels"] == {
            "alertname": "over 5 J",
            "severity": "critical",
            "number": "3",
            "fleet": "lab",
            "device": "pi-1",
        }
        assert (first["startsAt"], first["endsAt"]) == (
            "2027-01-15T08:00:00Z",
            "2027-01-15T08:15:00Z",
        )
        assert second["endsAt"] == "2027-01-15T08:00:01Z"
        assert first["generatorURL"].startswith("https://fleet.example/trend?between=")
        send([make_alert(5, kind="step")], kind="alertmanager", url=http.url)
        assert http.kept[1][2][0]["labels"] == {
            "alertname": "over 5 J",
            "severity": "critical",
            "number": "5",
            "fleet": "lab",
        }
        http.status = 503
        with pytest.raises(TransientError, match="503"):
            send([OPENED], kind="alertmanager", url=http.url)
    with pytest.raises(ConfigError, match="http://"):
        send([OPENED], kind="alertmanager", url="ftp://x")


@pytest.mark.services
def test_a_webhook_gets_what_happened_and_a_refusal_shows_no_secret(monkeypatch):
    """Neither a redirect to another page nor an error counts as a delivery.

    All alerts are in one message, and no error shows the address.
    """
    monkeypatch.setenv("HOOK_PASSWORD", "hunter22")
    with real_http(
        lambda request, _: request.respond(
            302 if "moved" in request.path else server.status, Location="/login"
        )
    ) as server:
        address = server.url.replace("http", "json")
        assert send([OPENED, CLOSED], url=f"{address}/very-secret") == [[OPENED, CLOSED]]
        ((_, _, body),) = server.kept
        assert body["title"] == "[critical] limit: energy on pi-1 (#3) and 1 more"
        assert body["type"] == "failure"
        for words in (
            "[critical] limit: energy on pi-1 (#3)\n+5%\nhttps://fleet.example/trend?",
            "[info] over: limit: energy on pi-1 (#4)",
        ):
            assert words in body["message"]
        server.status = 404
        for path, words in (
            ("very-secret", "404"),
            ("very-secret-moved", "302"),
            ("very-secret", "404"),
        ):
            with table_row(path), pytest.raises(TransientError, match=words) as raised:
                send([OPENED], url=f"{address}/{path}?password=$HOOK_PASSWORD")
            assert not any(secret in str(raised.value) for secret in ("very-secret", "hunter22"))
    with pytest.raises(ConfigError, match="does not support") as refused:
        send([OPENED], url="nonsense://very-secret")
    assert "very-secret" not in str(refused.value)


@pytest.mark.services
def test_what_is_too_long_for_one_message_goes_in_several():
    """One message has as many alerts as the service takes, here 32,768 characters."""
    with real_http() as http:
        alerts = [make_alert(number, text=f"{number} " + 9000 * "x") for number in range(1, 6)]
        parts = send(alerts, url=http.url.replace("http", "json"))
        assert [[alert.number for alert in part] for part in parts] == [[1, 2, 3], [4, 5]]
        assert len(http.kept) == 2


@pytest.mark.services
def test_a_mail_arrives_and_a_recipient_that_is_refused_does_not():
    """The mail is handed in over SMTP, with subject and text."""
    with real_mail() as mail:
        address = f"mailto://127.0.0.1:{mail.server_port}?from=e@x.org&mode=insecure&format=text"
        send([OPENED], url=f"{address}&to=a@x.org")
        (text,) = mail.kept
        assert "Subject: [critical] limit: energy on pi-1 (#3)" in text
        assert "+5%" in text
        with pytest.raises(TransientError):
            send([OPENED], url=f"{address}&to=nobody@x.org")


@pytest.mark.mosquitto
def test_an_mqtt_broker_has_a_message_only_when_it_takes_it(tmp_path):
    """A topic that the broker forbids is no delivery, and neither is a broker that is away."""
    (tmp_path / "acl").write_text("topic readwrite edgemeter/alerts\n")
    server = mosquitto(tmp_path, f"acl_file {tmp_path}/acl")
    server.start()
    peer = Peer(address_of(server), "edgemeter/alerts")
    send([OPENED], url=f"mqtt://{address_of(server)}/edgemeter/alerts")
    assert wait_until(lambda: len(peer.messages) == 1)
    assert "limit: energy on pi-1" in peer.messages[0].payload.decode()
    peer.close()
    with pytest.raises(TransientError, match="Not authorized"):
        send([OPENED], url=f"mqtt://{address_of(server)}/other")
    server.kill()
    with pytest.raises(UnavailableError) as away:
        send([OPENED], url=f"mqtt://lab:very-secret@{address_of(server)}/edgemeter/alerts")
    assert "very-secret" not in str(away.value)
    with pytest.raises(ConfigError, match="no topic"):
        send([OPENED], url=f"mqtt://{address_of(server)}")


@pytest.mark.services
def test_a_channel_that_hangs_holds_no_other_up(tmp_path, monkeypatch):
    """A channel that hangs is given up after its time.

    A test alert goes to every channel each time, and the next check ends it.
    """
    monkeypatch.setattr(check, "SENDING_S", 0.5)
    monkeypatch.setattr(check, "ANSWER_S", 0.5)
    SqliteLedger(tmp_path / "ledger.sqlite").close()
    with real_http() as http, real_http(lambda *_: time.sleep(5)) as hanging:
        urls = {"good": http.url, "hangs": hanging.url}
        rules = AlertRules(
            channel=tuple(
                Channel(name=name, url=url.replace("http", "json")) for name, url in urls.items()
            )
        )
        for seconds, is_test, accepted in ((0, True, 1), (1, True, 2), (2, False, 1)):
            result = check_alerts(
                [str(tmp_path / "ledger.sqlite")],
                rules,
                lambda now_ns=NOW_NS + seconds * 10**9: now_ns,
                is_test=is_test,
            )
            assert dict(result.sent) == {"good": accepted}
        assert undelivered_texts(alerts_of(tmp_path / "ledger.sqlite")[1]) == [
            "2 alerts undelivered to hangs: no complete answer within 0.5 s"
        ]
        titles = [
            "[info] test of Edgemeter (#1)",
            "[info] test of Edgemeter (#2) and 1 more",
            "[info] over: test of Edgemeter (#2)",
        ]
        assert [body["title"] for _, _, body in http.kept] == titles


def test_a_secret_that_is_absent_and_a_missing_apprise_are_errors_with_a_remedy(monkeypatch):
    """Each error names the remedy."""
    monkeypatch.delenv("NOPE", raising=False)
    for url in ("$NOPE", "json://lab:${NOPE}@h", "json://lab:a$@h"):
        with (
            table_row(url),
            pytest.raises(ConfigError, match="a variable in the url of channel 'c' is not set"),
        ):
            send([OPENED], url=url)
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(UnavailableError, match=r"pip install 'edgemeter\[collector\]'"):
        send([OPENED], url="json://127.0.0.1")
