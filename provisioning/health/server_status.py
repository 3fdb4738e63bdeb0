"""The state of the fleet's server parts in the registry, for commands to read.

The parts are broker and collectors, as last seen by the service. Takeovers are read from
mosquitto's log, which the fleet's configuration publishes to the service alone.
"""

import re
import time
from collections import Counter
from collections.abc import Callable

from edgemeter.agent.base.allowance import Allowance
from edgemeter.agent.base.file_lock import DeviceLock, is_locked
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_HOUR, NS_PER_S
from edgemeter.agent.base.statements import Statements
from edgemeter.agent.contract.identity import RESERVED_PREFIX
from edgemeter.agent.contract.messages import (
    COLLECTOR_STATE_S,
    EVERY_COLLECTOR_STATE,
    decode_collector_state,
)
from edgemeter.provisioning.inventory.fleet_file import open_registry
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.certificates import (
    active_bans,
    ban_device,
    note_sessions,
    put_pending_disconnect,
)
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.handler import FleetHandler, FleetPublish
from edgemeter.provisioning.serve.service import CLIENT_ID

LOG_TOPICS = ("$SYS/broker/log/E", "$SYS/broker/log/N")
WRITE_NS = 5 * NS_PER_S
# After this time the service has no connection, or hangs; a collector reports every half a minute.
STALE_NS = 45 * NS_PER_S
COLLECTOR_STALE_NS = int(3 * COLLECTOR_STATE_S * NS_PER_S)
# Older takeovers are forgotten; an unreliable line causes one or two.
TAKE_OVER_NS = NS_PER_HOUR
USUAL_TAKE_OVERS = 2
_TAKE_OVER = """INSERT INTO take_overs VALUES (?, ?, ?) ON CONFLICT (device) DO UPDATE
SET count = excluded.count + CASE WHEN last_ns >= ? THEN count ELSE 0 END, \
last_ns = excluded.last_ns"""
# A board that connects for every run next to its agent causes one a second.
CONNECTS_PER_S, CONNECTS_AT_ONCE = 2.0, 240.0
# Source: mosquitto 2.0, src/handle_connect.c and src/loop.c, its log lines.
_TAKEN = re.compile(r"Client (.+) already connected, closing old connection\.\Z")
_GONE = re.compile(
    r"Client (.+) (?:disconnected(?:: [A-Za-z ]+)?|closed its connection|has exceeded timeout, "
    r"disconnecting)\.\Z"
)
_CAME = re.compile(r"New client connected from \S+ as (.+) \(p\d+, c\d+, k\d+, u'(.*)'\)\.\Z")


def take_overs(registry: Registry, now_ns: int) -> dict[str, int]:
    """Return by device how often its own certificate took over its session, if unusual.

    Each time counts that was within an hour of the previous one.
    """
    statement = "SELECT device, count FROM take_overs WHERE last_ns >= ? AND count > ?"
    return {
        row["device"]: row["count"]
        for row in registry.query(statement, now_ns - TAKE_OVER_NS, USUAL_TAKE_OVERS)
    }


def server_issues(folder: FleetFolder, now_ns: int) -> list[str]:
    """Return which of service, broker and collector is down, with the remedy.

    Without the service the others are unknown.
    """
    if not is_locked(DeviceLock(folder.registry, CLIENT_ID).path):
        return [
            (
                "the fleet's service is not running: start it (sudo systemctl start "
                "edgemeter-fleet.target, or edgemeter fleet serve)"
            )
        ]
    with open_registry(folder, read_only=True) as registry:
        seen_ns = {
            row["part"]: row["seen_ns"] for row in registry.query("SELECT * FROM server_parts")
        }
    if now_ns - seen_ns.pop("broker", 0) > STALE_NS:
        return ["the broker does not answer the fleet's service: look at its log and start it"]
    if all(now_ns - reported_ns >= COLLECTOR_STALE_NS for reported_ns in seen_ns.values()):
        return [
            (
                "no collector answers, so results stay on the devices: edgemeter collector up "
                f"--folder {folder.path}"
            )
        ]
    return []


class StatusHandler(FleetHandler):
    """Notes when the broker and the collectors were present, and bans boards.

    A board is banned if it takes another's client id, or connects all the time.
    """

    topics = (EVERY_COLLECTOR_STATE, *LOG_TOPICS)

    def __init__(
        self,
        _folder: FleetFolder,
        registry: Registry,
        _publish: FleetPublish,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._written_ns = 0
        # By part: when it was last present.
        self._seen_ns: dict[str, int] = {}
        # By device: takeovers of its session since the last poll.
        self._take_overs: Counter[str] = Counter()
        self._connects = Allowance(CONNECTS_PER_S, CONNECTS_AT_ONCE, clock)
        # By device: the reason for a ban.
        self._offenders: dict[str, str] = {}
        # By client id: the device that connected with it; None for one that has gone.
        self._sessions: dict[str, str | None] = {}
        self._taken: str | None = None

    def received(self, message: Message) -> None:
        """Receive a collector's state, or a line of the broker's log.

        Raises:
            ConfigError: it is not such a state.
        """
        if message.topic in LOG_TOPICS:
            self._read_log(message.payload.decode(errors="replace"))
            return
        reported, name = decode_collector_state(message.payload), message.topic.split("/")[2]
        self._offenders |= dict.fromkeys(
            reported.flooding, f"it sent collector {name} more results than it can store"
        )
        self._seen_ns[f"collector {name}"] = time.time_ns() if reported.state == "online" else 0

    def poll(self, now_ns: int) -> None:
        """Ban offenders, and store the log's events.

        Every few seconds, store which parts are present.
        """
        if self._offenders or self._sessions or not 0 <= now_ns - self._written_ns < WRITE_NS:
            self._written_ns = now_ns
            self._seen_ns["broker"] = now_ns
            with self._registry.transaction() as statements:
                self._note(statements, now_ns)
            self._offenders.clear()
            self._sessions.clear()
            self._take_overs.clear()

    def _note(self, statements: Statements, now_ns: int) -> None:
        statements.executemany(
            "INSERT OR REPLACE INTO server_parts VALUES (?, ?)", list(self._seen_ns.items())
        )
        statements.executemany(
            _TAKE_OVER,
            [
                (device, number, now_ns, now_ns - TAKE_OVER_NS)
                for device, number in self._take_overs.items()
            ],
        )
        for device, reason in self._offenders.items():
            ban_device(statements, self._registry, device, reason, now_ns)
        opened = {
            client_id: device for client_id, device in self._sessions.items() if device is not None
        }
        banned = active_bans(self._registry, now_ns)
        for device in set(opened.values()):
            registered = devices.find(self._registry, device)
            if device in banned or (registered is not None and registered.trust == "revoked"):
                put_pending_disconnect(statements, device, now_ns)
        note_sessions(statements, opened, self._sessions.keys() - opened.keys())

    def _read_log(self, line: str) -> None:
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
            self._sessions[client_id] = user
            if not self._connects.spend(user):
                self._offenders[user] = "it connects again and again"
            registered = {
                name for name in (user, owner) if devices.find(self._registry, name) is not None
            }
            if user != owner and registered == {user, owner}:
                self._offenders[user] = f"it connected with the client id of {owner!r}"
            elif is_taken and client_id in registered:
                self._take_overs[client_id] += 1
