"""The message `health`: the state of a device, retained by the broker. Readers tolerate fields that they do not know."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.nanoseconds import NS_PER_HOUR
from edgemeter.agent.base.types import Count, Int64, Ratio, TimeNs
from edgemeter.agent.contract.messages import decoder_of

Line = Annotated[str, msgspec.Meta(max_length=500)]


class Sensor(msgspec.Struct, frozen=True, kw_only=True):
    """A power sensor: by its id once it can be read, else why it cannot."""

    name: Line
    id: Line | None = None
    scope: Line | None = None
    trouble: Line | None = None


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The wall clock: whether something keeps it right, what the kernel still has to correct, and the latest time it ever showed.

    A clock behind its floor has been set back: a board without a clock chip that has not reached a time server yet.
    """

    is_synchronised: bool | None = None
    offset_ms: float | None = None
    error_ms: float | None = None
    floor_ns: TimeNs | None = None
    is_behind_floor: bool = False
    # What its collector finds at receipt, where it cannot be true: ahead, negative: behind. A device does not state it.
    off_by_ns: Int64 | msgspec.UnsetType = msgspec.UNSET


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The file system of EDGEMETER_HOME. `wear_ratio` is the eMMC's own estimate (an upper bound), `written_bytes` what ext4 counted."""

    free_bytes: Count | None = None
    size_bytes: Count | None = None
    wear_ratio: Ratio | None = None
    is_worn_out: bool | None = None
    written_bytes: Count | None = None


class RecentRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The last run that was kept for delivery, and how many of the last ones had which verdict."""

    last_ns: TimeNs | None = None
    last_verdict: Line | None = None
    verdicts: dict[str, Count] = {}


class LastStop(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent before this one ended.

    clean: on request; crash: by an unhandled error; killed: from outside in the same boot, `oom` by the kernel when out of memory;
    power-loss: without a clean stop of the board (probably power, reset or a frozen kernel); first: there was none before.
    """

    kind: Literal["clean", "crash", "killed", "oom", "power-loss", "first", "unknown"]
    text: Line | None = None
    at_ns: TimeNs | None = None


# In the agent's data folder, from its orders' check to its health report.
REFUSED_ORDERS_FILE = "refused-orders.json"
REFUSED_NS = 7 * 24 * NS_PER_HOUR


class RefusedOrders(msgspec.Struct, frozen=True, kw_only=True):
    """How many orders the device has refused because the fleet's service did not sign them for it now, and why the last."""

    count: Count
    last_ns: TimeNs
    reason: Line


def read_refused_orders(home: Path) -> RefusedOrders | None:
    """Return what the agent with that data folder has noted, None where it refused none; damage counts as none."""
    return durable_file.read_if_any(home / REFUSED_ORDERS_FILE, RefusedOrders)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; what the device does not report is None. `told_ns` is its own wall clock, `session` that of its birth.

    `outbox_trouble` is why its outbox cannot be read: then the counts of it are unknown, and 0 here for readers of before.
    """

    device: str
    fleet: str
    session: Count
    told_ns: TimeNs
    agent: Line
    # The release that holds this agent and its runtimes, where one does: the agent's version, `+`, and 8 digits of what it holds.
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
    sensors: tuple[Sensor, ...] = ()
    certificate_not_after_ns: TimeNs | None = None
    clock: Clock = Clock()
    disk: Disk = Disk()
    waiting_records: Count = 0
    dropped_records: Count = 0
    dropped_traces: Count = 0
    # Left out where there is none, so that the message stays that of before.
    outbox_trouble: Line | msgspec.UnsetType = msgspec.UNSET
    refused_orders: RefusedOrders | msgspec.UnsetType = msgspec.UNSET
    runs: RecentRuns = RecentRuns()
    temperatures_c: dict[str, float] = {}
    is_throttled_since_boot: bool | None = None
    is_under_voltage_since_boot: bool | None = None
    throttle_events: dict[str, Count] = {}
    uptime_s: float | None = None
    boot_id: Line | None = None
    reset_reason: Line | None = None
    last_words: LastStop = LastStop(kind="unknown")


class OutboxHealth(msgspec.Struct, frozen=True):
    """The part of a `Health` that `waiting_records` reads, for whoever decodes those of thousands of devices."""

    waiting_records: Count = 0
    outbox_trouble: Line | msgspec.UnsetType = msgspec.UNSET


def waiting_records(health: Health | OutboxHealth) -> int | None:
    """Return how many records wait in the device's outbox, None where it cannot be read."""
    return None if health.outbox_trouble else health.waiting_records


def dropped_records(health: Health) -> int | None:
    """Return how many records the outbox had no room for, None where it cannot be read."""
    return None if health.outbox_trouble else health.dropped_records


def recently_refused(health: Health) -> RefusedOrders | None:
    """Return the orders that the device refused, None where the last is a week before its report, both by its own clock."""
    refused = health.refused_orders or None
    return refused if refused is not None and health.told_ns - refused.last_ns < REFUSED_NS else None


encode_health: Callable[[Health], bytes] = msgspec.json.encode
decode_health = decoder_of(Health, "a device's health")
