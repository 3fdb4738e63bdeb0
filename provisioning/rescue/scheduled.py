"""What a lost device may be measuring by its own schedule: it keeps to it through weeks without a connection.

The device goes by its local time, this by the server's: where they differ `longest_run_minutes` has to cover that too.
"""

from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.jobs import cron
from edgemeter.agent.jobs.contract import Schedule
from edgemeter.provisioning.inventory.wording import age

if TYPE_CHECKING:
    from edgemeter.provisioning.registry.registry import Registry

NS_PER_S = 1_000_000_000
_TAKEN = """SELECT work FROM executions JOIN jobs USING (job)
WHERE device = ? AND state = 'done' AND job GLOB 'schedule-*' ORDER BY ended_ns"""


def kept(registry: "Registry", device: str) -> dict[str, str]:
    """Return the schedules that a device took note of, by name: when they measure."""
    found: dict[str, str] = {}
    for row in registry.query(_TAKEN, device):
        schedule = msgspec.json.decode(row["work"], type=Schedule)
        found[schedule.name] = schedule.cron
    return {name: times for name, times in found.items() if times}


def may_run(registry: "Registry", device: str, longest_run_s: float, now_ns: int) -> str | None:
    """Return which schedule may have begun a run that is still in progress, None where none may."""
    now_s = now_ns / NS_PER_S
    for name, times in kept(registry, device).items():
        try:
            began_s = cron.parse(times).next_s(now_s - longest_run_s)
        except ConfigError:
            continue
        if began_s <= now_s:
            return f"its schedule {name!r} may have begun a run {age(int((now_s - began_s) * NS_PER_S))} ago"
    return None
