"""Makes the running broker apply what the registry holds: open tokens, revoked devices, and who is to be disconnected now."""

import logging
import re
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract import messages
from edgemeter.agent.contract.messages import Topic
from edgemeter.provisioning.identity import broker_files
from edgemeter.provisioning.identity.authority import Authority
from edgemeter.provisioning.identity.broker_access import BrokerAccess, IntendedAccess, plugin_file
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import ServerEntry, fleet_broker_address
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.certificates import active_bans, delete_pending_disconnect, open_tokens, pending_disconnects
from edgemeter.provisioning.registry.devices import find_presence, put_offline
from edgemeter.provisioning.registry.registry import Registry

logger = logging.getLogger(__name__)

COMMAND_TIMEOUT_S = 30.0
PROGRAM = "mosquitto"
# A broker that did not answer is retried after a second, two, four, ..., at most this.
BROKER_RETRY_S = 30.0
# Whoever makes a token tells it to the broker within this time.
TOKEN_TOLD_S = 30.0

# Counts that change whenever the broker is to know something else: cheaper than working out what.
_STATE = """SELECT
    (SELECT count(*) FROM claims WHERE closed_ns IS NULL AND expires_ns > ?),
    (SELECT max(made_ns) FROM claims),
    (SELECT count(*) FROM devices WHERE standing = 'revoked'),
    (SELECT max(changed_ns) FROM devices WHERE standing = 'revoked'),
    (SELECT count(*) FROM certificates WHERE revoked_ns <= ?),
    (SELECT count(*) FROM expulsions),
    (SELECT count(*) FROM bans WHERE until_ns > ?),
    (SELECT max(since_ns) FROM bans)"""
# 1,100 silent connections of strangers exhaust the usual limit of open files, 1,024.
FEWEST = 4096
_REMEDY = "start it by its systemd unit (sudo systemctl start edgemeter-fleet.target), or after `ulimit -n 65536`"


def wanted_access(registry: Registry, now_ns: int) -> IntendedAccess:
    """Return what the broker is to hold at `now_ns`, by the registry."""
    revoked = {device.device for device in devices.read(registry) if device.trust == "revoked"}
    return IntendedAccess(open_tokens(registry, now_ns), revoked, active_bans(registry, now_ns))


def write_access(folder: FleetFolder, registry: Registry, now_ns: int) -> None:
    """Write what a broker that starts now is to know; raises UnavailableError if the file cannot be written."""
    durable_file.write(folder.broker_access, plugin_file(wanted_access(registry, now_ns)))


def broker_process(folder: FleetFolder, server: ServerEntry, proc: Path = Path("/proc")) -> int | None:
    """Return the process id of the broker, None where its pid file names no mosquitto on this machine."""
    path = Path(server.broker_pid_file) if server.broker_pid_file else folder.broker / "mosquitto.pid"
    try:
        number = int(path.read_text().strip())
        return number if number > 1 and (proc / str(number) / "comm").read_text().strip() == PROGRAM else None
    except (OSError, ValueError):
        return None


def run_reload_command(server: ServerEntry) -> None:
    """Run the command of fleet.toml that brings changed files to a broker elsewhere; raises UnavailableError if it fails."""
    if not server.broker_reload:
        return
    try:
        subprocess.run(server.broker_reload, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"the command that reloads the broker failed ({error}): correct broker_reload in fleet.toml") from error


_LIMIT = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


def raise_limit() -> None:
    """Let this process open as many files as the system allows it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def low_limits(folder: FleetFolder, server: ServerEntry, proc: Path = Path("/proc")) -> list[str]:
    """Return which of service and broker may open too few files, with the remedy; a broker elsewhere is not looked at."""
    issues = []
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < FEWEST:
        issues.append(f"the service may open {limit:,} files only: {_REMEDY}")
    broker = broker_process(folder, server, proc)
    connections = _open_files(proc / str(broker) / "limits") if broker is not None else None
    if connections is not None and connections < FEWEST:
        issues.append(f"the broker may hold {connections:,} connections only, so a stranger can take them all: {_REMEDY}")
    return issues


def _open_files(limits: Path) -> int | None:
    try:
        match = _LIMIT.search(limits.read_text())
    except OSError:
        return None
    return int(match[1]) if match else None


class Enforcement:
    """Keeps one fleet's broker up to date: `enforce` repeatedly, or `settle` once.

    `passwords` are new tokens by their id: only who makes a token can tell it to a running broker, since the registry has its hash alone.
    """

    def __init__(
        self,
        folder: FleetFolder,
        registry: Registry,
        signing: Authority,
        passwords: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._registry = registry
        self._signing = signing
        self._passwords = passwords or {}
        self._state: tuple[int | None, ...] | None = None
        self._needs_command = False
        self._is_due = False
        self._failures = 0
        self._not_before_s = 0.0
        self._recheck_s = 0.0
        self._is_absence_known = False

    def enforce(self, now: datetime) -> bool:
        """Do what can be done now; return whether something is left because the broker does not answer.

        Raises:
            ConfigError: a file of the fleet is damaged, or the broker runs with another configuration.
            UnavailableError: a file cannot be written, or the command of fleet.toml fails.
        """
        now_ns = int(now.timestamp() * NS_PER_S)
        state = tuple(self._registry.query(_STATE, now_ns, now_ns, now_ns)[0])
        if state != self._state:
            changed = broker_files.renew(self._folder, self._registry, self._signing, now)
            if self._state is not None and self._folder.broker / "acl" in changed:
                logger.warning("the fleet's name changed: restart the broker, which reads its rules when it starts")
            self._needs_command = bool(changed) or self._needs_command
            self._is_due, self._recheck_s = True, 0.0
            self._state = state
        now_s = self._clock()
        if not (self._needs_command or pending_disconnects(self._registry) or (self._is_due and now_s >= self._recheck_s)):
            return self._is_due
        if now_s < self._not_before_s:
            return True
        self._not_before_s = now_s + min(BROKER_RETRY_S, 2.0 ** min(self._failures, 10))
        self._failures += 1
        if self._needs_command:
            run_reload_command(self._server())
            self._needs_command = False
        self._is_due = not self._is_applied(now_ns)
        return self._is_due or bool(pending_disconnects(self._registry))

    def settle(self, now: datetime) -> bool:
        """Do everything; return whether devices could not be disconnected, because the broker does not answer. Raises as `enforce`."""
        self.enforce(now)
        return bool(pending_disconnects(self._registry))

    def _is_applied(self, now_ns: int) -> bool:
        """Return whether the running broker has everything, or one that starts now will have."""
        try:
            with BrokerAccess(fleet_broker_address(self._folder, client="operator")) as access:
                unknown = access.apply(lambda: wanted_access(self._registry, now_ns), self._passwords)
                self._disconnect(access)
        except UnavailableError as error:
            is_running = broker_process(self._folder, self._server()) is not None
            if not is_running:
                write_access(self._folder, self._registry, now_ns)
            if not self._is_absence_known:
                where = "" if is_running else f"; it reads {str(self._folder.broker_access)!r} when it starts"
                logger.log(logging.WARNING if is_running else logging.INFO, "cannot change access at the broker now: %s%s", error, where)
            self._is_absence_known = True
            if is_running and self._passwords:
                raise
            return not is_running
        except ConfigError:
            # What runs there reads this file after the restart that the message asks for.
            write_access(self._folder, self._registry, now_ns)
            raise
        # Disconnecting somebody does not wait for a token that another process made.
        self._is_absence_known, self._failures, self._not_before_s = False, 0, 0.0
        self._recheck_s = self._clock() + TOKEN_TOLD_S
        forgotten = [token for token in unknown if now_ns - token.made_ns > TOKEN_TOLD_S * NS_PER_S]
        for token in forgotten:
            logger.warning("the broker does not know the token of %r: make another (`edgemeter fleet token`)", token.device)
        return len(forgotten) == len(unknown)

    def _disconnect(self, access: BrokerAccess) -> None:
        for device in pending_disconnects(self._registry):
            access.disconnect(device)
            if (state := self._state_after(device)) is not None and (refusal := access.retain(*state)) is not None:
                message = "%r is disconnected, but its retained state is out of date: the broker refuses the update (%s); compare its ACL"
                logger.warning(message, device, refusal)
            logger.info("device %r disconnected", device)
            with self._registry.transaction() as connection:
                delete_pending_disconnect(connection, device)
                put_offline(connection, device, time.time_ns())

    def _state_after(self, device: str) -> tuple[str, bytes] | None:
        """Return the state to retain for a device whose own Will is denied: revoked or banned; None for one that may come back now."""
        registered, heard = devices.find(self._registry, device), find_presence(self._registry, device)
        fleet = heard.fleet if heard else registered.fleet if registered else None
        is_revoked = registered is not None and registered.trust == "revoked"
        if fleet is None or not (is_revoked or device in active_bans(self._registry, time.time_ns())):
            return None
        session = heard.session if heard and heard.session is not None else 0
        state = messages.DeviceState(state="revoked" if is_revoked else "offline", session=session)
        return str(Topic(fleet, device, "state")), messages.encode_message(state)

    def _server(self) -> ServerEntry:
        return fleet_file.read(self._folder.fleet_file).server or ServerEntry(broker="")
