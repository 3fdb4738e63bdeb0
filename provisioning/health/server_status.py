"""How the fleet's server parts are: the broker and the collector as the service last saw them, in a file that commands read.

Take-overs are read from mosquitto's log, which the fleet's configuration publishes to the service alone.
"""

import logging
import re
import socket
import time
from collections.abc import Callable

import msgspec

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.figures import age, count
from edgemeter.agent.base.file_lock import DeviceLock, is_locked
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.identity import RESERVED_PREFIX
from edgemeter.agent.contract.messages import COLLECTOR_STATE_S, EVERY_COLLECTOR_STATE, decode_collector_state
from edgemeter.provisioning.inventory.fleet_file import fleet_broker_address
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.certificates import active_bans, ban_device, note_sessions, put_pending_disconnect
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish

logger = logging.getLogger(__name__)

SERVICE_ID = "edgemeter-fleet"
LOG_TOPICS = ("$SYS/broker/log/E", "$SYS/broker/log/N")
WRITE_S = 10.0
# Later the service has no connection, or hangs.
STALE_S = 45.0
PROBE_S = 2.0
# Take-overs older than this are forgotten; a line that breaks now and then makes one or two.
TAKE_OVER_S = 3600.0
# A board whose every run connects beside its agent makes one in a second.
CONNECTS_PER_S, CONNECTS_AT_ONCE = 2.0, 240.0
USUAL_TAKE_OVERS = 2
_MOST = 1000
# Source: mosquitto 2.0, src/handle_connect.c and src/loop.c, its log lines.
_TAKEN = re.compile(r"Client (.+) already connected, closing old connection\.\Z")
_GONE = re.compile(r"Client (.+) (?:disconnected(?:: [A-Za-z ]+)?|closed its connection|has exceeded timeout, disconnecting)\.\Z")
_CAME = re.compile(r"New client connected from \S+ as (.+) \(p\d+, c\d+, k\d+, u'(.*)'\)\.\Z")


class CollectorSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a collector, and when it was received."""

    state: str
    heard_ns: int


class TakeOvers(msgspec.Struct, frozen=True, kw_only=True):
    """How often a device's session was taken over lately, when last, and by which other device's certificate, None for its own."""

    count: int
    last_ns: int
    by: str | None = None


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the service at `written_ns`; it is written while the broker is connected."""

    written_ns: int
    collectors: dict[str, CollectorSeen] = {}
    take_overs: dict[str, TakeOvers] = {}

    def has_collector(self, now_ns: int) -> bool:
        """Return whether a collector receives results."""
        limit_ns = 3 * COLLECTOR_STATE_S * NS_PER_S
        return any(collector.state == "online" and now_ns - collector.heard_ns < limit_ns for collector in self.collectors.values())

    def take_over_text(self, device: str, now_ns: int) -> str | None:
        """Return what people have to know of the take-overs of a device's session, None for nothing."""
        take_over = self.take_overs.get(device)
        if take_over is None or now_ns - take_over.last_ns > TAKE_OVER_S * NS_PER_S:
            return None
        times = f"{count(take_over.count, 'time')} within the hour"
        if take_over.by is not None:
            return f"{take_over.by!r} connected with its client id ({times}): look at that board, or revoke it"
        if take_over.count <= USUAL_TAKE_OVERS:
            return None
        return f"its session was taken over {times}: two boards have its key, or its line breaks"


def read_status(folder: FleetFolder) -> ServerStatus | None:
    """Return what the service wrote last, None where it never ran."""
    return durable_file.read_if_any(folder.status, ServerStatus)


def _answers(folder: FleetFolder) -> bool:
    try:
        address = fleet_broker_address(folder)
        socket.create_connection((address.host, address.port), PROBE_S).close()
    except (OSError, EdgemeterError):
        return False
    return True


def server_issues(folder: FleetFolder, now_ns: int, answers: Callable[[FleetFolder], bool] = _answers) -> list[str]:
    """Return which of service, broker and collector is down, and what to do."""
    status = read_status(folder)
    lock = DeviceLock(folder.registry, SERVICE_ID)
    if not is_locked(lock.path):
        issues = ["the fleet's service is not running: start it (sudo systemctl start edgemeter-fleet.target, or edgemeter fleet serve)"]
        return issues if answers(folder) else [*issues, f"the broker at {_broker(folder)} does not answer: start it"]
    if status is None or now_ns - status.written_ns > STALE_S * NS_PER_S:
        return [f"the broker at {_broker(folder)} does not answer the fleet's service: look at its log and start it"]
    if not status.has_collector(now_ns):
        return [f"no collector answers, so results stay on the devices: edgemeter collector up --folder {folder.path}"]
    return []


def _broker(folder: FleetFolder) -> str:
    try:
        return str(fleet_broker_address(folder))
    except EdgemeterError:
        return "the address in fleet.toml"


class StatusHandler(FleetHandler):
    """Keeps the file of the server's status up to date, and bans a board that takes another's client id, or connects all the time."""

    topics = (EVERY_COLLECTOR_STATE, *LOG_TOPICS)

    def __init__(
        self, folder: FleetFolder, registry: Registry, _publish: FleetPublish, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._folder = folder
        self._registry = registry
        self._collectors: dict[str, CollectorSeen] = {}
        self._take_overs: dict[str, TakeOvers] = {}
        self._connects = Allowance(CONNECTS_PER_S, CONNECTS_AT_ONCE, clock)
        # By device, why it is to be banned.
        self._offenders: dict[str, str] = {}
        self._returned: set[str] = set()
        # By client id, which device connected with it; None for one that has gone.
        self._sessions: dict[str, str | None] = {}
        self._taken: str | None = None
        self._is_new = True
        self._written_s = 0.0

    def received(self, message: Message) -> None:
        """Take a collector's state, or a line of the broker's log; raises ConfigError if it is no such state."""
        now_ns = time.time_ns()
        if message.topic in LOG_TOPICS:
            self._read_log(message.payload.decode(errors="replace"), now_ns)
            return
        reported = decode_collector_state(message.payload)
        state, name = reported.state, message.topic.split("/")[2]
        self._offenders |= dict.fromkeys(reported.flooding, f"it sent collector {name} more results than it can store")
        if len(self._collectors) < _MOST:
            before = self._collectors.get(name)
            self._collectors[name] = CollectorSeen(state=state, heard_ns=now_ns)
            self._is_new = self._is_new or before is None or before.state != state

    def poll(self, now_ns: int) -> None:
        """Ban offenders; write the file when something changed, and every ten seconds."""
        if self._offenders or self._returned or self._sessions:
            self._ban(now_ns)
        if self._is_new or self._clock() - self._written_s >= WRITE_S:
            self._take_overs = {
                name: take_over for name, take_over in self._take_overs.items() if now_ns - take_over.last_ns < TAKE_OVER_S * NS_PER_S
            }
            status = ServerStatus(written_ns=now_ns, collectors=self._collectors, take_overs=self._take_overs)
            durable_file.write(self._folder.status, msgspec.json.encode(status))
            self._is_new, self._written_s = False, self._clock()

    def _ban(self, now_ns: int) -> None:
        with self._registry.transaction() as connection:
            for device, reason in self._offenders.items():
                if (ban := ban_device(connection, self._registry, device, reason, now_ns)) is not None:
                    logger.warning("%s is banned for %s: %s", device, age(ban.until_ns - now_ns), reason)
            for device in self._returned:
                registered = devices.find(self._registry, device)
                is_revoked = registered is not None and registered.trust == "revoked"
                if is_revoked or device in active_bans(self._registry, now_ns):
                    put_pending_disconnect(connection, device, now_ns)
            opened = {client_id: device for client_id, device in self._sessions.items() if device is not None}
            note_sessions(connection, opened, self._sessions.keys() - opened.keys())
        self._offenders.clear()
        self._returned.clear()
        self._sessions.clear()

    def _read_log(self, line: str, now_ns: int) -> None:
        if (match := _TAKEN.search(line)) is not None:
            self._taken = match[1]
            self._sessions[match[1]] = None
        elif (gone := _GONE.search(line)) is not None:
            self._sessions[gone[1]] = None
        elif (came := _CAME.search(line)) is not None:
            client_id, user = came[1], came[2]
            is_taken, self._taken = self._taken == client_id, None
            if user.startswith(RESERVED_PREFIX):
                return
            owner = client_id.partition("~")[0]
            if devices.find(self._registry, user) is not None:
                self._sessions[client_id] = user
            self._returned.add(user)
            if is_taken:
                self._count(client_id, None, now_ns)
            if not self._connects.spend(user):
                self._offenders[user] = "it connects again and again"
            if user in {owner, client_id}:
                return
            if devices.find(self._registry, owner) is not None and devices.find(self._registry, user) is not None:
                self._count(owner, user, now_ns)
                self._offenders[user] = f"it connected with the client id of {owner!r}"

    def _count(self, device: str, by: str | None, now_ns: int) -> None:
        if devices.find(self._registry, device) is None:
            return
        before = self._take_overs.get(device)
        count = before.count + (by is not None or before.by is None) if before else 1
        self._take_overs[device] = TakeOvers(count=count, last_ns=now_ns, by=by or (before.by if before else None))
        self._is_new = True
