"""Presence: the devices, their state, whether they need attention, and missing record numbers.

It comes from retained messages of devices and of the fleet's service. The outbox numbers a
session's records 1, 2, 3, ... without gaps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.health import Health, ReportedMessage
from edgemeter.agent.contract.messages import Birth, DeviceState

_Report = TypeVar("_Report")

# A late Will of an earlier session does not apply to the present one; a revocation applies to every
# session. A message that a broker repeats after a restart, or that several collectors of a group
# receive, does not count as a change.
_STATE = """INSERT INTO presence (fleet, device, state, session, changed_ns) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (fleet, device) DO UPDATE SET state = excluded.state, session = excluded.session, \
changed_ns = excluded.changed_ns
WHERE (excluded.state IN ('online', 'revoked') OR presence.session IS NULL \
OR presence.session = excluded.session)
AND (coalesce(presence.state, '') <> excluded.state \
OR coalesce(presence.session, -1) <> coalesce(excluded.session, -1))"""
_BIRTH = """INSERT INTO presence (fleet, device, birth, changed_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (fleet, device) DO UPDATE SET birth = excluded.birth \
WHERE presence.birth IS NULL OR presence.birth <> excluded.birth"""
_HEALTH = """INSERT INTO presence (fleet, device, health, changed_ns) VALUES (?, ?, ?, ?)
ON CONFLICT (fleet, device) DO UPDATE SET health = excluded.health \
WHERE presence.health IS NULL OR presence.health <> excluded.health"""
_RETAINED = """INSERT INTO retained (topic, payload, received_ns) VALUES (?, ?, ?)
ON CONFLICT (topic) DO UPDATE SET payload = excluded.payload, received_ns = excluded.received_ns
WHERE retained.payload <> excluded.payload"""


@dataclass(frozen=True, slots=True)
class PresenceChange:
    """A state reported by a device, and when the report was received."""

    fleet: str
    device: str
    message: ReportedMessage
    received_ns: int


@dataclass(frozen=True, slots=True)
class RetainedMessage:
    """The latest message of a topic, and when its content was first received.

    An empty one removes the topic.
    """

    topic: str
    payload: bytes
    received_ns: int


@dataclass(frozen=True, slots=True)
class DevicePresence:
    """A device as last reported; None is not reported."""

    fleet: str
    device: str
    state: str | None
    session: int | None
    birth: Birth | None
    changed_ns: int
    health: Health | None = None


class DeviceBacklog(NamedTuple):
    """The last reported state of a device, and the number of records in its outbox.

    None is not reported.
    """

    state: str | None
    waiting_records: int | None


class _OutboxHealth(msgspec.Struct, frozen=True):
    """The part of a `Health` that is decoded for thousands of devices."""

    waiting_records: int | None = None


_decode_outbox = msgspec.json.Decoder(_OutboxHealth).decode


def note_presence(
    statements: Statements, changes: Iterable[PresenceChange | RetainedMessage]
) -> None:
    for change in changes:
        if isinstance(change, RetainedMessage):
            if change.payload:
                statements.execute(_RETAINED, (change.topic, change.payload, change.received_ns))
            else:
                statements.execute("DELETE FROM retained WHERE topic = ?", (change.topic,))
        elif isinstance(change.message, DeviceState):
            state = change.message
            statements.execute(
                _STATE,
                (change.fleet, change.device, state.state, state.session, change.received_ns),
            )
        else:
            report = msgspec.json.encode(change.message)
            statements.execute(
                _BIRTH if isinstance(change.message, Birth) else _HEALTH,
                (change.fleet, change.device, report, change.received_ns),
            )


def present_device(
    fleet: str,
    device: str,
    state: str | None,
    session: int | None,
    birth: bytes | None,
    changed_ns: int,
    health: bytes | None,
) -> DevicePresence:
    """Return the device in a row of the table."""
    return DevicePresence(
        fleet, device, state, session, _decoded(birth, Birth), changed_ns, _decoded(health, Health)
    )


def backlog(state: str | None, health: bytes | None) -> DeviceBacklog:
    """Return the backlog of the device in a row of the table."""
    return DeviceBacklog(state, _decode_outbox(health).waiting_records if health else None)


def _decoded(report: bytes | None, kind: type[_Report]) -> _Report | None:
    return msgspec.json.decode(report, type=kind) if report else None


@dataclass(frozen=True, slots=True)
class SessionHeld:
    """The stored records of one session; `missing` counts absent numbers below the highest."""

    fleet: str
    device: str
    session: int
    records: int
    missing: int
    last_received_ns: int
