"""A device's health report in words.

They are the same in the fleet's list, on the collector's page, and in InfluxDB.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.base.number_text import age, count, printable, size, stamp
from edgemeter.agent.contract.health import Clock, Health, recently_refused
from edgemeter.agent.contract.record_time import off_by_text

# Certificates last a year or two and are renewed after two thirds: one with fewer days left was not
# renewed.
CERTIFICATE_DAYS = 30
LITTLE_DISK_RATIO, NO_DISK_RATIO = 0.1, 0.02
WORN_RATIO = 0.8


@dataclass(frozen=True, slots=True)
class DeviceIssue:
    """A problem of a device.

    It has its kind, by which issues are sorted, a description, and the remedy, empty if the
    description says it.
    """

    kind: str
    text: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def needs_attention(health: Health, now_ns: int) -> list[str]:
    """Return why a device needs attention, a phrase for each reason."""
    return [issue.text for issue in health_issues(health, now_ns)]


def certificate_days(health: Health, now_ns: int) -> float | None:
    """Return in how many days the device's certificate expires, negative if it has expired."""
    end_ns = health.certificate_not_after_ns
    return None if end_ns is None else (end_ns - now_ns) / NS_PER_DAY


def health_issues(health: Health, now_ns: int) -> Iterator[DeviceIssue]:
    if (
        end_ns := health.certificate_not_after_ns
    ) is not None and end_ns - now_ns < CERTIFICATE_DAYS * NS_PER_DAY:
        when = (
            f"expired {age(now_ns - end_ns)} ago"
            if end_ns < now_ns
            else f"expires in {age(end_ns - now_ns)}"
        )
        yield DeviceIssue("certificate", f"its certificate {when}")
    yield from _of_hardware(health)
    yield from _of_clock(health.clock)
    if (refused := recently_refused(health)) is not None:
        yield DeviceIssue(
            "orders",
            f"it refused {count(refused.count, 'order')}, the last because "
            f"{printable(refused.reason)}",
        )
    if health.outbox_trouble:
        yield DeviceIssue("outbox", f"its outbox cannot be read: {health.outbox_trouble}")
    if health.dropped_records:
        yield DeviceIssue(
            "outbox", f"its outbox was full and dropped {count(health.dropped_records, 'result')}"
        )
    if health.bad_agents:
        yield DeviceIssue("release", f"agent {', '.join(health.bad_agents)} failed on it")
    if health.last_words.kind in {"crash", "oom", "power-loss"}:
        yield DeviceIssue(
            "ended",
            f"{health.last_words.kind} before this boot: {health.last_words.text or 'no details'}",
        )


def _of_hardware(health: Health) -> Iterator[DeviceIssue]:
    disk = health.disk
    if disk.free_bytes is not None and disk.size_bytes:
        ratio = disk.free_bytes / disk.size_bytes
        if ratio < LITTLE_DISK_RATIO:
            how = "full" if ratio < NO_DISK_RATIO else "nearly full"
            yield DeviceIssue("disk", f"its disk is {how}: {size(disk.free_bytes)} free")
    if disk.is_worn_out or (disk.wear_ratio is not None and disk.wear_ratio >= WORN_RATIO):
        worn = "" if disk.wear_ratio is None else f" ({disk.wear_ratio:.0%} of its life is used)"
        yield DeviceIssue("disk", f"its flash is worn{worn}")
    for sensor in health.sensors:
        if sensor.trouble is not None:
            yield DeviceIssue("sensor", f"sensor {sensor.name}: {sensor.trouble}")
    if health.is_under_voltage_since_boot:
        yield DeviceIssue("power", "under-voltage since boot: its power supply is too weak")
    if health.is_throttled_since_boot:
        yield DeviceIssue("power", "it was throttled since boot")


def _of_clock(clock: Clock) -> Iterator[DeviceIssue]:
    if isinstance(clock.off_by_ns, int):
        yield DeviceIssue(
            "clock",
            f"its clock is {off_by_text(clock.off_by_ns)}: set it, and check its time server (NTP)",
        )
    elif clock.is_behind_floor:
        yield DeviceIssue(
            "clock", "its clock is behind its last known time: no time server is reachable"
        )
    elif clock.is_synchronised is False:
        yield DeviceIssue("clock", "its clock is not synchronised (NTP)")


def clock_text(health: Health) -> str:
    if isinstance(health.clock.off_by_ns, int):
        return off_by_text(health.clock.off_by_ns)
    if health.clock.is_behind_floor:
        return "set back"
    return {True: "synchronised", False: "not synchronised", None: "unknown"}[
        health.clock.is_synchronised
    ]


def health_facts(health: Health, now_ns: int) -> dict[str, str | None]:
    """Return a report in words, by label; None if unknown."""
    end_ns, disk, runs, words = (
        health.certificate_not_after_ns,
        health.disk,
        health.runs,
        health.last_words,
    )
    certificate = (
        None
        if end_ns is None
        else f"{'expires' if end_ns > now_ns else 'expired'} {stamp(end_ns)} UTC"
    )
    space = (
        None
        if disk.free_bytes is None or disk.size_bytes is None
        else f"{size(disk.free_bytes)} of {size(disk.size_bytes)} free"
    )
    wear = None if disk.wear_ratio is None else f"up to {disk.wear_ratio:.0%} of its life used"
    dropped = (
        f"dropped {health.dropped_records} results, {health.dropped_traces} traces"
        if health.dropped_records
        else None
    )
    waiting = "unknown" if health.waiting_records is None else f"{health.waiting_records} waiting"
    verdicts = joined(*(f"{number} {verdict}" for verdict, number in runs.verdicts.items()))
    last_run = (
        (
            f"last {age(now_ns - runs.last_ns)} ago: {runs.last_verdict}; of the last "
            f"{sum(runs.verdicts.values())}: {verdicts}"
        )
        if runs.last_ns
        else None
    )
    answer = {True: "yes", False: "no", None: "unknown"}
    return {
        "Health reported": f"{stamp(health.told_ns)} UTC by its own clock",
        "Agent now": health.agent,
        "Agents before": joined(
            health.previous_agent, *(f"{agent} failed" for agent in health.bad_agents)
        ),
        "Software": joined(
            health.os,
            health.kernel,
            health.arch,
            health.python and f"Python {health.python}",
            health.glibc and f"glibc {health.glibc}",
        ),
        "Mode": joined(
            health.power_mode and f"power mode {health.power_mode}",
            health.governor and f"governor {health.governor}",
        ),
        "Power sensors": joined(*(sensor.name for sensor in health.sensors)),
        "Certificate": certificate,
        "Clock": joined(
            clock_text(health), health.clock.offset_ms and f"{health.clock.offset_ms:+.3g} ms off"
        ),
        "Disk": joined(space, wear),
        "Outbox": joined(waiting, health.outbox_trouble, dropped),
        "Last runs": last_run,
        "Temperatures": joined(
            *(f"{name} {value_c:.0f} C" for name, value_c in sorted(health.temperatures_c.items()))
        ),
        "Since boot": f"throttled: {answer[health.is_throttled_since_boot]}, "
        f"under-voltage: {answer[health.is_under_voltage_since_boot]}",
        "Up": joined(
            health.uptime_s and age(int(health.uptime_s * 1e9)),
            health.reset_reason and f"reset reason {health.reset_reason}",
        ),
        "Previous agent process": joined(
            words.kind, words.text, words.at_ns and f"{stamp(words.at_ns)} UTC"
        ),
    }


def joined(*texts: object) -> str | None:
    """Return the non-empty texts as one, None if there are none."""
    return ", ".join(str(text) for text in texts if text) or None
