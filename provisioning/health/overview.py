"""Every device of a fleet with all that is known of it, and its issues, the most urgent first."""

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from edgemeter.agent.base.figures import age
from edgemeter.agent.base.nanoseconds import NS_PER_DAY, NS_PER_S
from edgemeter.agent.contract.health import Health
from edgemeter.agent.contract.health_issues import DeviceIssue, health_issues
from edgemeter.agent.contract.messages import Measuring
from edgemeter.provisioning.health.server_status import read_status
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.inventory.formatting import day
from edgemeter.provisioning.inventory.selection import read_devices
from edgemeter.provisioning.registry.certificates import Ban, active_bans
from edgemeter.provisioning.registry.devices import Device, Presence, read_presence
from edgemeter.provisioning.registry.jobs import IN_FLIGHT, Execution, unfinished_executions
from edgemeter.provisioning.registry.registry import Registry

SILENT_DAYS = 2
# Between the end of a run, by the device's clock, and that of its job, by the server's.
REPORT_SLACK_NS = 30 * NS_PER_S

# The most urgent first.
ISSUE_ORDER = (
    "banned",
    "lost",
    "certificate",
    "asks",
    "taken over",
    "orders",
    "disk",
    "clock",
    "implausible",
    "sensor",
    "power",
    "outbox",
    "release",
    "ended",
    "silent",
    "offline",
)
TAKES_NO_ORDERS = "online, but takes no orders (`systemctl status edgemeter-agent` there shows why)"
# Of each device the last job that brought runs.
_LAST_MEASURED = """SELECT device, ended_ns, state, runs FROM (
    SELECT device, ended_ns, state, runs, row_number() OVER (PARTITION BY device ORDER BY ended_ns DESC) AS n
    FROM executions WHERE ended_ns IS NOT NULL AND runs <> '[]') AS ended WHERE n = 1"""


def issues_of(device: Device, heard: Presence | None, now_ns: int) -> tuple[DeviceIssue, ...]:
    """Return what needs a look, the most urgent first."""
    if device.trust == "revoked":
        return ()
    issues = [*_of_presence(device, heard, now_ns)]
    if heard is not None and heard.health is not None:
        issues.extend(health_issues(heard.health, now_ns))
        if heard.state == "online" and now_ns - heard.health.told_ns > SILENT_DAYS * NS_PER_DAY and heard.health.clock.is_synchronised:
            issues.append(DeviceIssue("silent", f"no health report for {age(now_ns - heard.health.told_ns)}"))
    return tuple(sorted(issues, key=lambda issue: ISSUE_ORDER.index(issue.kind)))


def ban_text(ban: Ban, now_ns: int) -> str:
    """Return until when a device is banned and why, and the command that ends it."""
    return (
        f"banned until {day(ban.until_ns)} UTC (for {age(ban.until_ns - now_ns)}): {ban.reason}; "
        f"`edgemeter fleet accept {shlex.quote(ban.device)}` ends it"
    )


def urgency_rank(issues: Sequence[DeviceIssue]) -> int:
    """Return how urgent the worst of them is; 0 is the most urgent."""
    return ISSUE_ORDER.index(issues[0].kind) if issues else len(ISSUE_ORDER)


def _of_presence(device: Device, heard: Presence | None, now_ns: int) -> Iterator[DeviceIssue]:
    if device.trust == "pending":
        yield DeviceIssue("asks", "waits for approval: `edgemeter fleet accept`, or `revoke`, which rejects it")
    if heard is None or heard.state is None or heard.since_ns is None:
        return
    since = age(now_ns - heard.since_ns)
    if heard.state == "lost":
        yield DeviceIssue("lost", f"lost for {since}")
    elif heard.state == "offline":
        no_health = " without a health report: start its agent, `edgemeter agent up`" if heard.health is None else ""
        yield DeviceIssue("offline", f"it signed off {since} ago{no_health}")
    elif heard.takes_no_orders:
        yield DeviceIssue("orders", TAKES_NO_ORDERS)


@dataclass(frozen=True, slots=True)
class LastMeasured:
    """The last job with runs that a device has ended: a job's end is known before the device's next health report."""

    device: str
    ended_ns: int
    state: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceOverview:
    """One device: `heard` is its last report, None where it never reported; `job` what it is busy with; `issues` the worst first."""

    device: Device
    heard: Presence | None
    job: Execution | None
    issues: tuple[DeviceIssue, ...] = ()
    last_measured: LastMeasured | None = None
    ban: Ban | None = None
    implausible: tuple[str, ...] = ()

    @property
    def health(self) -> Health | None:
        """Its last health report, as far as that can be true; None where there is none."""
        return self.heard.health if self.heard else None

    @property
    def presence(self) -> str | None:
        """Whether it is online, None where it never reported; `revoked` or `banned` where that is so, whatever it reported last."""
        if self.device.trust == "revoked":
            return "revoked"
        return "banned" if self.ban else self.heard.state if self.heard else None

    @property
    def measuring(self) -> Measuring | None:
        """The current measurement, None where none is known."""
        return self.heard.measuring if self.heard else None

    @property
    def newer_job(self) -> LastMeasured | None:
        """Its last job with runs, if its health report does not know that yet."""
        last_ns = self.health.runs.last_ns if self.health else None
        # The report's time is the device's own: a run ends somewhat before its job does.
        is_known = self.last_measured is None or (last_ns is not None and last_ns >= self.last_measured.ended_ns - REPORT_SLACK_NS)
        return None if is_known else self.last_measured

    @property
    def presence_text(self) -> str:
        """Its presence in words; a board that joined without reporting yet is distinguished from one whose token is unused."""
        if self.presence is not None:
            return self.presence
        return "joined, silent" if self.device.trust == "accepted" else "not joined"

    @property
    def presence_since_ns(self) -> int | None:
        """Since when that is so (UTC, by the server's clock), None where it never reported."""
        if self.device.trust == "revoked":
            return self.device.changed_ns
        return self.ban.since_ns if self.ban else self.heard.since_ns if self.heard else None

    @property
    def board(self) -> str | None:
        """Its board as fleet.toml names it, else as the device reports it."""
        return self.device.board or (self.heard.board if self.heard else None)

    @property
    def agent(self) -> str | None:
        """The version of its agent, None where it never reported."""
        return self.heard.agent if self.heard else None


def believed(presence: Presence | None, not_after_ns: Collection[int]) -> tuple[Presence | None, tuple[str, ...]]:
    """Return the reports of a device as far as they can be true, and what of its health was left out.

    `not_after_ns` are the ends of the certificates that were issued to it: these are known, whatever it reports.
    """
    health = presence.health if presence else None
    end_ns = health.certificate_not_after_ns if health else None
    if presence is None or health is None or end_ns is None or not not_after_ns:
        return presence, ()
    if any(abs(end_ns - known_ns) <= NS_PER_S for known_ns in not_after_ns):
        return presence, ()
    return replace(presence, health=msgspec.structs.replace(health, certificate_not_after_ns=max(not_after_ns))), ("certificate",)


def read(folder: FleetFolder, registry: Registry, now_ns: int) -> list[DeviceOverview]:
    """Return every device, also one that only reports, the most urgent first, then by fleet and name; raises as `read_devices`."""
    heard = read_presence(registry)
    jobs = {execution.device: execution for execution in unfinished_executions(registry) if execution.state in IN_FLIGHT}
    named = {device.device: device for device in read_devices(folder, registry)}
    status = read_status(folder)
    bans = active_bans(registry, now_ns)
    for name in bans.keys() - named.keys():
        named[name] = Device(name, "")
    ends_ns: defaultdict[str, list[int]] = defaultdict(list)
    for row in registry.query("SELECT device, not_after_ns FROM certificates WHERE revoked_ns IS NULL"):
        ends_ns[row["device"]].append(row["not_after_ns"])
    measured = {ended.device: ended for ended in registry.rows(LastMeasured, _LAST_MEASURED)}
    lines = []
    for name, device in named.items():
        believed_presence, doubts = believed(heard.get(name), ends_ns[name])
        line = DeviceOverview(device, believed_presence, jobs.get(name), (), measured.get(name), bans.get(name), doubts)
        issues = issues_of(device, believed_presence, now_ns)
        if doubts:
            issues = (*issues, DeviceIssue("implausible", f"it reports what cannot be true: {', '.join(doubts)}"))
        if status is not None and (text := status.take_over_text(name, now_ns)) is not None:
            issues = (*issues, DeviceIssue("taken over", text))
        if line.ban is not None and device.trust != "revoked":
            issues = (*issues, DeviceIssue("banned", ban_text(line.ban, now_ns)))
        lines.append(replace(line, issues=tuple(sorted(issues, key=lambda issue: ISSUE_ORDER.index(issue.kind)))))
    return sorted(lines, key=lambda line: (urgency_rank(line.issues), line.device.fleet, line.device.device))
