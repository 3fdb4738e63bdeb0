"""Notices: what is sent of an alert, the same for every channel; and the protocol of what sends it."""

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from edgemeter.collector.alerts.lifecycle import Alert, Change
from edgemeter.collector.alerts.rules import Event

_WORDS = {"opened": "", "updated": "still: ", "closed": "over: "}


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened to an alert, in words and figures; times are RFC 3339, UTC."""

    event: Event
    number: int
    rule: str
    severity: str
    title: str
    text: str
    facts: dict[str, str]
    opened_at: str
    closed_at: str | None
    link: str | None


class Sender(Protocol):
    """Sends notices to one channel. Called from one thread; may block for as long as its timeout of ten seconds a message."""

    def send(self, notices: list[Notice]) -> None:
        """Send what happened.

        Raises:
            ConfigError: the channel's secret cannot be read.
            TransientError: it did not get there; it may later.
            UnavailableError: a library is not installed.
        """
        ...


def of_change(change: Change, link: str | None) -> Notice:
    """Return the notice of what happened to an alert."""
    return of_alert(change.event, change.alert, link)


def of_alert(event: Event, alert: Alert, link: str | None) -> Notice:
    """Return the notice of an alert."""
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
        link=link,
    )


def as_text(notices: list[Notice]) -> str:
    """Return notices as plain text: two lines each."""
    return "\n".join(f"[{one.severity}] {one.title} (#{one.number})\n{one.text}" for one in notices)


def headline(notices: list[Notice]) -> str:
    """Return one line for all of them."""
    return notices[0].title if len(notices) == 1 else f"{len(notices)} alerts: {notices[0].title} and {len(notices) - 1} more"


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 1_000_000_000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
