"""Prometheus Alertmanager, API v2. It forgets what is not sent again: every check sends all that is open.

Config: kind = "alertmanager", url = "http://HOST:9093". Source: prometheus.io/docs/alerting/clients. Tested with a real HTTP server
that checks the shape of what Alertmanager takes.
"""

import re
from dataclasses import dataclass

from edgemeter.collector.alerts.notice import Notice
from edgemeter.collector.alerts.post import post


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Labels tell alerts apart: the rule, what it is about, and nothing that changes while an alert lasts."""

    name: str
    url: str

    def send(self, notices: list[Notice]) -> None:
        """Send alerts, the closed ones with their end."""
        post(self.name, f"{self.url.rstrip('/')}/api/v2/alerts", [_alert(notice) for notice in notices])


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
