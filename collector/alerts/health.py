"""The health of the alarms themselves: how many opened, what people said of them, which rules cry too often and which never."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgemeter.collector.alerts.lifecycle import Alert

NS_PER_DAY = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class RuleHealth:
    """One rule over a period: alerts by what became of them. `precise_ratio` is the share of the judged ones that were confirmed."""

    rule: str
    opened: int
    open_now: int
    confirmed: int
    dismissed: int
    not_judged: int
    precise_ratio: float | None
    noisiest: str | None


def health(alerts: Sequence[Alert], names: Sequence[str], now_ns: int, days: int) -> list[RuleHealth]:
    """Return the health of the rules `names`, and of those that only old alerts know, over the last `days`."""
    lately = [alert for alert in alerts if alert.opened_ns >= now_ns - days * NS_PER_DAY or alert.closed_ns is None]
    every = [*names, *dict.fromkeys(alert.firing.rule for alert in lately if alert.firing.rule not in names)]
    return [_of_rule(name, [alert for alert in lately if alert.firing.rule == name]) for name in every]


def _of_rule(name: str, alerts: Sequence[Alert]) -> RuleHealth:
    confirmed = sum(alert.outcome == "confirmed" for alert in alerts)
    dismissed = sum(alert.outcome == "dismissed" for alert in alerts)
    subjects = [alert.firing.subject for alert in alerts]
    noisiest = max(sorted(set(subjects)), key=subjects.count) if subjects else None
    return RuleHealth(
        rule=name,
        opened=len(alerts),
        open_now=sum(alert.closed_ns is None for alert in alerts),
        confirmed=confirmed,
        dismissed=dismissed,
        not_judged=len(alerts) - confirmed - dismissed,
        precise_ratio=confirmed / (confirmed + dismissed) if confirmed + dismissed else None,
        noisiest=noisiest,
    )
