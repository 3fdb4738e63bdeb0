"""What `edgemeter doctor` says of the way out: room on the disk, the outbox, and the broker when there is one."""

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.config import Config
from edgemeter.agent.delivery import mqtt_session, mqtt_version, outbox, shedding, sqlite_file
from edgemeter.agent.delivery.broker_address import BrokerAddress, configured
from edgemeter.agent.doctor.finding import Finding, State
from edgemeter.agent.errors import EdgemeterError

LITTLE_ROOM_MB = 500.0
NO_ROOM_MB = 50.0
BROKER_TIMEOUT_S = 5.0


def check(home: Path, broker: str | None, settings: Config | None = None) -> Iterator[Finding]:
    """Yield what was found out about delivery; without a broker address none is looked for."""
    yield _room(home)
    yield _outbox(home / "outbox.sqlite")
    yield (
        _broker(broker, settings or Config()) if broker else _finding("broker", "absent", "none is configured: results are kept, not sent")
    )


def _finding(name: str, state: State, what: str, remedy: str | None = None) -> Finding:
    return Finding(area="delivery", name=name, state=state, what=what, remedy=remedy)


def _room(home: Path) -> Finding:
    there = next(path for path in (home, *home.absolute().parents) if path.exists())
    free_mb = shutil.disk_usage(there).free / 1e6
    what = f"{free_mb / 1000:.1f} GB are free for the outbox in {str(home)!r}"
    remedy = "free some space, or set EDGEMETER_HOME to a place on a larger disk"
    if free_mb < LITTLE_ROOM_MB:
        return _finding("disk", "bad" if free_mb < NO_ROOM_MB else "warn", what, remedy)
    return _finding("disk", "ok", what)


def _outbox(path: Path) -> Finding:
    if not path.exists():
        return _finding("outbox", "ok", "empty: nothing was kept here so far")
    try:
        waiting, dropped = _waiting(path)
    except EdgemeterError as error:
        return _finding("outbox", "bad", str(error))
    if dropped.traces or dropped.records:
        what = (
            f"{dropped.traces} raw traces and {dropped.records} records were dropped since it was made, because it was full; {waiting} wait"
        )
        return _finding("outbox", "bad" if dropped.records else "warn", what, "bring a collector up, or raise outbox_limit_mb")
    if waiting:
        return _finding("outbox", "warn", f"{waiting} records wait to be delivered", "`edgemeter publish --broker ADDRESS` sends them")
    return _finding("outbox", "ok", "empty: everything was delivered")


def _waiting(path: Path) -> tuple[int, shedding.Dropped]:
    # Opening it as an Outbox would start a session, and looking must change nothing.
    with contextlib.closing(sqlite_file.connect(path, outbox.FORMAT, "read")) as connection, sqlite_file.mapped(path, outbox.FORMAT):
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0]), shedding.count(connection, None)


def _broker(text: str, settings: Config) -> Finding:
    try:
        address = configured(text, settings)
        version = mqtt_version.ask(address, BROKER_TIMEOUT_S)
        _log_in(address)
    except EdgemeterError as error:
        return _finding("broker", "bad", str(error))
    if version == "5":
        return _finding("broker", "ok", f"{address} accepts us, MQTT 5")
    what = f"{address} accepts us, but knows only MQTT 3.1.1: a result that it refuses is lost without a word until we send it again"
    return _finding("broker", "warn", what, "use a broker with MQTT 5 (mosquitto 2, EMQX, HiveMQ) for a fleet")


class _NoEvents:
    """Takes no note of anything."""

    def connected(self) -> None:
        """Take no note."""

    def disconnected(self, reason: str) -> None:
        """Take no note."""

    def received(self, message: mqtt_session.Message) -> None:
        """Take no note."""

    def answered(self, refusal: str | None) -> None:
        """Take no note."""


def _log_in(address: BrokerAddress) -> None:
    # A client id of its own: the device's own id would take the connection away from a run that is delivering.
    session = mqtt_session.MqttSession(address, mqtt_session.Profile(f"edgemeter-doctor-{secrets.token_hex(4)}"), _NoEvents())
    try:
        session.connect(BROKER_TIMEOUT_S)
    finally:
        session.close()
