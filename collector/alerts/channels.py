"""A channel is a service of Apprise, an MQTT topic or an Alertmanager that alerts are sent to.

Apprise sends mail and reaches ntfy, Slack, webhooks and a hundred other services.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from logging.handlers import BufferingHandler
from queue import SimpleQueue
from urllib.parse import unquote, urlencode, urlsplit

from edgemeter.agent.base.broker_address import parse_address
from edgemeter.agent.base.broker_url import DEFAULT_PORTS
from edgemeter.agent.base.errors import ConfigError, TransientError, one_line
from edgemeter.agent.base.http_client import FAILURES, open_url
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.base.number_text import iso_stamp
from edgemeter.agent.base.plugins import import_extra
from edgemeter.collector.alerts.firing import Alert, common_facts, page_address
from edgemeter.collector.alerts.rules import Channel

POST_TIMEOUT_S = 10.0
# Alertmanager ends an alert that is not repeated within this time. Source: three intervals of
# edgemeter-alerts.timer.
ALERTMANAGER_S = 900
# A part of an address that is at least this long may be a secret.
_SECRET_LENGTH = 5


def sent_messages(
    channel: Channel, alerts: Sequence[Alert], page: str | None, now_ns: int
) -> Iterator[Sequence[Alert]]:
    """Send alerts to a channel, one message per iteration; yield each accepted message's alerts.

    Alerts are sent in their present state. A message of Apprise (BSD-2) contains as many alerts as
    the service accepts, with the title of the first. Each has a link to its series and period on
    the fleet's `page`.

    Raises:
        ConfigError: the channel's address cannot be read, or is invalid.
        UnavailableError: Apprise is not installed, or no broker answers.
        TransientError: the message was not accepted; the error contains no secret.
    """
    url = channel.address()
    if channel.kind == "alertmanager":
        _post_alerts(url, alerts, page, now_ns)
        yield alerts
        return
    texts = [
        (
            f"[{alert.severity}] {'over: ' if alert.state == 'closed' else ''}{alert.title} "
            f"(#{alert.number})\n{alert.text}"
        )
        + (f"\n{_link(alert, page)}" if page else "")
        for alert in alerts
    ]
    if urlsplit(url).scheme in DEFAULT_PORTS:
        _publish(url, "\n\n".join(texts))
        yield alerts
    else:
        yield from _sent_by_apprise(url, alerts, texts)


def _sent_by_apprise(
    url: str, alerts: Sequence[Alert], texts: Sequence[str]
) -> Iterator[Sequence[Alert]]:
    apprise = import_extra("apprise", "collector", "alerts need Apprise")
    # It may log an address.
    logging.getLogger("apprise").disabled = True
    # A login page, reached by a redirect, would accept everything.
    service = apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(http_redirects=False))
    if service is None:
        raise ConfigError(
            "Apprise does not support the address: see https://appriseit.com/services/"
        )
    log = BufferingHandler(1000)
    # Each channel has a logger of its own, which no other receives.
    service.logger = logging.Logger("apprise", logging.WARNING)  # noqa: LOG001
    service.logger.addHandler(log)
    while texts:
        size = max(
            1,
            sum(end <= service.body_maxlen for end in accumulate(len(text) + 2 for text in texts)),
        )
        title = texts[0].partition("\n")[0] + (f" and {size - 1} more" if size > 1 else "")
        kind = (
            "success"
            if alerts[0].state == "closed"
            else {"critical": "failure"}.get(alerts[0].severity, alerts[0].severity)
        )
        if not service.notify(
            body="\n\n".join(texts[:size])[: service.body_maxlen],
            title=title if service.title_maxlen else "",
            notify_type=kind,
        ):
            reasons = "; ".join(record.getMessage() for record in log.buffer)
            raise TransientError(_without_secrets(reasons or "Apprise could not deliver", url))
        yield alerts[:size]
        alerts, texts = alerts[size:], texts[size:]


class _Receipt(SessionEvents):
    """The broker's answer to one message: None if accepted, else the reason."""

    def __init__(self) -> None:
        self.refusals: SimpleQueue[str | None] = SimpleQueue()

    def answered(self, refusal: str | None) -> None:
        self.refusals.put(refusal)

    def disconnected(self, reason: str) -> None:
        self.refusals.put(reason)


def _publish(url: str, text: str) -> None:
    """Publish a text at `mqtt://USER:PASSWORD@HOST/TOPIC`.

    The address may name certificates as a broker's URL does.
    """
    parts, receipt = urlsplit(url), _Receipt()
    topic = unquote(parts.path.strip("/"))
    if not topic:
        raise ConfigError("the address names no topic: write mqtt://HOST/TOPIC")
    broker = parts._replace(
        netloc=parts.netloc.replace(f":{parts.password}@", "@"), path=""
    ).geturl()
    passwords = (
        os.environ
        if parts.password is None
        else {"EDGEMETER_MQTT_PASSWORD": unquote(parts.password)}
    )
    session = MqttSession(
        parse_address(broker, environ=passwords),
        SessionProfile(f"edgemeter-alerts-{os.getpid()}"),
        receipt,
    )
    session.connect()
    try:
        session.publish(topic, text.encode())
        refusal = receipt.refusals.get()
    finally:
        session.close()
    if refusal is not None:
        raise TransientError(f"the broker did not accept the message: {refusal}")


def _post_alerts(url: str, alerts: Sequence[Alert], page: str | None, now_ns: int) -> None:
    """Send alerts to Prometheus Alertmanager; an open alert ends there unless it is repeated.

    Source: API v2, https://prometheus.io/docs/alerting/latest/clients/.
    """
    posted = []
    for alert in alerts:
        # Other labels make another alert: the labels of a step stay when more boards join.
        names = ("fleet",) if alert.findings[0].kind == "step" else ("fleet", "device")
        labels = {
            name: value for name, value in common_facts(alert.findings).items() if name in names
        }
        document = {
            "labels": labels
            | {"alertname": alert.rule, "severity": alert.severity, "number": f"{alert.number}"},
            "annotations": {"summary": alert.title, "description": alert.text},
            "startsAt": iso_stamp(alert.opened_ns),
            "endsAt": iso_stamp(alert.closed_ns or now_ns + ALERTMANAGER_S * 1_000_000_000),
        }
        posted.append(document | ({"generatorURL": _link(alert, page)} if page else {}))
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(
            "the address of an Alertmanager begins with http:// or https://: correct it"
        )
    address, headers = f"{url.rstrip('/')}/api/v2/alerts", {"Content-Type": "application/json"}
    try:
        with open_url(
            address, lambda *_: False, POST_TIMEOUT_S, json.dumps(posted).encode(), headers
        ) as answer:
            status, reason = answer.status, answer.reason
    except FAILURES as error:
        raise TransientError(
            _without_secrets(f"Alertmanager cannot be reached ({error})", url)
        ) from error
    if not 200 <= status < 300:
        raise TransientError(f"Alertmanager responds {status} {reason}")


def _link(alert: Alert, page: str) -> str:
    fields = page_address(alert.findings)
    return f"{page.rstrip('/')}/{fields.pop('view')}?{urlencode(sorted(fields.items()))}"


def _without_secrets(text: str, url: str) -> str:
    host = urlsplit(url).hostname or ""
    for secret in re.split(r"[/:@?&=,]+", f"{url}/{unquote(url)}"):
        if len(secret) >= _SECRET_LENGTH and secret != host:
            text = text.replace(secret, "***")
    return one_line(text)
