"""Every device of a fleet with all known facts, and what needs attention, the most urgent first."""

import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.base.number_text import age, stamp
from edgemeter.agent.contract.health_issues import DeviceIssue, health_issues
from edgemeter.provisioning.health.server_status import take_overs
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.selection import read_devices
from edgemeter.provisioning.registry.certificates import Ban, active_bans
from edgemeter.provisioning.registry.devices import Device, Presence, read_presence
from edgemeter.provisioning.registry.jobs import IN_FLIGHT, Execution, select_executions
from edgemeter.provisioning.registry.registry import Registry

SILENT_DAYS = 2
# The kinds of issues, the most urgent first, with the remedy; "" if the issue itself has it.
REMEDIES = {
    "banned": "`edgemeter fleet accept {device}` ends the ban",
    "lost": "check its power and its network",
    "certificate": "`edgemeter fleet logs --on {device}` shows why it was not renewed",
    "asks": "`edgemeter fleet accept {device}`",
    "taken over": "",
    "orders": "`systemctl status edgemeter-agent` there shows why",
    "disk": "free space, or replace its card",
    "clock": "check its time server (NTP)",
    "implausible": "update its agent, or flash it anew",
    "sensor": "`edgemeter fleet doctor --on {device}` shows how to read it",
    "power": "give it a stronger power supply, or cool it",
    "outbox": "`edgemeter fleet logs --on {device}` shows why",
    "release": "update it to another release",
    "ended": "`edgemeter fleet logs --on {device}` shows what came before",
    "silent": "`edgemeter fleet restart --on {device}`",
    "offline": "start its agent there, `edgemeter agent up`",
}
_CURRENT = f"WHERE state IN {tuple(sorted(IN_FLIGHT))} ORDER BY id"


@dataclass(frozen=True, slots=True)
class DeviceOverview:
    """One device: its `state` and since when, its last reports, its issues, and its job.

    The time is UTC, by the server's clock; the worst issue comes first. `heard` has only plausible
    reports; others are an issue.
    """

    device: Device
    state: str
    since_ns: int | None
    heard: Presence
    issues: tuple[DeviceIssue, ...]
    job: Execution | None = None


def read(folder: FleetFolder, registry: Registry, now_ns: int) -> list[DeviceOverview]:
    """Return every device, the most urgent first, then by fleet and name.

    A device that only reports is among them. It raises as `read_devices`.
    """
    bans, presences, taken_over = (
        active_bans(registry, now_ns),
        read_presence(registry),
        take_overs(registry, now_ns),
    )
    devices = {name: Device(name, "") for name in bans} | {
        device.device: device for device in read_devices(folder, registry)
    }
    jobs = {execution.device: execution for execution in select_executions(registry, _CURRENT)}
    ends_ns: defaultdict[str, list[int]] = defaultdict(list)
    for row in registry.query(
        "SELECT device, not_after_ns FROM certificates WHERE revoked_ns IS NULL"
    ):
        ends_ns[row["device"]].append(row["not_after_ns"])
    overviews, ranks = [], [*REMEDIES]
    for name, device in devices.items():
        reported = presences.get(name) or Presence(name, device.fleet)
        heard = _believed(reported, ends_ns[name])
        issues = [*_issues(device, heard, now_ns, bans.get(name))]
        if heard is not reported:
            issues.append(DeviceIssue("implausible", "it reports what cannot be true: certificate"))
        if name in taken_over:
            times = f"{taken_over[name]} times, each within an hour of the one before"
            issues.append(
                DeviceIssue(
                    "taken over",
                    f"its session was taken over {times}: two boards have its key, or its "
                    "connection is unstable",
                )
            )
        issues.sort(key=lambda issue: ranks.index(issue.kind))
        remedied = tuple(
            replace(issue, remedy=REMEDIES[issue.kind].format(device=shlex.quote(name)))
            for issue in issues
        )
        state, since_ns = _state(device, heard, bans.get(name))
        overviews.append(DeviceOverview(device, state, since_ns, heard, remedied, jobs.get(name)))
    overviews.sort(key=lambda line: (line.device.fleet, line.device.device))
    return sorted(
        overviews, key=lambda line: ranks.index(line.issues[0].kind) if line.issues else len(ranks)
    )


def _believed(presence: Presence, ends_ns: list[int]) -> Presence:
    """Return the plausible reports of a device.

    Its certificate's end must be that of an issued one.
    """
    end_ns = presence.health.certificate_not_after_ns if presence.health else None
    if (
        presence.health is None
        or end_ns is None
        or not ends_ns
        or any(abs(end_ns - issued_ns) <= NS_PER_S for issued_ns in ends_ns)
    ):
        return presence
    return replace(
        presence,
        health=msgspec.structs.replace(presence.health, certificate_not_after_ns=max(ends_ns)),
    )


def _state(device: Device, heard: Presence, ban: Ban | None) -> tuple[str, int | None]:
    if device.trust == "revoked":
        return "revoked", device.changed_ns
    if ban is not None:
        return "banned", ban.since_ns
    if device.trust == "pending":
        return "pending", None
    if heard.state is not None:
        return heard.state, heard.since_ns
    # A board that joined without reporting yet, or one whose token is unused.
    return ("joined, silent" if device.trust == "accepted" else "not joined"), None


def _issues(device: Device, heard: Presence, now_ns: int, ban: Ban | None) -> Iterator[DeviceIssue]:
    if device.trust == "revoked":
        return
    if ban is not None:
        yield DeviceIssue(
            "banned",
            f"banned until {stamp(ban.until_ns)} UTC (for {age(ban.until_ns - now_ns)}): "
            f"{ban.reason}",
        )
    if device.trust == "pending":
        yield DeviceIssue("asks", "waits for approval")
    health, since = heard.health, age(now_ns - (heard.since_ns or now_ns))
    if heard.state == "lost":
        yield DeviceIssue("lost", f"lost for {since}")
    elif heard.state == "offline":
        yield DeviceIssue(
            "offline", f"it signed off {since} ago{'' if health else ' without a health report'}"
        )
    elif heard.state == "online" and heard.challenge is None:
        yield DeviceIssue("orders", "online, but takes no orders")
    if health is None:
        return
    yield from health_issues(health, now_ns)
    if (
        heard.state == "online"
        and now_ns - health.told_ns > SILENT_DAYS * NS_PER_DAY
        and health.clock.is_synchronised
    ):
        yield DeviceIssue("silent", f"no health report for {age(now_ns - health.told_ns)}")
