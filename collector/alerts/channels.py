"""Channels: the notice of an alert, and its senders: webhook, Alertmanager, ntfy, e-mail, MQTT, Apprise."""

import http.client
import json
import os
import re
import secrets
import smtplib
import ssl
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from email.message import EmailMessage
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.collector.alerts.lifecycle import Alert, AlertChange
from edgemeter.collector.alerts.page_address import page_link
from edgemeter.collector.alerts.rules import AlertEvent

_WORDS = {"opened": "", "updated": "still: ", "closed": "over: "}


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


class AlertSender(Protocol):
    """Sends notices to one channel. Called from one thread; may block for ten seconds a message."""

    def send(self, notices: list[Notice]) -> None:
        """Send notices.

        Raises:
            ConfigError: the channel's address or secret is invalid.
            TransientError: the delivery failed; retry later.
            UnavailableError: the receiver refuses, or a library is not installed.
        """
        ...


def notice_of_change(change: AlertChange, page: str | None) -> Notice:
    """Return the notice of a change of an alert."""
    return notice_of_alert(change.event, change.alert, page)


def notice_of_alert(event: AlertEvent, alert: Alert, page: str | None) -> Notice:
    """Return the notice of an alert; it links to the alert's series and period below the address of the fleet's `page`."""
    one = alert.firing
    return Notice(
        event=event,
        number=alert.number,
        rule=one.rule,
        severity=one.severity,
        title=_WORDS[event] + one.title,
        text=one.text,
        facts=one.facts,
        opened_at=_rfc3339(alert.opened_ns),
        closed_at=None if alert.closed_ns is None else _rfc3339(alert.closed_ns),
        link=page_link(page, one) if page else None,
    )


def notice_text(notices: list[Notice]) -> str:
    """Return notices as plain text: two lines each, and the link."""
    return "\n".join(f"[{one.severity}] {one.title} (#{one.number})\n{one.text}" + (f"\n{one.link}" if one.link else "") for one in notices)


def alert_document(notice: Notice) -> dict[str, object]:
    """Return a notice as a JSON document: a text for people, and the alert for machines."""
    return {"text": notice_text([notice]), "event": notice.event, "alert": asdict(notice)}


def headline(notices: list[Notice]) -> str:
    """Return one line for all notices."""
    return notices[0].title if len(notices) == 1 else f"{len(notices)} alerts: {notices[0].title} and {len(notices) - 1} more"


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def secret(what: str, channel: str, file: str | None, variable: str | None) -> str | None:
    """Return the secret in `file`, or in the environment's `variable`; None if neither is named.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    if file is not None:
        try:
            value = Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"channel {channel!r}: cannot read the {what} from {file!r}: {error}") from error
    elif variable is not None:
        value = os.environ.get(variable, "").strip()
    else:
        return None
    if not value:
        place = f"the file {file!r}" if file is not None else f"the variable {variable}"
        raise ConfigError(f"channel {channel!r}: {place} contains no {what}: write it there")
    return value


POST_TIMEOUT_S = 10.0
_RESPONSE_BYTES = 300

# Client errors are permanent, except these: too early, too slow, too many requests.
_LATER = frozenset({408, 425, 429})


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


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """JSON to any address: form `json` sends a message for every alert, `slack` (also for Mattermost) one text for all."""

    name: str
    url: str
    form: Literal["json", "slack"] = "json"

    def send(self, notices: list[Notice]) -> None:
        """Send notices."""
        if self.form == "slack":
            post_json(self.name, self.url, {"text": notice_text(notices)})
            return
        for notice in notices:
            post_json(self.name, self.url, alert_document(notice))


@dataclass(frozen=True, slots=True)
class AlertmanagerSender:
    """Prometheus Alertmanager, API v2. Labels identify an alert: the rule and its subject, nothing that changes while it lasts."""

    name: str
    url: str

    def send(self, notices: list[Notice]) -> None:
        """Send alerts, closed ones with their end."""
        post_json(self.name, f"{self.url.rstrip('/')}/api/v2/alerts", [_alert(notice) for notice in notices])


def _alert(notice: Notice) -> dict[str, object]:
    labels = {"alertname": notice.rule, "severity": notice.severity, "number": str(notice.number)}
    labels |= {re.sub(r"[^a-zA-Z0-9_]", "_", name): value for name, value in notice.facts.items()}
    found: dict[str, object] = {
        "labels": labels,
        "annotations": {"summary": notice.title, "description": notice.text},
        "startsAt": notice.opened_at,
    }
    if notice.closed_at is not None:
        found["endsAt"] = notice.closed_at
    if notice.link is not None:
        found["generatorURL"] = notice.link
    return found


_PRIORITY = {"critical": 5, "warning": 4, "info": 3}
_QUIET = 2

# ntfy turns a longer message into a file.
_LONGEST_BYTES = 4000


@dataclass(frozen=True, slots=True)
class NtfySender:
    """ntfy, from ntfy.sh or an own server: one message for all notices, with the highest priority among them; closed ones are quiet."""

    name: str
    url: str
    topic: str
    token: str | None = None

    def send(self, notices: list[Notice]) -> None:
        """Send notices."""
        priority = max(_QUIET if one.event == "closed" else _PRIORITY[one.severity] for one in notices)
        text = notice_text(notices).encode()[:_LONGEST_BYTES].decode("utf-8", "ignore")
        body: dict[str, object] = {"topic": self.topic, "title": headline(notices), "message": text, "priority": priority}
        link = next((one.link for one in notices if one.link), None)
        post_json(self.name, self.url, body | ({"click": link} if link else {}), self.token)


SMTP_TIMEOUT_S = 10.0
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class EmailSender:
    """E-mail by SMTP: one message for all notices."""

    name: str
    host: str
    sender: str
    recipients: tuple[str, ...]
    port: int | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password: str | None = None

    def send(self, notices: list[Notice]) -> None:
        """Send notices."""
        message = EmailMessage()
        message["Subject"] = f"Edgemeter: {' '.join(headline(notices).split())}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.recipients)
        message.set_content(notice_text(notices) + "\n")
        try:
            with self._connected() as server:
                if self.user is not None and self.password is not None:
                    server.login(self.user, self.password)
                server.send_message(message)
        except (smtplib.SMTPAuthenticationError, smtplib.SMTPNotSupportedError, smtplib.SMTPRecipientsRefused) as error:
            raise UnavailableError(
                f"channel {self.name!r}: the mail server {self.host} refuses it ({error}): correct user, password, security or recipients"
            ) from error
        except (smtplib.SMTPException, OSError) as error:
            raise TransientError(
                f"channel {self.name!r}: the mail server {self.host} cannot be reached ({error}): retrying at the next check"
            ) from error

    def _connected(self) -> smtplib.SMTP:
        port = self.port or _PORTS[self.security]
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, port, timeout=SMTP_TIMEOUT_S, context=ssl.create_default_context())
        server = smtplib.SMTP(self.host, port, timeout=SMTP_TIMEOUT_S)
        if self.security == "starttls":
            try:
                server.starttls(context=ssl.create_default_context())
            except BaseException:
                server.close()
                raise
        return server


MQTT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class MqttSender:
    """MQTT: a JSON message for every alert, QoS 1, not retained, so that nobody takes an old one for new."""

    name: str
    address: BrokerAddress
    topic: str

    def send(self, notices: list[Notice]) -> None:
        """Send notices; done when the broker has accepted all."""
        answers = _BrokerAnswers()
        session = MqttSession(self.address, SessionProfile(f"edgemeter-alerts-{secrets.token_hex(4)}"), answers)
        try:
            session.connect(MQTT_TIMEOUT_S)
            for notice in notices:
                session.publish(self.topic, json.dumps(alert_document(notice)).encode())
            session.flush(MQTT_TIMEOUT_S)
        except UnavailableError as error:
            raise TransientError(f"channel {self.name!r}: {error}") from error
        finally:
            session.close()
        if answers.refusals:
            raise UnavailableError(
                f"channel {self.name!r}: the broker at {self.address} refuses the topic {self.topic!r} ({answers.refusals[0]}): allow it"
            )
        if answers.taken < len(notices):
            raise TransientError(
                f"channel {self.name!r}: the broker at {self.address} did not accept all messages: retrying at the next check"
            )


class _BrokerAnswers:
    """Counts the broker's answers."""

    def __init__(self) -> None:
        self.taken = 0
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
            self.taken += 1
        else:
            self.refusals.append(refusal)


@dataclass(frozen=True, slots=True)
class AppriseSender:
    """One address of Apprise (`pip install 'edgemeter[apprise]'`, BSD-2)."""

    name: str
    url: str

    def send(self, notices: list[Notice]) -> None:
        """Send notices as one message."""
        try:
            apprise = import_module("apprise")
        except ImportError as error:
            raise UnavailableError(f"channel {self.name!r} needs Apprise: pip install 'edgemeter[apprise]'") from error
        target = apprise.Apprise()
        if not target.add(self.url):
            raise ConfigError(f"channel {self.name!r}: Apprise does not support its address: see its list of services")
        if not target.notify(title=headline(notices), body=notice_text(notices)):
            raise TransientError(f"channel {self.name!r}: Apprise could not deliver: retrying at the next check")
