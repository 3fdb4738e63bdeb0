"""The points of the dashboards besides runs are those of devices and collectors.

`device` is its presence and health, `collector` the lag of its drain.
"""

from collections.abc import Callable, Iterator, Sequence

from edgemeter.agent.contract.health_issues import needs_attention
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.collector.influx.points import fields_text, tag_text

# By name: the meaning of a field of `device`, and how it is read at a time; no value if the device
# reported no health.
DEVICE_FIELDS: dict[str, tuple[str, Callable[[DevicePresence, int], object]]] = {
    "state": (
        "last reported state: online, offline, lost or revoked",
        lambda device, _: device.state,
    ),
    "agent": ("version of the agent", lambda device, _: device.health and device.health.agent),
    "waiting_records": (
        "records in the outbox",
        lambda device, _: device.health and device.health.waiting_records,
    ),
    "disk_free_bytes": (
        "free space of the agent's disk",
        lambda device, _: device.health and device.health.disk.free_bytes,
    ),
    "temperature_max_c": (
        "highest temperature",
        lambda device, _: (
            device.health and max(map(float, device.health.temperatures_c.values()), default=None)
        ),
    ),
    "is_clock_synchronised": (
        "whether its clock is synchronised",
        lambda device, _: device.health and device.health.clock.is_synchronised,
    ),
    "attention": (
        "why it needs attention, or empty",
        lambda device, now_ns: device.health and "; ".join(needs_attention(device.health, now_ns)),
    ),
    "issues": (
        "number of reasons why it needs attention",
        lambda device, now_ns: device.health and len(needs_attention(device.health, now_ns)),
    ),
}


def status_lines(
    devices: Sequence[DevicePresence], collector: str, lag_rows: int, now_ns: int
) -> Iterator[str]:
    """Yield the points of the devices, and of a collector by the id of its ledger.

    The collector's has the number of records that wait for the drain.
    """
    for device in devices:
        fields = fields_text(
            [(name, read(device, now_ns)) for name, (_, read) in DEVICE_FIELDS.items()]
        )
        if fields:
            yield (
                f"device,device={tag_text(device.device)},fleet={tag_text(device.fleet)} "
                f"{fields} {now_ns}"
            )
    yield f"collector,collector={tag_text(collector)} lag_rows={lag_rows}i {now_ns}"
