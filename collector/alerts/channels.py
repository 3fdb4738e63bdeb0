"""Channels: how alerts are sent, by Apprise (mail, ntfy, Slack, Telegram, MQTT, webhooks and a hundred others) or to an Alertmanager."""

import json
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from edgemeter.agent.base.errors import ConfigError, TransientError, one_line
from edgemeter.agent.base.http_client import FAILURES, open_url
from edgemeter.agent.base.plugins import import_extra
from edgemeter.collector.alerts.firing import Firing, page_address
from edgemeter.collector.alerts.notified import AlertChange
from edgemeter.collector.alerts.rules import Channel

POST_TIMEOUT_S = 10.0
# Alertmanager takes an alert for over that was not sent again for so long. Source: three intervals of edgemeter-alerts.timer.
ALERTMANAGER_S = 900
# A piece of an address that is as long as this may be a secret.
_SECRET_LENGTH = 5
_TYPES = {"critical": "failure", "warning": "warning", "info": "info"}


def _title(notice: AlertChange) -> str:
    return {"updated": "still: ", "closed": "over: "}.get(notice.event, "") + notice.alert.firing.title


def _text(notice: AlertChange, page: str | None) -> str:
    """Return two lines, and a link to the series and the period below the address of the fleet's `page`."""
    firing, link = notice.alert.firing, _link(notice.alert.firing, page)
    return f"[{firing.severity}] {_title(notice)} (#{notice.alert.number})\n{firing.text}" + (f"\n{link}" if link else "")


def _link(firing: Firing, page: str | None) -> str | None:
    view, fields = page_address(firing.findings)
    return f"{page.rstrip('/')}/{view}?{urlencode(sorted(fields.items()))}" if page else None


def sent_messages(channel: Channel, notices: Sequence[AlertChange], page: str | None, now_ns: int) -> Iterator[Sequence[AlertChange]]:
    """Send notices to a channel, a message with each step of the iteration; yield those in it once the channel has accepted it.

    Raises:
        ConfigError: the channel's address cannot be read, or is invalid.
        UnavailableError: Apprise is not installed.
        TransientError: the message was not accepted; it names no secret.
    """
    if channel.kind == "alertmanager":
        _post_alerts(channel.address(), notices, page, now_ns)
        yield notices
    else:
        yield from _apprised(channel.address(), notices, page)


def _post_alerts(url: str, notices: Sequence[AlertChange], page: str | None, now_ns: int) -> None:
    """Send alerts to Prometheus Alertmanager; open ones end by themselves unless they are sent again.

    Source: API v2, https://prometheus.io/docs/alerting/latest/clients/.
    """
    alerts = []
    for notice in notices:
        firing = notice.alert.firing
        ends_ns = now_ns + ALERTMANAGER_S * 1_000_000_000 if notice.alert.closed_ns is None else notice.alert.closed_ns
        labels = {re.sub(r"[^a-zA-Z0-9_]", "_", name): value for name, value in firing.facts.items()}
        alert: dict[str, Any] = {
            "labels": labels | {"alertname": firing.rule, "severity": firing.severity, "number": f"{notice.alert.number}"},
            "annotations": {"summary": firing.title, "description": firing.text},
            "startsAt": _rfc3339(notice.alert.opened_ns),
            "endsAt": _rfc3339(ends_ns),
        }
        link = _link(firing, page)
        alerts.append(alert | ({"generatorURL": link} if link else {}))
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError("the address of an Alertmanager begins with http:// or https://: correct it")
    address, headers = f"{url.rstrip('/')}/api/v2/alerts", {"Content-Type": "application/json"}
    try:
        with open_url(address, lambda *_: False, POST_TIMEOUT_S, json.dumps(alerts).encode(), headers) as answer:
            status, reason = answer.status, answer.reason
    except FAILURES as error:
        raise TransientError(f"Alertmanager cannot be reached ({one_line(error)})") from error
    if not 200 <= status < 300:
        raise TransientError(f"Alertmanager responds {status} {reason}")


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Warnings(logging.Handler):
    """The words that Apprise logs in this thread: it gives no other reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.texts.append(record.getMessage())


def _apprised(url: str, notices: Sequence[AlertChange], page: str | None) -> Iterator[Sequence[AlertChange]]:
    """Send notices by Apprise (BSD-2), as many in a message as the service takes."""
    apprise = import_extra("apprise", "collector", "alerts need Apprise")
    log, warnings = logging.getLogger("apprise"), _Warnings()
    # It may log an address.
    log.propagate = False
    log.addHandler(warnings)
    # A page to log in, to which a redirect leads, would accept everything.
    service = apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(http_redirects=False))
    if service is None:
        raise ConfigError("Apprise does not support the address: see https://appriseit.com/services/")
    refusals = _receipts_of(service) if service.secure_protocol == "mqtts" else []
    try:
        for part in _parts(notices, page, service.body_maxlen):
            body = "\n\n".join(_text(notice, page) for notice in part)[: service.body_maxlen]
            headline = _title(part[0]) + (f" and {len(part) - 1} more" if len(part) > 1 else "")
            title = headline if service.title_maxlen else ""
            is_over = all(notice.event == "closed" for notice in part)
            severity = next(name for name in _TYPES if name in {notice.alert.firing.severity for notice in part})
            if not service.notify(body=body, title=title, notify_type="success" if is_over else _TYPES[severity]) or refusals:
                raise TransientError(_without_secrets("; ".join([*warnings.texts, *refusals]) or "Apprise could not deliver", url))
            yield part
    finally:
        log.removeHandler(warnings)
        if service.secure_protocol == "mqtts":
            service.client.disconnect()


def _receipts_of(service: Any) -> list[str]:
    """Return what gets the refusals of an MQTT broker: it gives them in MQTT 5 alone, which Apprise 2.3 cannot speak."""
    client, enums = import_extra("paho.mqtt.client", "collector", "MQTT"), import_extra("paho.mqtt.enums", "collector", "MQTT")
    refusals: list[str] = []
    service.client = client.Client(enums.CallbackAPIVersion.VERSION2, protocol=client.MQTTv5)
    service.client.on_publish = lambda _client, _data, _number, reason, _properties: (
        refusals.append(f"the broker refuses the topic ({reason})") if reason.is_failure else None
    )
    service.qos = max(1, service.qos)
    return refusals


def _parts(notices: Sequence[AlertChange], page: str | None, longest: int) -> Iterator[list[AlertChange]]:
    part: list[AlertChange] = []
    length = 0
    for notice in notices:
        size = len(_text(notice, page)) + 2
        if part and length + size > longest:
            yield part
            part, length = [], 0
        part.append(notice)
        length += size
    yield part


def _without_secrets(text: str, url: str) -> str:
    host = urlsplit(url).hostname or ""
    for secret in re.split(r"[/:@?&=,]+", f"{url}/{unquote(url)}"):
        if len(secret) >= _SECRET_LENGTH and secret != host:
            text = text.replace(secret, "***")
    return one_line(text)
