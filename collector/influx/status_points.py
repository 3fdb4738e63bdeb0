"""The points of presence, health and drain lag: measurements `device` and `collector`, each field with one name, type and meaning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from edgemeter.agent.contract.health import Health
from edgemeter.agent.ledger.presence import DevicePresence, certificate_days, last_words, needs_attention
from edgemeter.collector.influx.field_writer import quoted
from edgemeter.collector.influx.point_schema import FieldKind
from edgemeter.collector.influx.points import tag_text

DEVICE, COLLECTOR = "device", "collector"
DEVICE_TAGS, COLLECTOR_TAGS = ("device", "fleet"), ("collector",)


@dataclass(frozen=True, slots=True)
class StatusField:
    """One field: its name, type and meaning, and how it is read from what is reported at `now_ns`."""

    name: str
    kind: FieldKind
    description: str
    value: Callable[[Any, int], Any]


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """How far the drain of a collector's ledger is; `waiting_since_ns` is when the oldest record that waits was received."""

    collector: str
    ledger_row: int
    sink_row: int
    waiting_since_ns: int | None
    rejected: int
    quarantined: int


def _of_health(read: str | Callable[[Health], Any]) -> Callable[[DevicePresence, int], Any]:
    """Return what reads the health of a device: a field by its path, or what is worked out."""
    read_health = attrgetter(read) if isinstance(read, str) else read
    return lambda device, _: None if device.health is None else read_health(device.health)


def _at_now(read: Callable[[Health, int], Any]) -> Callable[[DevicePresence, int], Any]:
    return lambda device, now_ns: None if device.health is None else read(device.health, now_ns)


DEVICE_FIELDS = (
    StatusField("state", "text", "last reported state: online, offline, lost or revoked", lambda device, _: device.state),
    StatusField(
        "is_online", "boolean", "whether that state is online", lambda device, _: None if device.state is None else device.state == "online"
    ),
    StatusField("changed_ns", "integer", "when the state was last received, UTC in ns since 1970", lambda device, _: device.changed_ns),
    StatusField("session", "integer", "session of the device's outbox", lambda device, _: device.session),
    StatusField("reported_ns", "integer", "the device's own clock when it reported its health", _of_health("told_ns")),
    StatusField("agent", "text", "version of the agent", _of_health("agent")),
    StatusField("waiting_records", "integer", "records in the outbox", _of_health("waiting_records")),
    StatusField("dropped_records", "integer", "records that the outbox had no room for", _of_health("dropped_records")),
    StatusField("disk_free_bytes", "integer", "free space of the agent's disk", _of_health("disk.free_bytes")),
    StatusField("disk_size_bytes", "integer", "size of that disk", _of_health("disk.size_bytes")),
    StatusField("disk_wear_ratio", "float", "wear of its flash memory, 0..1", _of_health("disk.wear_ratio")),
    StatusField(
        "temperature_max_c", "float", "highest temperature", _of_health(lambda health: max(health.temperatures_c.values(), default=None))
    ),
    StatusField("is_clock_synchronised", "boolean", "whether its clock is synchronised", _of_health("clock.is_synchronised")),
    StatusField("is_throttled_since_boot", "boolean", "whether it throttled", _of_health("is_throttled_since_boot")),
    StatusField("is_under_voltage_since_boot", "boolean", "whether its supply was too low", _of_health("is_under_voltage_since_boot")),
    StatusField("uptime_s", "float", "time since its boot", _of_health("uptime_s")),
    StatusField("certificate_days", "float", "days until its certificate expires", _at_now(certificate_days)),
    StatusField("last_run_ns", "integer", "when its last run was kept", _of_health("runs.last_ns")),
    StatusField("last_stop", "text", "how the agent before this one ended", _of_health(last_words)),
    StatusField(
        "attention",
        "text",
        "why it needs attention; empty: it does not",
        _at_now(lambda health, now_ns: "; ".join(needs_attention(health, now_ns))),
    ),
    StatusField(
        "issues",
        "integer",
        "number of reasons why it needs attention",
        _at_now(lambda health, now_ns: len(needs_attention(health, now_ns))),
    ),
)
COLLECTOR_FIELDS = (
    StatusField("ledger_row", "integer", "row of the newest record in the ledger", lambda status, _: status.ledger_row),
    StatusField("sink_row", "integer", "row up to which this InfluxDB has every record", lambda status, _: status.sink_row),
    StatusField("lag_rows", "integer", "records that wait for the drain", lambda status, _: max(0, status.ledger_row - status.sink_row)),
    StatusField(
        "lag_s",
        "float",
        "how long the oldest of them has been waiting",
        lambda status, now_ns: 0.0 if status.waiting_since_ns is None else max(0, now_ns - status.waiting_since_ns) / 1e9,
    ),
    StatusField("rejected_records", "integer", "records that this InfluxDB rejected since the start", lambda status, _: status.rejected),
    StatusField("quarantine_entries", "integer", "entries in the quarantine", lambda status, _: status.quarantined),
)


def status_lines(devices: Sequence[DevicePresence], status: CollectorStatus, now_ns: int) -> list[str]:
    """Return the points of devices and of the collector."""
    return [*(device_line(device, now_ns) for device in devices), collector_line(status, now_ns)]


def device_line(device: DevicePresence, now_ns: int) -> str:
    """Return the point of a device's presence and health."""
    return _line(DEVICE, {"device": device.device, "fleet": device.fleet}, DEVICE_FIELDS, device, now_ns)


def collector_line(status: CollectorStatus, now_ns: int) -> str:
    """Return the point of a collector's drain."""
    return _line(COLLECTOR, {"collector": status.collector}, COLLECTOR_FIELDS, status, now_ns)


def _line(measurement: str, tags: dict[str, str], fields: tuple[StatusField, ...], reported: object, now_ns: int) -> str:
    values = ((field, field.value(reported, now_ns)) for field in fields)
    written = ",".join(f"{field.name}={_text(field.kind, value)}" for field, value in values if value is not None)
    named = "".join(f",{name}={tag_text(value)}" for name, value in tags.items())
    return f"{measurement}{named} {written} {now_ns}"


def _text(kind: FieldKind, value: Any) -> str:
    if kind == "text":
        return quoted(value)
    if kind == "boolean":
        return "true" if value else "false"
    return f"{value}i" if kind == "integer" else repr(float(value))
