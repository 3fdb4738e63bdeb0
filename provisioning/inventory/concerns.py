"""What about a device somebody should look at, and how urgent it is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.health.contract import Health
from edgemeter.provisioning.health.presence import Presence
from edgemeter.provisioning.health.standing import Standing
from edgemeter.provisioning.inventory.wording import age, size
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.rescue.attempts import Rescue

NS_PER_S = 1_000_000_000
NS_PER_DAY = 86_400 * NS_PER_S
# Renewed at two thirds of its life, a year or two: what has less left was not renewed.
CERTIFICATE_DAYS = 30
LITTLE_DISK_RATIO, NO_DISK_RATIO = 0.1, 0.02
WORN_RATIO = 0.8
# Instruments are calibrated yearly.
CALIBRATION_DAYS = 365.0
SILENT_DAYS = 2

Kind = Literal[
    "needs a hand",
    "lost",
    "suspect",
    "certificate",
    "asks",
    "disk",
    "clock",
    "sensor",
    "power",
    "outbox",
    "release",
    "ended",
    "silent",
    "offline",
]
# The most urgent first.
ORDER: tuple[Kind, ...] = (
    "needs a hand",
    "lost",
    "suspect",
    "certificate",
    "asks",
    "disk",
    "clock",
    "sensor",
    "power",
    "outbox",
    "release",
    "ended",
    "silent",
    "offline",
)


@dataclass(frozen=True, slots=True)
class Concern:
    """One thing to look at, in words."""

    kind: Kind
    text: str


def of(device: Device, heard: Presence | None, standing: Standing | None, rescue: Rescue | None, now_ns: int) -> tuple[Concern, ...]:
    """Return what somebody should look at, the most urgent first."""
    if device.standing == "revoked":
        return ()
    found = [*_of_presence(device, heard, rescue, now_ns)]
    if standing is not None and standing.state == "suspect":
        found.append(Concern("suspect", standing.reason or "suspect"))
    if heard is not None and heard.health is not None:
        found.extend(_of_health(heard.health, now_ns))
        if heard.state == "online" and now_ns - heard.health.told_ns > SILENT_DAYS * NS_PER_DAY and heard.health.clock.is_synchronised:
            found.append(Concern("silent", f"has not said how it stands for {age(now_ns - heard.health.told_ns)}"))
    return tuple(sorted(found, key=lambda one: ORDER.index(one.kind)))


def rank(concerns: Sequence[Concern]) -> int:
    """Return how urgent the worst of them is; 0 is the most urgent."""
    return ORDER.index(concerns[0].kind) if concerns else len(ORDER)


def _of_presence(device: Device, heard: Presence | None, rescue: Rescue | None, now_ns: int) -> Iterator[Concern]:
    if rescue is not None and rescue.needs_hand:
        yield Concern("needs a hand", rescue.reason or "its power was cut several times and it did not come back")
    if device.standing == "pending":
        yield Concern("asks", "asks to join: `edgemeter fleet accept` or `reject`")
    if heard is None or heard.state is None or heard.since_ns is None:
        return
    since = age(now_ns - heard.since_ns)
    if heard.state == "lost":
        tried = f"; its power was cut {rescue.attempts} times" if rescue is not None and rescue.attempts else ""
        why = f"; {rescue.reason}" if rescue is not None and rescue.reason and not rescue.needs_hand else ""
        yield Concern("lost", f"lost for {since}{tried}{why}")
    elif heard.state == "offline":
        yield Concern("offline", f"offline for {since}: it said goodbye")


def _of_health(health: Health, now_ns: int) -> Iterator[Concern]:
    yield from _of_certificate(health, now_ns)
    yield from _of_disk(health)
    clock = health.clock
    if clock.is_behind_floor:
        yield Concern("clock", "its clock is behind what it once showed: no time server is reached")
    elif clock.is_synchronised is False:
        yield Concern("clock", "nothing sets its clock right (NTP)")
    yield from _of_sensors(health)
    if health.is_under_voltage_since_boot:
        yield Concern("power", "its supply was too weak since the start (under-voltage)")
    if health.is_throttled_since_boot:
        yield Concern("power", "it was throttled since the start")
    if health.dropped_records:
        yield Concern("outbox", f"{health.dropped_records} results were dropped: its outbox was full")
    if health.bad_agents:
        yield Concern("release", f"agent {', '.join(health.bad_agents)} did not work on it")
    if health.last_words.kind in {"crash", "oom", "power-loss"}:
        yield Concern("ended", f"{health.last_words.kind} before this start: {health.last_words.text or 'no more is known'}")


def _of_sensors(health: Health) -> Iterator[Concern]:
    for sensor in health.sensors:
        if sensor.trouble is not None:
            yield Concern("sensor", f"sensor {sensor.name}: {sensor.trouble}")
        elif sensor.calibration_age_days is not None and sensor.calibration_age_days > CALIBRATION_DAYS:
            yield Concern("sensor", f"sensor {sensor.name} was calibrated {sensor.calibration_age_days:.0f} days ago")


def _of_certificate(health: Health, now_ns: int) -> Iterator[Concern]:
    end_ns = health.certificate_not_after_ns
    if end_ns is None:
        return
    days = (end_ns - now_ns) / NS_PER_DAY
    if days < 0:
        yield Concern("certificate", f"its certificate ended {age(now_ns - end_ns)} ago")
    elif days < CERTIFICATE_DAYS:
        yield Concern("certificate", f"its certificate ends in {age(end_ns - now_ns)}")


def _of_disk(health: Health) -> Iterator[Concern]:
    disk = health.disk
    if disk.free_bytes is not None and disk.size_bytes:
        ratio = disk.free_bytes / disk.size_bytes
        if ratio < LITTLE_DISK_RATIO:
            how = "full" if ratio < NO_DISK_RATIO else "nearly full"
            yield Concern("disk", f"its disk is {how}: {size(disk.free_bytes)} free")
    if disk.is_worn_out or (disk.wear_ratio is not None and disk.wear_ratio >= WORN_RATIO):
        worn = "" if disk.wear_ratio is None else f" ({disk.wear_ratio:.0%} of its life is used)"
        yield Concern("disk", f"its flash is worn{worn}")
