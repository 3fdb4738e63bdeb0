"""Checks of delivery for `edgemeter doctor`.

They are about disk space, ledger and outbox, and the broker if one is configured.
"""

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.broker_address import mqtt_version, parse_address
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.mqtt_session import MqttSession, SessionEvents, SessionProfile
from edgemeter.agent.base.number_text import count
from edgemeter.agent.delivery import outbox_file
from edgemeter.agent.delivery.outbox_file import dropped_count
from edgemeter.agent.doctor.checks import Finding
from edgemeter.agent.ledger.ledger import LEDGER_FILE

LITTLE_ROOM_MB = 500.0
NO_ROOM_MB = 50.0
BROKER_TIMEOUT_S = 5.0
_finding = partial(Finding, "delivery")


def check(home: Path, broker: str | None) -> Iterator[Finding]:
    """Yield the findings about delivery; without an address no broker is checked."""
    yield _room(home)
    yield _place("ledger", home / LEDGER_FILE, "no run yet")
    yield _place("outbox file", home / outbox_file.OUTBOX, "no result to deliver yet")
    yield outbox_finding(home / outbox_file.OUTBOX)
    if broker:
        yield _broker(broker)
    else:
        yield _finding(
            "broker", "absent", "none is configured, so results stay in this device's ledger"
        )


def _place(name: str, path: Path, absent: str) -> Finding:
    if not path.exists():
        return _finding(name, "ok", f"{path}: {absent}")
    sizes_bytes = [
        part.stat().st_size for part in (path, path.with_name(f"{path.name}-wal")) if part.exists()
    ]
    return _finding(name, "ok", f"{path}: {sum(sizes_bytes) / 1e6:.1f} MB")


def _room(home: Path) -> Finding:
    existing = next(path for path in (home, *home.absolute().parents) if path.exists())
    free_mb = shutil.disk_usage(existing).free / 1e6
    text = f"{free_mb / 1000:.1f} GB are free for ledger and outbox in {str(home)!r}"
    if free_mb < LITTLE_ROOM_MB:
        return _finding(
            "disk",
            "bad" if free_mb < NO_ROOM_MB else "warn",
            text,
            "free some space, or set EDGEMETER_HOME to a folder on a larger disk",
        )
    return _finding("disk", "ok", text)


def _of_error(name: str, error: EdgemeterError) -> Finding:
    cause, _, remedy = str(error).rpartition(": ")
    return _finding(name, "bad", cause or remedy, remedy)


def outbox_finding(path: Path) -> Finding:
    """Return the number of records that wait in the outbox at `path`, and the reason."""
    if not path.exists():
        return _finding("outbox", "ok", "empty")
    try:
        # Opening it as an Outbox would start a session, and a check must change nothing.
        with (
            contextlib.closing(sqlite_file.connect(path, outbox_file.FORMAT, "read")) as connection,
            sqlite_file.mapped(path, outbox_file.FORMAT),
        ):
            waiting, dropped = (
                outbox_file.waiting_count(connection),
                dropped_count(connection, None),
            )
            too_large = outbox_file.too_large(connection, None)
    except EdgemeterError as error:
        return _of_error("outbox", error)
    if dropped.traces or dropped.records:
        return _finding(
            "outbox",
            "bad" if dropped.records else "warn",
            f"full: {dropped.traces} raw traces and {dropped.records} records were dropped so "
            f"far; {waiting} wait",
            "start a collector, or raise outbox_limit_mb",
        )
    if too_large:
        return _finding(
            "outbox",
            "warn",
            f"{len(too_large)} of {waiting} records that wait cannot be sent: {too_large[0]}",
            outbox_file.TOO_LARGE_REMEDY,
        )
    if waiting:
        return _finding(
            "outbox",
            "warn",
            f"{count(waiting, 'record')} waiting to be delivered",
            "`edgemeter agent publish --broker ADDRESS`",
        )
    return _finding("outbox", "ok", "empty: everything was delivered")


def _broker(address_text: str) -> Finding:
    try:
        address = parse_address(address_text)
        version = mqtt_version(address, BROKER_TIMEOUT_S)
        # A client id of its own: the device's own id would displace a run that is delivering.
        profile = SessionProfile(f"edgemeter-doctor-{secrets.token_hex(4)}")
        with contextlib.closing(MqttSession(address, profile, _NoEvents())) as session:
            session.connect(BROKER_TIMEOUT_S)
    except EdgemeterError as error:
        return _of_error("broker", error)
    if version == "5":
        return _finding("broker", "ok", f"{address} accepts this device, MQTT 5")
    return _finding(
        "broker",
        "warn",
        f"{address} accepts this device, but supports only MQTT 3.1.1: it drops rejected results "
        "silently, until they are sent again",
        "use a broker with MQTT 5 (mosquitto 2, EMQX, HiveMQ) for a fleet",
    )


class _NoEvents(SessionEvents):
    """Ignores all events."""
