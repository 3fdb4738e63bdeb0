"""Makes the running broker do what the registry says: tokens that ended, devices that are out."""

import logging
import time
from datetime import datetime

from edgemeter.agent.delivery import messages
from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.errors import EdgemeterError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import presence
from edgemeter.provisioning.identity import broker_files, broker_process, expulsions
from edgemeter.provisioning.identity.authority import Authority
from edgemeter.provisioning.inventory import fleet_file
from edgemeter.provisioning.inventory.fleet_file import Server
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve import fleet_broker

logger = logging.getLogger(__name__)

# mosquitto 2.0 forgets a SIGHUP that comes while it still acts on the one before, as those of a command and of the service may: each word
# is given twice, this far apart. Who is thrown out before the broker has read its files comes back.
RELOAD_S = 1.0
SETTLE_TRIES = 2
# A broker that did not answer is asked again after that.
PAUSE_S = 30.0
# What the broker's files are made of, in so far as it changes: a look that costs a fraction of making them.
_STATE = """SELECT
    (SELECT count(*) FROM claims WHERE closed_ns IS NULL AND expires_ns > ?1),
    (SELECT max(made_ns) FROM claims),
    (SELECT count(*) FROM devices WHERE standing = 'revoked'),
    (SELECT max(changed_ns) FROM devices WHERE standing = 'revoked'),
    (SELECT count(*) FROM certificates WHERE revoked_ns IS NOT NULL),
    (SELECT count(*) FROM expulsions)"""


class Enforcement:
    """Of one fleet; `enforce` again and again, or `settle` once."""

    def __init__(self, folder: FleetFolder, registry: Registry, signing: Authority) -> None:
        self._folder = folder
        self._registry = registry
        self._signing = signing
        self._told: set[str] = set()
        self._state: tuple[int | None, ...] | None = None
        self._told_s = 0.0
        # Nothing was changed yet.
        self._is_told_twice = True
        self._owes_word = False
        self._not_before_s = 0.0

    def enforce(self, now: datetime) -> bool:
        """Do what can be done at once; return whether something is left to do a second later.

        Raises:
            ConfigError: a file of the fleet is damaged.
            UnavailableError: the broker cannot be told.
        """
        state = tuple(self._registry.query(_STATE, int(now.timestamp() * 1_000_000_000))[0])
        if state != self._state:
            self._owes_word = bool(broker_files.renew(self._folder, self._registry, self._signing, now)) or self._owes_word
            self._state = state
        waiting = expulsions.undone(self._registry)
        if time.monotonic() < self._not_before_s:
            return self._owes_word or bool(waiting)
        if self._owes_word or not self._told.issuperset(waiting):
            self._tell(waiting)
            self._is_told_twice = False
        elif time.monotonic() - self._told_s >= RELOAD_S:
            if not self._is_told_twice:
                self._tell(waiting)
                self._is_told_twice = True
            elif waiting:
                self._throw_out(waiting)
        return not self._is_told_twice or bool(expulsions.undone(self._registry))

    def settle(self, now: datetime) -> bool:
        """Do all of it; return whether devices are left that could not be thrown out, because the broker does not answer.

        Raises:
            ConfigError: as `enforce`.
            UnavailableError: as `enforce`.
        """
        for _ in range(SETTLE_TRIES):
            if not self.enforce(now):
                return False
            time.sleep(RELOAD_S)
        return self.enforce(now)

    def _tell(self, waiting: list[str]) -> None:
        """Have the broker read its files, which it does before anybody is thrown out: who goes earlier than that comes back."""
        self._owes_word = True
        self._not_before_s = time.monotonic() + PAUSE_S
        has_told = broker_process.reload(self._folder, self._server())
        if not has_told:
            logger.info("no broker runs here that could be told: it reads %s when it starts", self._folder.broker)
        self._not_before_s = 0.0
        self._owes_word = False
        self._told = set(waiting)
        self._told_s = time.monotonic()

    def _throw_out(self, waiting: list[str]) -> None:
        operator = fleet_broker.address(self._folder, client="operator")
        for device in waiting:
            try:
                broker_process.throw_out(operator, device, self._last_word(device))
            except EdgemeterError as error:
                logger.warning("cannot throw %r out now: %s", device, error)
                self._not_before_s = time.monotonic() + PAUSE_S
                return
            logger.info("device %r is out", device)
            with self._registry.transaction() as connection:
                expulsions.done(connection, device)
                presence.thrown_out(connection, device, time.time_ns())

    def _last_word(self, device: str) -> tuple[str, bytes] | None:
        """Return what is to be retained as the state of a device that is out; None for one that comes back with another key."""
        known = devices.find(self._registry, device)
        if known is None or known.standing != "revoked":
            return None
        heard = presence.find(self._registry, device)
        session = heard.session if heard and heard.session is not None else 0
        topic = Topic(heard.fleet if heard else known.fleet, device, "state")
        return str(topic), messages.encode(messages.State(state="revoked", session=session))

    def _server(self) -> Server:
        return fleet_file.read(self._folder.fleet_file).server or Server(broker="")
