"""Channels: the notice of an alert, and how it is sent: webhook, Alertmanager, ntfy, e-mail, MQTT, Apprise."""

import http.client
import json
import os
import re
import secrets
import smtplib
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.agent.base.plugins import import_extra
from edgemeter.collector.alerts.firing import Firing, page_address
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.alerts.rules import AlertEvent, Channel

_WORDS = {"opened": "", "updated": "still: ", "closed": "over: "}

POST_TIMEOUT_S = 10.0
SMTP_TIMEOUT_S = 10.0
MQTT_TIMEOUT_S = 10.0
_RESPONSE_BYTES = 300

# Client errors are permanent, except these: too early, too slow, too many requests.
_LATER = frozenset({408, 425, 429})
_PRIORITY = {"critical": 5, "warning": 4, "info": 3}
_QUIET = 2

# ntfy turns a longer message into a file.
_LONGEST_BYTES = 4000
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of an alert, in words and figures; times are RFC 3339, UTC."""

    event: AlertEvent
    number: int
    rule: str
    severity: str
    title: str
    text: str
    facts: dict[str, str]
    opened_at: str
    closed_at: str | None
    link: str | None


def notice_of_alert(event: AlertEvent, alert: Alert, page: str | None) -> Notice:
    """Return the notice of an alert; it links to the alert's series and period below the address of the fleet's `page`."""
    firing = alert.firing
    return Notice(
        event=event,
        number=alert.number,
        rule=firing.rule,
        severity=firing.severity,
        title=_WORDS[event] + firing.title,
        text=firing.text,
        facts=firing.facts,
        opened_at=_rfc3339(alert.opened_ns),
        closed_at=None if alert.closed_ns is None else _rfc3339(alert.closed_ns),
        link=_page_link(page, firing) if page else None,
    )


def _page_link(page: str, firing: Firing) -> str:
    view, fields = page_address(firing)
    return f"{page.rstrip('/')}/{view}" + (f"?{urlencode(sorted(fields.items()))}" if fields else "")


def notice_text(notices: Sequence[Notice]) -> str:
    """Return notices as plain text: two lines each, and the link."""
    return "\n".join(
        f"[{notice.severity}] {notice.title} (#{notice.number})\n{notice.text}" + (f"\n{notice.link}" if notice.link else "")
        for notice in notices
    )


def alert_document(notice: Notice) -> dict[str, object]:
    """Return a notice as a JSON document: a text for people, and the alert for machines."""
    return {"text": notice_text([notice]), "event": notice.event, "alert": asdict(notice)}


def headline(notices: Sequence[Notice]) -> str:
    """Return one line for all notices."""
    return notices[0].title if len(notices) == 1 else f"{len(notices)} alerts: {notices[0].title} and {len(notices) - 1} more"


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _secret(kind: str, channel: str, file: str | None, variable: str | None) -> str | None:
    """Return the secret in `file` or the environment's `variable`, None if neither is named; raises ConfigError if there is none."""
    if file is not None:
        try:
            value = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"channel {channel!r}: cannot read the {kind} from {file!r}: {error}") from error
    elif variable is not None:
        value = os.environ.get(variable, "").strip()
    else:
        return None
    if not value:
        source = f"the file {file!r}" if file is not None else f"the variable {variable}"
        raise ConfigError(f"channel {channel!r}: {source} contains no {kind}: write it there")
    return value


def post_json(channel: str, url: str, body: Any, token: str | None = None) -> None:
    """Send `body` as JSON to `url`; an address is a secret, so messages name only its host.

    Raises:
        ConfigError: it is not an HTTP address.
        UnavailableError: the server refuses it.
        TransientError: the delivery failed; retry later.
    """
    host = _host(channel, url)
    headers = {"Content-Type": "application/json", "User-Agent": "edgemeter"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - checked by _host
    try:
        with urllib.request.urlopen(request, timeout=POST_TIMEOUT_S) as response:  # noqa: S310 - checked by _host
            response.read(_RESPONSE_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            reply = error.read(_RESPONSE_BYTES).decode("utf-8", "replace")
        raise (TransientError if error.code >= 500 or error.code in _LATER else UnavailableError)(
            f"channel {channel!r}: {host} responds {error.code} {error.reason}: {reply}"
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise TransientError(f"channel {channel!r}: {host} cannot be reached ({reason}): retrying at the next check") from error


def _host(channel: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise ConfigError(f"channel {channel!r}: its url is not an http:// or https:// address: correct it")
    return host


def send_notices(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send notices to one channel; may block for ten seconds a message.

    Raises:
        ConfigError: the channel's address or a secret cannot be read, or is invalid.
        TransientError: the delivery failed; retry later.
        UnavailableError: the receiver refuses, or a library is not installed.
    """
    _SENDERS[channel.kind](channel, notices)


def _url(channel: Channel) -> str:
    return channel.url or _secret("address", channel.name, channel.url_file, channel.url_env) or ""


def _password(channel: Channel) -> str | None:
    return _secret("password", channel.name, channel.password_file, channel.password_env)


def _send_webhook(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send JSON to any address: form `json` sends a message for every alert, `slack` (also for Mattermost) one text for all."""
    url = _url(channel)
    for body in [{"text": notice_text(notices)}] if channel.format == "slack" else map(alert_document, notices):
        post_json(channel.name, url, body)


def _send_to_alertmanager(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send alerts to Prometheus Alertmanager, API v2, closed ones with their end."""
    post_json(channel.name, f"{_url(channel).rstrip('/')}/api/v2/alerts", [_alert(notice) for notice in notices])


def _alert(notice: Notice) -> dict[str, object]:
    """Return an alert; its labels identify it: the rule and its subject, nothing that changes while it lasts."""
    labels = {"alertname": notice.rule, "severity": notice.severity, "number": str(notice.number)}
    labels |= {re.sub(r"[^a-zA-Z0-9_]", "_", name): value for name, value in notice.facts.items()}
    alert: dict[str, object] = {
        "labels": labels,
        "annotations": {"summary": notice.title, "description": notice.text},
        "startsAt": notice.opened_at,
    }
    if notice.closed_at is not None:
        alert["endsAt"] = notice.closed_at
    if notice.link is not None:
        alert["generatorURL"] = notice.link
    return alert


def _send_to_ntfy(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send one message for all notices to ntfy.sh or an own server, with the highest priority among them; closed ones are quiet."""
    priority = max(_QUIET if notice.event == "closed" else _PRIORITY[notice.severity] for notice in notices)
    text = notice_text(notices).encode()[:_LONGEST_BYTES].decode("utf-8", "ignore")
    body: dict[str, object] = {"topic": channel.topic, "title": headline(notices), "message": text, "priority": priority}
    link = next((notice.link for notice in notices if notice.link), None)
    token = _secret("token", channel.name, channel.token_file, channel.token_env)
    post_json(channel.name, _url(channel), body | ({"click": link} if link else {}), token)


def _send_mail(channel: Channel, notices: Sequence[Notice]) -> None:
    message = EmailMessage()
    message["Subject"] = f"Edgemeter: {' '.join(headline(notices).split())}"
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.recipients)
    message.set_content(notice_text(notices) + "\n")
    password = _password(channel)
    try:
        with _mail_server(channel) as server:
            if channel.user is not None and password is not None:
                server.login(channel.user, password)
            server.send_message(message)
    except (smtplib.SMTPAuthenticationError, smtplib.SMTPNotSupportedError, smtplib.SMTPRecipientsRefused) as error:
        raise UnavailableError(
            f"channel {channel.name!r}: the mail server {channel.host} refuses it ({error}): correct user, password, security or recipients"
        ) from error
    except (smtplib.SMTPException, OSError) as error:
        raise TransientError(
            f"channel {channel.name!r}: the mail server {channel.host} cannot be reached ({error}): retrying at the next check"
        ) from error


def _mail_server(channel: Channel) -> smtplib.SMTP:
    host, port = channel.host or "", channel.port or _PORTS[channel.security]
    if channel.security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=SMTP_TIMEOUT_S, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port, timeout=SMTP_TIMEOUT_S)
    if channel.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _send_over_mqtt(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send a JSON message for every alert, QoS 1, not retained, so that nobody takes an old one for new."""
    address = parse_address(_url(channel))
    address = replace(address, user=channel.user or address.user, password=_password(channel) or address.password)
    answers = _BrokerAnswers()
    session = MqttSession(address, SessionProfile(f"edgemeter-alerts-{secrets.token_hex(4)}"), answers)
    try:
        session.connect(MQTT_TIMEOUT_S)
        for notice in notices:
            session.publish(channel.topic or "", json.dumps(alert_document(notice)).encode())
        session.flush(MQTT_TIMEOUT_S)
    except UnavailableError as error:
        raise TransientError(f"channel {channel.name!r}: {error}") from error
    finally:
        session.close()
    if answers.refusals:
        raise UnavailableError(
            f"channel {channel.name!r}: the broker at {address} refuses the topic {channel.topic!r} ({answers.refusals[0]}): allow it"
        )
    if answers.accepted < len(notices):
        raise TransientError(f"channel {channel.name!r}: the broker at {address} did not accept all messages: retrying at the next check")


class _BrokerAnswers:
    def __init__(self) -> None:
        self.accepted = 0
        self.refusals: list[str] = []

    def connected(self) -> None:
        """Session event."""

    def disconnected(self, reason: str) -> None:
        """Session event."""

    def received(self, message: Message) -> None:
        """Session event."""

    def answered(self, refusal: str | None) -> None:
        """Session event: one message was accepted or refused."""
        if refusal is None:
            self.accepted += 1
        else:
            self.refusals.append(refusal)


def _send_with_apprise(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send notices as one message to one address of Apprise (`pip install 'edgemeter[apprise]'`, BSD-2)."""
    apprise = import_extra("apprise", "apprise", f"channel {channel.name!r} needs Apprise")
    target = apprise.Apprise()
    if not target.add(_url(channel)):
        raise ConfigError(f"channel {channel.name!r}: Apprise does not support its address: see its list of services")
    if not target.notify(title=headline(notices), body=notice_text(notices)):
        raise TransientError(f"channel {channel.name!r}: Apprise could not deliver: retrying at the next check")


_SENDERS: Mapping[str, Callable[[Channel, Sequence[Notice]], None]] = {
    "webhook": _send_webhook,
    "alertmanager": _send_to_alertmanager,
    "ntfy": _send_to_ntfy,
    "email": _send_mail,
    "mqtt": _send_over_mqtt,
    "apprise": _send_with_apprise,
}
