"""The message `health`: the state of a device, retained by the broker.

Readers tolerate fields that they do not know.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_HOUR
from edgemeter.agent.base.number_text import printable
from edgemeter.agent.base.types import Count, Int64, Ratio, TimeNs
from edgemeter.agent.contract.messages import (
    Activity,
    Birth,
    DeviceState,
    Topic,
    decode_activity,
    decode_birth,
    decode_state,
    decoder_of,
)

Line = Annotated[str, msgspec.Meta(max_length=500)]
# Wider than any known board; a report with a value outside these bounds is refused.
MOST_ENTRIES = 100
Temperature = Annotated[float, msgspec.Meta(ge=-100, le=250)]
Runs = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class Sensor(msgspec.Struct, frozen=True, kw_only=True):
    """A power sensor: its id, or why it cannot be read."""

    name: Line
    id: Line | None = None
    scope: Line | None = None
    trouble: Line | None = None


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The wall clock.

    Its synchronisation, the correction to come, and the latest time it ever showed (`floor_ns`).

    A clock behind that time was set back, such as on a board without a clock chip before it reaches
    a time server.
    """

    is_synchronised: bool | None = None
    offset_ms: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None = None
    error_ms: float | None = None
    floor_ns: TimeNs | None = None
    is_behind_floor: bool = False
    # Set by the collector at receipt where the time cannot be true; negative if the clock is
    # behind. A device does not state it.
    off_by_ns: Int64 | msgspec.UnsetType = msgspec.UNSET


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The file system of EDGEMETER_HOME.

    `wear_ratio` is the eMMC's own estimate, `written_bytes` is counted by ext4.
    """

    free_bytes: Count | None = None
    size_bytes: Count | None = None
    wear_ratio: Ratio | None = None
    is_worn_out: bool | None = None
    written_bytes: Count | None = None


class RecentRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The time and verdict of the newest run, and the number of recent runs by verdict."""

    last_ns: TimeNs | None = None
    last_verdict: Line | None = None
    verdicts: Annotated[dict[str, Runs], msgspec.Meta(max_length=MOST_ENTRIES)] = {}


class LastStop(msgspec.Struct, frozen=True, kw_only=True):
    """How the previous agent ended.

    `clean`: on request; `crash`: by an unhandled error; `killed`: from outside; `oom`: by the
    kernel, out of memory; `power-loss`: without a clean stop of the board; `first`: there was none.
    """

    kind: Literal["clean", "crash", "killed", "oom", "power-loss", "first", "unknown"]
    text: Line | None = None
    at_ns: TimeNs | None = None


REFUSED_NS = 7 * 24 * NS_PER_HOUR


class RefusedOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The number of orders that the fleet's service had not signed for this device and time.

    And the reason of the last.
    """

    count: Count
    last_ns: TimeNs
    reason: Line


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a device; null is unknown.

    `told_ns` is its own wall clock, `session` that of its birth.

    `outbox_trouble` is why the outbox cannot be read; then its counts are null.
    """

    device: str
    fleet: str
    session: Count
    told_ns: TimeNs
    agent: Line
    # The release that holds this agent and its runtimes, where one does: the agent's version, `+`,
    # and 8 digits of what it holds.
    release: Line | None = None
    previous_agent: Line | None = None
    bad_agents: tuple[Line, ...] = ()
    board: Line | None = None
    serial: Line | None = None
    os: Line | None = None
    kernel: Line | None = None
    power_mode: Line | None = None
    governor: Line | None = None
    python: Line | None = None
    glibc: Line | None = None
    arch: Line | None = None
    sensors: Annotated[tuple[Sensor, ...], msgspec.Meta(max_length=MOST_ENTRIES)] = ()
    certificate_not_after_ns: TimeNs | None = None
    clock: Clock = Clock()
    disk: Disk = Disk()
    waiting_records: Count | None = None
    dropped_records: Count | None = None
    dropped_traces: Count | None = None
    outbox_trouble: Line | None = None
    refused_orders: RefusedOrders | None = None
    runs: RecentRuns = RecentRuns()
    temperatures_c: Annotated[dict[str, Temperature], msgspec.Meta(max_length=MOST_ENTRIES)] = {}
    is_throttled_since_boot: bool | None = None
    is_under_voltage_since_boot: bool | None = None
    throttle_events: dict[str, Count] = {}
    uptime_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    boot_id: Line | None = None
    reset_reason: Line | None = None
    last_words: LastStop = LastStop(kind="unknown")


def recently_refused(health: Health) -> RefusedOrders | None:
    """Return the orders that the device refused.

    None where the last is a week before its report, both by its own clock.
    """
    refused = health.refused_orders
    return (
        refused if refused is not None and health.told_ns - refused.last_ns < REFUSED_NS else None
    )


def _printable(value: Any) -> Any:
    """Return a value whose texts have no control characters.

    They have no line breaks or changes of direction either.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{name: _printable(getattr(value, name)) for name in value.__struct_fields__}
        )
    if isinstance(value, tuple):
        return tuple(map(_printable, value))
    return (
        {_printable(key): _printable(entry) for key, entry in value.items()}
        if isinstance(value, dict)
        else value
    )


encode_health: Callable[[Health], bytes] = msgspec.json.encode


def decode_health(payload: bytes) -> Health:
    """Return a device's health, its texts on one line.

    Raises:
        ConfigError: it is garbled or impossible.
    """
    health: Health = _printable(_decode(payload))
    return health


_decode = decoder_of(Health, "a device's health")
ReportedMessage = DeviceState | Birth | Health | Activity
_DECODERS: dict[str, Callable[[bytes], ReportedMessage]] = {
    "health": decode_health,
    "birth": decode_birth,
    "state": decode_state,
    "activity": decode_activity,
}


def decode_report(topic: Topic, payload: bytes) -> ReportedMessage:
    """Return a device's report on a topic of one of these kinds.

    Raises:
        ConfigError: it is garbled or names another device.
    """
    report = _DECODERS[topic.kind](payload)
    if isinstance(report, Health | Birth) and (report.fleet, report.device) != (
        topic.fleet,
        topic.device,
    ):
        raise ConfigError(
            f"the {topic.kind} is of device {report.device!r} of fleet {report.fleet!r}, but "
            f"arrived on the topic of device {topic.device!r} of fleet {topic.fleet!r}"
        )
    return report
