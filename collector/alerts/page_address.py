"""Where the page shows what an alert is about: its series, in the period around its first day."""

from collections.abc import Mapping
from urllib.parse import urlencode

from edgemeter.agent.contract.figures import in_view
from edgemeter.collector.alerts.firing import Firing

# The figure of the page that shows a metric of the trend.
FIGURE_OF = {rule.name: entry.key for entry in in_view("chart") for rule in entry.trends}

# The page shows so many days before the first day, and after.
DAYS_BEFORE, DAYS_AFTER, MS_PER_DAY = 14, 30, 86_400_000
_SHOWN = ("fleet", "device", "board", "model", "precision")


def page_address(one: Firing) -> tuple[str, dict[str, str]]:
    """Return the view of the page and its fields: what all members of an event have in common, else the device, else the alerts."""
    facts = _common([member.facts for member in one.members]) if one.members else one.facts
    fields = {name: facts[name] for name in _SHOWN if name in facts}
    if not one.members and "model" not in facts:
        return ("device", {name: facts[name] for name in ("fleet", "device") if name in facts}) if "device" in facts else ("alerts", {})
    metric = facts.get("metric") or (one.members[0].facts.get("metric") if one.members else None)
    if metric in FIGURE_OF:
        fields["metric"] = FIGURE_OF[metric]
    if one.day:
        fields["between"] = f"{(one.day - DAYS_BEFORE) * MS_PER_DAY},{(one.day + DAYS_AFTER) * MS_PER_DAY}"
    return "trend", fields


def page_link(page: str, one: Firing) -> str:
    """Return the link to it below the address of the fleet's page."""
    view, fields = page_address(one)
    return f"{page.rstrip('/')}/{view}" + (f"?{urlencode(sorted(fields.items()))}" if fields else "")


def _common(members: list[Mapping[str, str]]) -> dict[str, str]:
    return {name: value for name, value in members[0].items() if all(other.get(name) == value for other in members)}
