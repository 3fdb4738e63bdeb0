"""The desk that gets lost boards back: it cuts their power for a moment, at most three times with growing pauses.

It is off unless fleet.toml says `[rescue] lost_minutes`. Switches are slow and may not answer, so a few threads work them; what they do
is noted before it is done, and a service that died between off and on gives the power back when it starts anew.
"""

import logging
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from edgemeter.agent.delivery import topics
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import EVERY_PROGRESS
from edgemeter.agent.errors import ConfigError, EdgemeterError
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.health import presence
from edgemeter.provisioning.inventory.watched_file import WatchedFile
from edgemeter.provisioning.inventory.wording import age
from edgemeter.provisioning.jobs import executions
from edgemeter.provisioning.registry import devices
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.rescue import attempts, cycling, measuring, rules, scheduled, wiring
from edgemeter.provisioning.rescue.attempts import Rescue
from edgemeter.provisioning.rescue.neighbours import Neighbours
from edgemeter.provisioning.rescue.rules import Heard
from edgemeter.provisioning.serve.desk import Publish

if TYPE_CHECKING:
    from edgemeter.provisioning.health.presence import Presence
    from edgemeter.provisioning.inventory.fleet_file import FleetFile
    from edgemeter.provisioning.rescue.wiring import Wiring

logger = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
LOOK_S = 5.0
NOTE_S = 30.0
AT_ONCE = 4
BY = "rescue"


class RescueDesk:
    """See `provisioning/serve/desk.py` for how it is called."""

    topics = (EVERY_PROGRESS,)

    def __init__(self, folder: FleetFolder, registry: Registry, publish: Publish) -> None:  # noqa: ARG002 - every desk is made alike
        self._folder = folder
        self._file = WatchedFile(folder)
        self._registry = registry
        self._measured = measuring.read(registry)
        self._unwritten: dict[str, int] = {}
        self._due_ns = 0
        self._note_ns = 0
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="edgemeter-power")
        # By the number of the note: the device, and what becomes of it.
        self._running: dict[int, tuple[str, Future[None]]] = {}
        self._said: dict[str, str] = {}
        self._has_begun = False
        self._neighbours: tuple[FleetFile, Neighbours] | None = None

    def received(self, message: Message) -> None:
        """Take note of who measures: a device says what it does only while it does something."""
        topic = topics.parse(message.topic)
        self._measured[topic.device] = self._unwritten[topic.device] = time.time_ns()

    def look(self, now_ns: int) -> None:
        """End what was done, give power back that a dead service left off, and see who is lost."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + int(LOOK_S * NS_PER_S)
        self._note(now_ns)
        self._finish(now_ns)
        said = self._file.read()
        if said is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._give_back(said, now_ns)
        self._forget_who_is_back()
        if said.rescue.lost_minutes is not None:
            self._see_who_is_lost(said, now_ns)

    def close(self) -> None:
        """Wait for the switches: nobody is left without power."""
        self._workers.shutdown(wait=True)
        self._finish(time.time_ns())

    def _note(self, now_ns: int) -> None:
        if self._unwritten and now_ns >= self._note_ns:
            self._note_ns = now_ns + int(NOTE_S * NS_PER_S)
            with self._registry.transaction() as connection:
                measuring.note(connection, self._unwritten)
            self._unwritten.clear()

    def _give_back(self, said: "FleetFile", now_ns: int) -> None:
        for number, action in attempts.left_open(self._registry):
            if action.action == "off":
                continue
            wired = None
            try:
                wired = wiring.wiring(action.device, said, self._folder)
            except ConfigError as error:
                logger.warning("%s may be without power: %s", action.device, error)
            if wired is None:
                self._end(number, "the service ended meanwhile, and the switch is in fleet.toml no more", now_ns)
                continue
            logger.warning("%s: the service ended during a power cycle: its power is given back", action.device)
            switch = wiring.open_switch(wired)
            self._running[number] = (action.device, self._workers.submit(cycling.back_on, switch))

    def _forget_who_is_back(self) -> None:
        held = attempts.read(self._registry)
        if not held:
            return
        back = [device for device in held if (one := presence.find(self._registry, device)) is not None and one.state == "online"]
        if back:
            with self._registry.transaction() as connection:
                for device in back:
                    attempts.clear(connection, device)
                    self._said.pop(device, None)
                    logger.info("%s is back after its power was cut %d times", device, held[device].attempts)

    def _see_who_is_lost(self, said: "FleetFile", now_ns: int) -> None:
        lost_ns = int((said.rescue.lost_minutes or 0) * 60) * NS_PER_S
        lost = presence.lost(self._registry, now_ns - lost_ns)
        if not lost:
            return
        held = attempts.read(self._registry)
        busy = {device for device, _ in self._running.values()}
        for one in lost:
            rescue = held.get(one.device) or Rescue(one.device, 0, 0)
            if rescue.needs_hand or one.device in busy or rescue.next_ns > now_ns or len(self._running) >= AT_ONCE:
                continue
            try:
                wired = wiring.wiring(one.device, said, self._folder)
                if wired is not None:
                    self._rescue(wired, one, rescue, said, now_ns)
            except EdgemeterError as error:
                self._say(one.device, str(error))

    def _rescue(self, wired: "Wiring", lost: "Presence", rescue: Rescue, said: "FleetFile", now_ns: int) -> None:
        """Cut the power of a lost device, unless something speaks against it, or give up."""
        if rescue.attempts >= said.rescue.at_most:
            self._give_up(lost, rescue, now_ns)
            return
        why = self._why_not(wired, lost, said, now_ns)
        if why is not None:
            reason = f"its power is not cut: {ageless(why)}"
            if self._say(lost.device, reason):
                with self._registry.transaction() as connection:
                    attempts.put(connection, replace(rescue, reason=reason))
            return
        pause_s = (said.rescue.lost_minutes or 0) * 60 * 2 ** (rescue.attempts + 1)
        switch = wiring.open_switch(wired)
        with self._registry.transaction() as connection:
            number = attempts.begin(connection, lost.device, wired.text, "cycle", BY, now_ns)
            attempts.put(connection, Rescue(lost.device, rescue.attempts + 1, now_ns + int(pause_s) * NS_PER_S))
        logger.warning(
            "%s is lost for %s: its power is cut (%d)", lost.device, age(now_ns - (lost.since_ns or now_ns)), rescue.attempts + 1
        )
        self._running[number] = (lost.device, self._workers.submit(switch.cycle, said.rescue.off_s))

    def _why_not(self, wired: "Wiring", lost: "Presence", said: "FleetFile", now_ns: int) -> str | None:
        last = next(iter(attempts.of_device(self._registry, lost.device, 1)), None)
        if last is not None and last.action == "off":
            return "somebody has switched it off"
        named = devices.find(self._registry, lost.device)
        if named is not None and named.standing == "revoked":
            return "it was put out of the fleet"
        since_ns = lost.since_ns or now_ns
        together, there = presence.lost_together(self._registry, since_ns, rules.MANY_WITHIN_S * NS_PER_S)
        if rules.is_widespread(together, there):
            return f"{together} devices were lost at about the same time: the network or the mains rather than the board"
        others = self._neighbours_in(said).of(wired, self._registry)
        in_flight = {
            device: found.job for device in (lost.device, *others) if (found := executions.in_flight_of(self._registry, device)) is not None
        }
        longest_run_s = said.rescue.longest_run_minutes * 60
        why = rules.why_not(lost.device, others, Heard(in_flight, self._measured), longest_run_s, now_ns)
        return why or scheduled.may_run(self._registry, lost.device, longest_run_s, now_ns)

    def _neighbours_in(self, said: "FleetFile") -> Neighbours:
        if self._neighbours is None or self._neighbours[0] is not said:
            self._neighbours = (said, Neighbours(said, self._folder))
        return self._neighbours[1]

    def _give_up(self, lost: "Presence", rescue: Rescue, now_ns: int) -> None:
        last = next(iter(attempts.of_device(self._registry, lost.device, 1)), None)
        outcome = f"; the last time: {last.outcome}" if last is not None and last.outcome else ""
        since = age(now_ns - (lost.since_ns or now_ns))
        reason = f"lost for {since}, its power was cut {rescue.attempts} times and it did not come back{outcome}"
        with self._registry.transaction() as connection:
            attempts.put(connection, Rescue(lost.device, rescue.attempts, rescue.next_ns, needs_hand=True, reason=reason))
        logger.warning("%s needs a hand: %s", lost.device, reason)

    def _finish(self, now_ns: int) -> None:
        for number, (device, future) in list(self._running.items()):
            if not future.done():
                continue
            del self._running[number]
            error = future.exception()
            if error is not None:
                logger.warning("%s: %s", device, error)
            self._end(number, "done" if error is None else str(error), now_ns)

    def _end(self, number: int, outcome: str, now_ns: int) -> None:
        with self._registry.transaction() as connection:
            attempts.end(connection, number, outcome, now_ns)

    def _say(self, device: str, text: str) -> bool:
        """Say something of a device once; return whether it is new."""
        kind = ageless(text)
        if self._said.get(device) == kind:
            return False
        self._said[device] = kind
        logger.warning("%s: %s", device, text)
        return True


def ageless(text: str) -> str:
    """Return a reason without its ages: they change with every look."""
    return re.sub(r" \d+ (s|min|h|d) ago", "", text)
