"""Channels: how the notices of alerts are sent: webhook, Alertmanager, ntfy, e-mail, MQTT, Apprise."""

import json
import logging
import os
import re
import secrets
import smtplib
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from pathlib import Path
from typing import Any, NamedTuple

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.base.plugins import import_extra
from edgemeter.collector.alerts.notices import Notice, alert_document, headline, notice_text
from edgemeter.collector.alerts.posting import post_json
from edgemeter.collector.alerts.rules import Channel

logger = logging.getLogger(__name__)

SMTP_TIMEOUT_S = 10.0
QUIT_TIMEOUT_S = 2.0
MQTT_TIMEOUT_S = 10.0
PERMANENT = 500  # RFC 5321, section 4.2.1.

_PRIORITY = {"critical": 5, "warning": 4, "info": 3}
_QUIET = 2

# ntfy turns a longer message into a file.
_LONGEST_BYTES = 4000
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


class MessageAnswer(NamedTuple):
    """The receiver's answer to one message: the notices in it, and why it refuses them (None: it has them)."""

    notices: Sequence[Notice]
    refusal: str | None = None


def sent_messages(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send notices to one channel, a message with each step of the iteration; yield the answer to each.

    Raises:
        ConfigError: the channel's address or a secret cannot be read, or is invalid.
        TransientError: the delivery failed; retry later.
        UnavailableError: the receiver refuses everything, or a library is not installed.
    """
    return _SENDERS[channel.kind](channel, notices)


def send_notices(channel: Channel, notices: Sequence[Notice]) -> None:
    """Send notices to one channel; raises as `sent_messages`, and UnavailableError if one is refused."""
    for answer in sent_messages(channel, notices):
        if answer.refusal is not None:
            raise UnavailableError(answer.refusal)


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


def _url(channel: Channel) -> str:
    return channel.url or _secret("address", channel.name, channel.url_file, channel.url_env) or ""


def _password(channel: Channel) -> str | None:
    return _secret("password", channel.name, channel.password_file, channel.password_env)


def _posted(
    channel: Channel, address: str, messages: Iterable[tuple[Sequence[Notice], Any]], token: str | None = None
) -> Iterator[MessageAnswer]:
    for notices, body in messages:
        try:
            post_json(channel.name, address, body, token)
        except UnavailableError as error:
            yield MessageAnswer(notices, str(error))
        else:
            yield MessageAnswer(notices)


def _send_webhook(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send JSON to any address: form `json` sends a message for every alert, `slack` (also for Mattermost) one text for all."""
    if channel.format == "slack":
        return _posted(channel, _url(channel), [(notices, {"text": notice_text(notices)})])
    return _posted(channel, _url(channel), (([notice], alert_document(notice)) for notice in notices))


def _send_to_alertmanager(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send alerts to Prometheus Alertmanager, API v2, closed ones with their end."""
    return _posted(channel, f"{_url(channel).rstrip('/')}/api/v2/alerts", [(notices, [_alert(notice) for notice in notices])])


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


def _send_to_ntfy(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send one message for all notices to ntfy.sh or an own server, with the highest priority among them; closed ones are quiet."""
    priority = max(_QUIET if notice.event == "closed" else _PRIORITY[notice.severity] for notice in notices)
    text = notice_text(notices).encode()[:_LONGEST_BYTES].decode("utf-8", "ignore")
    body: dict[str, object] = {"topic": channel.topic, "title": headline(notices), "message": text, "priority": priority}
    link = next((notice.link for notice in notices if notice.link), None)
    token = _secret("token", channel.name, channel.token_file, channel.token_env)
    return _posted(channel, _url(channel), [(notices, body | ({"click": link} if link else {}))], token)


def _send_mail(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send a mail for every alert."""
    password = _password(channel)
    server = None
    try:
        server = _mail_server(channel)
        if channel.user is not None and password is not None:
            server.login(channel.user, password)
        for notice in notices:
            try:
                refused = server.send_message(_mail(channel, notice))
            except smtplib.SMTPException as error:
                if not _is_permanent(error):
                    raise
                yield MessageAnswer([notice], _mail_refusal(channel, error))
            else:
                if refused:
                    logger.warning("channel %r: the mail server refuses some of its recipients: %s", channel.name, refused)
                yield MessageAnswer([notice])
    except (smtplib.SMTPException, OSError) as error:
        if _is_permanent(error):
            raise UnavailableError(_mail_refusal(channel, error)) from error
        raise TransientError(f"channel {channel.name!r}: the mail server {channel.host} cannot be reached ({error})") from error
    finally:
        # What it has accepted it has, whatever becomes of the goodbye.
        with suppress(smtplib.SMTPException, OSError):
            if server is not None and server.sock is not None:
                server.sock.settimeout(QUIT_TIMEOUT_S)
                server.quit()


def _mail(channel: Channel, notice: Notice) -> EmailMessage:
    """Return a notice as a mail. By its Message-ID one that comes again is recognised; mails of one alert are a thread."""
    domain = parseaddr(channel.sender or "")[1].rpartition("@")[2] or "localhost"
    message = EmailMessage()
    message["Subject"] = f"Edgemeter: {' '.join(notice.title.split())}"
    message["From"] = channel.sender
    message["To"] = ", ".join(channel.recipients)
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{notice.id or secrets.token_hex(8)}.{notice.event}@{domain}>"
    message["References"] = f"<alert.{notice.number}.{re.sub('[^0-9]', '', notice.opened_at)}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(notice_text([notice]) + "\n")
    return message


def _mail_refusal(channel: Channel, error: Exception) -> str:
    return f"channel {channel.name!r}: the mail server {channel.host} refuses it ({error}): correct user, password, security or recipients"


def _is_permanent(error: Exception) -> bool:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= PERMANENT for code, _ in error.recipients.values())
    is_response = isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= PERMANENT
    return is_response or isinstance(error, smtplib.SMTPNotSupportedError)


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


def _send_over_mqtt(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send a JSON message for every alert, QoS 1, not retained, so that nobody takes an old one for new."""
    address = parse_address(_url(channel))
    address = replace(address, user=channel.user or address.user, password=_password(channel) or address.password)
    answers = _BrokerAnswers()
    session = MqttSession(address, SessionProfile(f"edgemeter-alerts-{secrets.token_hex(4)}"), answers)
    try:
        session.connect(MQTT_TIMEOUT_S)
        for number, notice in enumerate(notices, 1):
            session.publish(channel.topic or "", json.dumps(alert_document(notice)).encode())
            if not answers.await_answer(number):
                raise TransientError(f"channel {channel.name!r}: the broker at {address} did not accept a message in time")
            refusal = answers.refusals[-1]
            words = f"channel {channel.name!r}: the broker at {address} refuses the topic {channel.topic!r} ({refusal}): allow it"
            yield MessageAnswer([notice], words if refusal else None)
    except UnavailableError as error:
        raise TransientError(f"channel {channel.name!r}: {error}") from error
    finally:
        session.close()


class _BrokerAnswers(SessionEvents):
    """Why the broker refused each message, in the order in which they were sent; None: it has it."""

    def __init__(self) -> None:
        self.refusals: list[str | None] = []
        self._is_lost = False
        self._changed = threading.Condition()

    def await_answer(self, number: int) -> bool:
        """Return whether the answer to the message of that number (from 1) is here, at the latest after `MQTT_TIMEOUT_S`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_lost or len(self.refusals) >= number, MQTT_TIMEOUT_S)
            return len(self.refusals) >= number

    def disconnected(self, reason: str) -> None:  # noqa: ARG002 - the same for every session
        """Session event: what was sent gets no answer."""
        with self._changed:
            self._is_lost = True
            self._changed.notify_all()

    def answered(self, refusal: str | None) -> None:
        """Session event: one message was accepted or refused."""
        with self._changed:
            self.refusals.append(refusal)
            self._changed.notify_all()


def _send_with_apprise(channel: Channel, notices: Sequence[Notice]) -> Iterator[MessageAnswer]:
    """Send notices as one message to one address of Apprise (`pip install 'edgemeter[apprise]'`, BSD-2)."""
    apprise = import_extra("apprise", "apprise", f"channel {channel.name!r} needs Apprise")
    target = apprise.Apprise()
    if not target.add(_url(channel)):
        raise ConfigError(f"channel {channel.name!r}: Apprise does not support its address: see its list of services")
    if not target.notify(title=headline(notices), body=notice_text(notices)):
        raise TransientError(f"channel {channel.name!r}: Apprise could not deliver")
    yield MessageAnswer(notices)


_SENDERS: Mapping[str, Callable[[Channel, Sequence[Notice]], Iterator[MessageAnswer]]] = {
    "webhook": _send_webhook,
    "alertmanager": _send_to_alertmanager,
    "ntfy": _send_to_ntfy,
    "email": _send_mail,
    "mqtt": _send_over_mqtt,
    "apprise": _send_with_apprise,
}
