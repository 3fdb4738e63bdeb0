"""What people say of an alert: that it is real, or that it is false."""

from edgemeter.collector.alerts import lifecycle
from edgemeter.collector.trend import annotations
from edgemeter.collector.trend.annotations import Annotation
from edgemeter.collector.trend.finding import iso
from edgemeter.collector.trend.watch_file import WatchFile


def acknowledge(file: WatchFile, number: int, remark: str | None) -> str:
    """Keep that an alert is real; where it is about a series, a new level begins on its day. Return what was done, in words."""
    alert = lifecycle.say(file, number, "confirmed", remark)
    facts = alert.firing.facts
    if "metric" not in facts or not alert.firing.day:
        return f"alert {number} is confirmed"
    entry = Annotation(
        day=alert.firing.day,
        text=remark or f"acknowledged: {alert.firing.title}",
        fleet=facts.get("fleet"),
        device=facts.get("device"),
        model=facts.get("model"),
        metric=facts["metric"],
    )
    made = annotations.add(file, entry)
    return f"alert {number} is confirmed; annotation {made}: a new level begins on {iso(alert.firing.day)}"


def dismiss(file: WatchFile, number: int, remark: str | None) -> str:
    """Keep that an alert is false; return that in words."""
    lifecycle.say(file, number, "dismissed", remark)
    return f"alert {number} is dismissed and does not open again for the same day"
