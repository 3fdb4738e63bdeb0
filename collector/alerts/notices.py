"""Notices: a change of an alert in words and figures, as text, as JSON, and as one line."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from urllib.parse import urlencode

from edgemeter.collector.alerts.firing import Firing, page_address
from edgemeter.collector.alerts.lifecycle import Alert
from edgemeter.collector.alerts.rules import AlertEvent

_WORDS = {"opened": "", "updated": "still: ", "closed": "over: "}


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of an alert, in words and figures; times are RFC 3339, UTC. A notice that comes again has the same `id`."""

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
    id: str = ""


def notice_of_alert(event: AlertEvent, alert: Alert, page: str | None, identity: str = "") -> Notice:
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
        id=identity,
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
