"""A device's health report in words: the same in the fleet's list, on the collector's page, and in InfluxDB."""

from collections.abc import Iterator
from dataclasses import dataclass

from edgemeter.agent.base.figures import age, count, printable, size
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.health import Clock, Health, recently_refused
from edgemeter.agent.contract.record_time import off_by_text

# Renewed at two thirds of its life, a year or two: what has less left was not renewed.
CERTIFICATE_DAYS = 30
LITTLE_DISK_RATIO, NO_DISK_RATIO = 0.1, 0.02
WORN_RATIO = 0.8


@dataclass(frozen=True, slots=True)
class DeviceIssue:
    """One thing that needs a look: its kind, by which issues are ordered, a description, and what to do, "" where that says so itself."""

    kind: str
    text: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The description, and what to do."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def health_issues(health: Health, now_ns: int) -> Iterator[DeviceIssue]:
    """Yield what needs a look by a health report."""
    if (end_ns := health.certificate_not_after_ns) is not None and end_ns - now_ns < CERTIFICATE_DAYS * NS_PER_DAY:
        when = f"expired {age(now_ns - end_ns)} ago" if end_ns < now_ns else f"expires in {age(end_ns - now_ns)}"
        yield DeviceIssue("certificate", f"its certificate {when}")
    yield from _of_hardware(health)
    yield from _of_clock(health.clock)
    if (refused := recently_refused(health)) is not None:
        yield DeviceIssue("orders", f"it refused {count(refused.count, 'order')}, the last because {printable(refused.reason)}")
    if health.outbox_trouble:
        yield DeviceIssue("outbox", f"its outbox cannot be read: {health.outbox_trouble}")
    if health.dropped_records:
        yield DeviceIssue("outbox", f"its outbox was full and dropped {count(health.dropped_records, 'result')}")
    if health.bad_agents:
        yield DeviceIssue("release", f"agent {', '.join(health.bad_agents)} failed on it")
    if health.last_words.kind in {"crash", "oom", "power-loss"}:
        yield DeviceIssue("ended", f"{health.last_words.kind} before this boot: {health.last_words.text or 'no details'}")


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
        yield DeviceIssue("clock", f"its clock is {off_by_text(clock.off_by_ns)}: set it, and check its time server (NTP)")
    elif clock.is_behind_floor:
        yield DeviceIssue("clock", "its clock is behind its last known time: no time server is reachable")
    elif clock.is_synchronised is False:
        yield DeviceIssue("clock", "its clock is not synchronised (NTP)")


def clock_text(health: Health) -> str:
    """Return the state of its clock in a word or two."""
    if isinstance(health.clock.off_by_ns, int):
        return off_by_text(health.clock.off_by_ns)
    if health.clock.is_behind_floor:
        return "set back"
    return {True: "synchronised", False: "not synchronised", None: "unknown"}[health.clock.is_synchronised]


def sensors_text(health: Health) -> str | None:
    """Return the names of its sensors."""
    return ", ".join(sensor.name for sensor in health.sensors) or None


def last_words(health: Health) -> str:
    """Return how the previous agent process ended."""
    words = health.last_words
    return f"{words.kind}: {words.text}" if words.text else words.kind
