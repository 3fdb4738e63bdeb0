"""The desk for health: keeps what devices say of themselves, orders golden jobs when they are due, and judges what they give.

What comes in is kept in memory until the next look, and then in one transaction: ten thousand devices that come back together cost a
few of those. Nothing is asked of every device: what is due, and what has changed, is found by an index.
"""

import logging
import time
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import EVERY_BIRTH, EVERY_HEALTH, EVERY_STATE
from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.agent.health import contract
from edgemeter.agent.health.contract import Health
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import golden, judging, presence, standing
from edgemeter.provisioning.health.presence import Said
from edgemeter.provisioning.inventory.watched_file import WatchedFile
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.desk import Publish

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
GOLDEN_LOOK_S = 5.0
RULES_LOOK_S = 60.0
MOST_JOBS = 500
MOST_SAID = 5000
MOST_CHANGES = 20_000
DEFAULT_HOURS = 24.0
_ENDED = """SELECT serial, device, job, state, reason, ended_ns, figures FROM executions
WHERE serial > ? AND serial <= ? AND ended_ns IS NOT NULL AND job GLOB 'golden-*' ORDER BY serial"""


class HealthDesk:
    """See `provisioning/serve/desk.py` for how it is called."""

    topics = (EVERY_HEALTH, EVERY_STATE, EVERY_BIRTH)

    def __init__(self, folder: FleetFolder, registry: Registry, publish: Publish) -> None:  # noqa: ARG002 - every desk is made alike
        self._file = WatchedFile(folder)
        self._registry = registry
        self._said: list[Said] = []
        self._golden_ns = 0
        self._rules_ns = 0
        self._every_ns = int(DEFAULT_HOURS * 3600) * NS_PER_S

    def received(self, message: Message) -> None:
        """Take a device's state, birth or health; an emptied topic is nothing, and so is our own word for those without the registry."""
        if not message.payload:
            return
        topic = topics.parse(message.topic)
        if topic.kind == "state":
            said: messages.State | messages.Birth | Health = messages.decode_state(message.payload)
        else:
            decode = contract.decode if topic.kind == "health" else messages.decode_birth
            said = decode(message.payload)
            if (said.fleet, said.device) != (topic.fleet, topic.device):
                text = f"the {topic.kind} is of device {said.device!r} of fleet {said.fleet!r}, it came on the topic {message.topic!r}"
                raise ConfigError(text)
        if not (isinstance(said, messages.State) and said.state == "revoked"):
            self._said.append(Said(topic.device, topic.fleet, said, time.time_ns()))

    def look(self, now_ns: int) -> None:
        """Keep what was said, judge golden runs that ended, order those that are due."""
        self._look_at_rules(now_ns)
        if self._said:
            self._keep(now_ns)
        if now_ns >= self._golden_ns:
            self._golden_ns = now_ns + int(GOLDEN_LOOK_S * NS_PER_S)
            self._judge(now_ns)
            self._order(now_ns)

    def close(self) -> None:
        """Keep what was said last."""
        while self._said:
            self._keep(time.time_ns())

    def _look_at_rules(self, now_ns: int) -> None:
        if now_ns < self._rules_ns:
            return
        self._rules_ns = now_ns + int(RULES_LOOK_S * NS_PER_S)
        try:
            said = self._file.read()
        except EdgemeterError as error:
            logger.warning("golden jobs go on as before: %s", error)
            return
        every_ns = int((said.health.golden_hours if said else DEFAULT_HOURS) * 3600) * NS_PER_S
        if every_ns != self._every_ns:
            with self._registry.transaction() as connection:
                golden.replan(connection, now_ns, every_ns)
            self._every_ns = every_ns

    def _keep(self, now_ns: int) -> None:
        # So much takes less than half a second; the rest has its turn at the next look.
        said, self._said = self._said[:MOST_SAID], self._said[MOST_SAID:]
        try:
            with self._registry.transaction() as connection:
                presence.note(connection, said)
                for one in said:
                    if isinstance(one.message, Health) and self._every_ns:
                        golden.plan(connection, one.message, now_ns)
        except EdgemeterError:
            self._said = [*said, *self._said]
            raise

    def _judge(self, now_ns: int) -> None:
        (after,) = self._registry.query("SELECT serial FROM health_position")[0]
        (last,) = self._registry.query("SELECT coalesce(max(serial), 0) FROM executions")[0]
        last = min(last, after + MOST_CHANGES)
        if last <= after:
            return
        ended = self._registry.query(_ENDED, after, last)
        with self._registry.transaction() as connection:
            for row in ended:
                self._take(connection, row, now_ns)
            connection.execute("UPDATE health_position SET serial = ?", (last,))

    def _take(self, connection: "sqlite3.Connection", row: "sqlite3.Row", now_ns: int) -> None:
        """Judge one golden execution that ended."""
        device, figures = row["device"], msgspec.json.decode(row["figures"], type=dict[str, float])
        failed = golden.failures(connection, device)
        if row["state"] != "done" or not figures:
            # Somebody took it back, or it could not be done: that says nothing about how fast the board is.
            if row["state"] != "cancelled":
                golden.soon(connection, device, now_ns, failed)
            return
        earlier = golden.runs(self._registry, device)
        heard = presence.find(self._registry, device)
        health = heard.health if heard else None
        run, fault = judging.judged(row["job"], device, row["ended_ns"], figures, earlier, health, row["reason"])
        golden.keep(connection, run)
        before = standing.find(self._registry, device)
        now = standing.after(before, device, fault, now_ns)
        standing.put(connection, now)
        if now.state == "suspect" or run.doubted:
            golden.soon(connection, device, now_ns, failed if fault else 0)
        else:
            golden.all_well(connection, device)
        if before is None or before.state != now.state:
            logger.log(logging.WARNING if fault else logging.INFO, "%s is %s%s", device, now.state, f": {now.reason}" if now.reason else "")

    def _order(self, now_ns: int) -> None:
        with self._registry.transaction() as connection:
            due = golden.take_due(connection, now_ns, self._every_ns, MOST_JOBS)
            golden.add_job(connection, due, now_ns)
