"""Makes the running broker apply what the registry holds: it reloads its files, and revoked devices are disconnected."""

import logging
import os
import re
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

from edgemeter.agent.base.broker_address import BrokerAddress
from edgemeter.agent.base.errors import EdgemeterError, UnavailableError
from edgemeter.agent.base.mqtt_session import Message, MqttSession, SessionProfile
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.identity.authority import Authority
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import ServerEntry, fleet_broker_address
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.certificates import delete_pending_disconnect, pending_disconnects
from edgemeter.provisioning.registry.devices import find_presence, put_offline
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)

RELOAD_TIMEOUT_S = 30.0
TAKE_OVER_S = 5.0
START_S = 1.0
PROGRAM = "mosquitto"
# mosquitto 2.0 ignores a SIGHUP while it still acts on the one before, such as those of a command and of the service: each reload is
# requested twice, this far apart. A device that is disconnected before the reload comes back.
RELOAD_PAUSE_S = 1.0
SETTLE_ATTEMPTS = 2

# A broker that did not answer is retried after this.
BROKER_RETRY_S = 30.0

# Counts that change whenever the broker's files would: cheaper than making the files.
_STATE = """SELECT
    (SELECT count(*) FROM claims WHERE closed_ns IS NULL AND expires_ns > ?1),
    (SELECT max(made_ns) FROM claims),
    (SELECT count(*) FROM devices WHERE standing = 'revoked'),
    (SELECT max(changed_ns) FROM devices WHERE standing = 'revoked'),
    (SELECT count(*) FROM certificates WHERE revoked_ns IS NOT NULL),
    (SELECT count(*) FROM expulsions)"""


def pid_file(folder: FleetFolder, server: ServerEntry) -> Path:
    """Return the file with the broker's process id."""
    return Path(server.broker_pid_file) if server.broker_pid_file else folder.broker / "mosquitto.pid"


def reload_broker(folder: FleetFolder, server: ServerEntry, proc: Path = Path("/proc")) -> bool:
    """Make the broker reload its files; return whether one is running.

    Raises:
        UnavailableError: it cannot be signalled.
    """
    if server.broker_reload:
        _run(server.broker_reload)
        return True
    number = _running(pid_file(folder, server), proc)
    if number is None:
        return False
    try:
        os.kill(number, signal.SIGHUP)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise UnavailableError(
            f"cannot signal the broker (pid {number}) to reload its files ({error.strerror}): run this as its owner, "
            "or set a command that does it in fleet.toml ([server] broker_reload)"
        ) from error
    return True


def disconnect_device(address: BrokerAddress, device: str, revoked_state: tuple[str, bytes] | None = None) -> None:
    """End the session of `device` by taking it over once, as the operator; the reloaded list of revoked certificates keeps it out.

    `revoked_state` (topic, payload) is retained on behalf of the device, which can no longer publish it.

    Raises:
        UnavailableError: no broker answers.
        ConfigError: it refuses the operator.
    """
    events = _RefusalOnly()
    session = MqttSession(address, SessionProfile(device), events)
    try:
        session.connect(TAKE_OVER_S)
        if revoked_state is not None:
            session.publish(*revoked_state, lasting="retained")
            session.flush(TAKE_OVER_S)
    finally:
        session.close()
    if events.refusal is not None:
        message = "%r is disconnected, but its retained state is out of date: the broker refuses the update (%s); compare its ACL"
        logger.warning(message, device, events.refusal)


class _RefusalOnly:
    """Ignores a session's events, except for a refused publish."""

    def __init__(self) -> None:
        self.refusal: str | None = None

    def connected(self) -> None:
        """Session event."""

    def disconnected(self, _reason: str) -> None:
        """Session event."""

    def received(self, _message: Message) -> None:
        """Session event."""

    def answered(self, refusal: str | None) -> None:
        """Session event: the broker's answer to a publish."""
        self.refusal = refusal


def _run(command: tuple[str, ...]) -> None:
    try:
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=RELOAD_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"the command that reloads the broker failed ({error}): correct broker_reload in fleet.toml") from error


def _running(path: Path, proc: Path) -> int | None:
    """Return the broker's process; None where the file names none, or another program has its number by now."""
    try:
        number = int(path.read_text().strip())
        program = (proc / str(number) / "comm").read_text().strip()
    except (OSError, ValueError):
        return None
    if number <= 1 or program != PROGRAM:
        return None
    # While it starts, a SIGHUP would end it.
    deadline = time.monotonic() + START_S
    while not _catches_hangups(proc / str(number) / "status"):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)
    return number


def _catches_hangups(status: Path) -> bool:
    try:
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    except OSError:
        return False
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGHUP - 1) & 1)


class Enforcement:
    """Keeps one fleet's broker up to date: `enforce` repeatedly, or `settle` once."""

    def __init__(self, folder: FleetFolder, registry: Registry, signing: Authority) -> None:
        self._folder = folder
        self._registry = registry
        self._signing = signing
        self._reloaded_for: set[str] = set()
        self._state: tuple[int | None, ...] | None = None
        self._reloaded_s = 0.0
        # Nothing was changed yet.
        self._is_reloaded_twice = True
        self._needs_reload = False
        self._not_before_s = 0.0

    def enforce(self, now: datetime) -> bool:
        """Do what can be done now; return whether something is left for a second later.

        Raises:
            ConfigError: a file of the fleet is damaged.
            UnavailableError: the broker cannot be reloaded.
        """
        state = tuple(self._registry.query(_STATE, int(now.timestamp() * 1_000_000_000))[0])
        if state != self._state:
            self._needs_reload = bool(broker_files.renew(self._folder, self._registry, self._signing, now)) or self._needs_reload
            self._state = state
        waiting = pending_disconnects(self._registry)
        if time.monotonic() < self._not_before_s:
            return self._needs_reload or bool(waiting)
        if self._needs_reload or not self._reloaded_for.issuperset(waiting):
            self._reload(waiting)
            self._is_reloaded_twice = False
        elif time.monotonic() - self._reloaded_s >= RELOAD_PAUSE_S:
            if not self._is_reloaded_twice:
                self._reload(waiting)
                self._is_reloaded_twice = True
            elif waiting:
                self._disconnect(waiting)
        return not self._is_reloaded_twice or bool(pending_disconnects(self._registry))

    def settle(self, now: datetime) -> bool:
        """Do everything; return whether devices are left that could not be disconnected, because the broker does not answer.

        Raises:
            ConfigError: as `enforce`.
            UnavailableError: as `enforce`.
        """
        for _ in range(SETTLE_ATTEMPTS):
            if not self.enforce(now):
                return False
            time.sleep(RELOAD_PAUSE_S)
        return self.enforce(now)

    def _reload(self, pending: list[str]) -> None:
        """Reload the broker before anybody is disconnected: a device disconnected earlier comes back."""
        self._needs_reload = True
        self._not_before_s = time.monotonic() + BROKER_RETRY_S
        is_running = reload_broker(self._folder, self._server())
        if not is_running:
            logger.info("no broker is running here: it reads %s when it starts", self._folder.broker)
        self._not_before_s = 0.0
        self._needs_reload = False
        self._reloaded_for = set(pending)
        self._reloaded_s = time.monotonic()

    def _disconnect(self, pending: list[str]) -> None:
        operator = fleet_broker_address(self._folder, client="operator")
        for device in pending:
            try:
                disconnect_device(operator, device, self._revoked_state(device))
            except EdgemeterError as error:
                logger.warning("cannot disconnect %r now: %s", device, error)
                self._not_before_s = time.monotonic() + BROKER_RETRY_S
                return
            logger.info("device %r disconnected", device)
            with self._registry.transaction() as connection:
                delete_pending_disconnect(connection, device)
                put_offline(connection, device, time.time_ns())

    def _revoked_state(self, device: str) -> tuple[str, bytes] | None:
        """Return the state to retain for a revoked device, None for one that comes back with another key."""
        known = devices.find(self._registry, device)
        if known is None or known.trust != "revoked":
            return None
        heard = find_presence(self._registry, device)
        session = heard.session if heard and heard.session is not None else 0
        topic = Topic(heard.fleet if heard else known.fleet, device, "state")
        return str(topic), messages.encode_message(messages.DeviceState(state="revoked", session=session))

    def _server(self) -> ServerEntry:
        return fleet_file.read(self._folder.fleet_file).server or ServerEntry(broker="")
