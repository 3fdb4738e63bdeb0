"""The handler that brings lost boards back: it cycles their power, at most three times with growing pauses, and only when that is safe.

It is off unless fleet.toml sets `[rescue] lost_minutes`. Switches are slow and may not answer, so a few threads operate them; each action
is noted before it is done, and a service that died between off and on restores the power when it starts again.

The run lock of a lost board cannot be asked. A run may be in progress on a device
- while an execution is in flight on it, as the registry has it (the job handler ends it at its time limit), and
- for `longest_run_minutes` after it last reported a measurement, and after each time at which one of its schedules may have started one:
  runs of its own schedules are in no registry. The device goes by its local time, this by the server's: where they differ,
  `longest_run_minutes` has to cover that too.

Except for schedules, the same holds for every other device that loses its power with it, or whose power meter the switch is.
"""

import logging
import re
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import msgspec

from edgemeter.agent.base import cron
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.figures import age
from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.contract.messages import EVERY_PROGRESS, parse_topic
from edgemeter.agent.contract.orders import Schedule
from edgemeter.provisioning.inventory.fleet_file import FleetFile, WatchedFleetFile
from edgemeter.provisioning.inventory.fleet_folder import FleetFolder
from edgemeter.provisioning.registry import devices, rescues
from edgemeter.provisioning.registry.devices import Presence, find_presence, lost_since, lost_together
from edgemeter.provisioning.registry.jobs import find_in_flight
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.registry.rescues import Rescue
from edgemeter.provisioning.rescue import wiring
from edgemeter.provisioning.rescue.wiring import Neighbours, Wiring, restore_power
from edgemeter.provisioning.serve.handler import FleetPublish

logger = logging.getLogger(__name__)

POLL_S = 5.0
NOTE_S = 30.0
AT_ONCE = 4

# This many devices lost within this time, and this share of all: the network or the mains, not a board.
MANY, MANY_RATIO, MANY_WITHIN_S = 3, 0.2, 600
# The schedules that a device acknowledged.
_ACKNOWLEDGED = """SELECT work FROM executions JOIN jobs USING (job)
WHERE device = ? AND state = 'done' AND substr(job, 1, 9) = 'schedule-' ORDER BY ended_ns"""


def why_not_cut(
    device: str,
    neighbours: tuple[str, ...],
    in_flight: Mapping[str, str],
    measured_ns: Mapping[str, int],
    longest_run_s: float,
    now_ns: int,
) -> str | None:
    """Return why the power of a device may not be cut now, None when it may.

    `neighbours` share the switch, or measure with it; `in_flight` are jobs, `measured_ns` the last reported measurements (UTC), by device.
    """
    for name in (device, *neighbours):
        whose = "" if name == device else f"{name}, which shares its switch: "
        if job := in_flight.get(name):
            return f"{whose}job {job} may be running"
        last_ns = measured_ns.get(name)
        if last_ns is not None and now_ns - last_ns < longest_run_s * NS_PER_S:
            return f"{whose}it reported a measurement {age(now_ns - last_ns)} ago, a run may still be in progress"
    return None


def schedule_may_run(registry: Registry, device: str, longest_run_s: float, now_ns: int) -> str | None:
    """Return which schedule may have started a run that is still in progress, None where none may."""
    now_s = now_ns / NS_PER_S
    acknowledged = [msgspec.json.decode(row["work"], type=Schedule) for row in registry.query(_ACKNOWLEDGED, device)]
    # The last of a name counts; one without times was withdrawn.
    times = {schedule.name: schedule.cron for schedule in acknowledged}
    for name, expression in times.items():
        if not expression:
            continue
        try:
            began_s = cron.parse(expression).next_s(now_s - longest_run_s)
        except ConfigError:
            continue
        if began_s <= now_s:
            return f"its schedule {name!r} may have started a run {age(int((now_s - began_s) * NS_PER_S))} ago"
    return None


class RescueHandler:
    """Cycles the power of lost boards; `serve/handler.py` documents how it is called."""

    topics = (EVERY_PROGRESS,)

    def __init__(self, folder: FleetFolder, registry: Registry, publish: FleetPublish) -> None:  # noqa: ARG002 - a handler's signature
        self._folder = folder
        self._file = WatchedFleetFile(folder)
        self._registry = registry
        self._measured = rescues.read_measuring(registry)
        self._unwritten: dict[str, int] = {}
        self._due_ns = 0
        self._note_ns = 0
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="edgemeter-power")
        # By the number of the action: the device, and the outcome to come.
        self._running: dict[int, tuple[str, Future[None]]] = {}
        self._reported: dict[str, str] = {}
        self._has_begun = False
        self._neighbours: tuple[FleetFile, Neighbours] | None = None

    def received(self, message: Message) -> None:
        """Note who measures: a device reports progress only while it is busy."""
        topic = parse_topic(message.topic)
        self._measured[topic.device] = self._unwritten[topic.device] = time.time_ns()

    def poll(self, now_ns: int) -> None:
        """Note finished actions, restore power that a dead service left off, and rescue lost devices."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + int(POLL_S * NS_PER_S)
        self._note(now_ns)
        self._finish(now_ns)
        written = self._file.read()
        if written is None:
            return
        if not self._has_begun:
            self._has_begun = True
            self._restore_interrupted(written, now_ns)
        self._clear_returned()
        if written.rescue.lost_minutes is not None:
            self._rescue_lost(written, now_ns)

    def close(self) -> None:
        """Wait for the switches: no board is left without power."""
        self._workers.shutdown(wait=True)
        self._finish(time.time_ns())

    def _note(self, now_ns: int) -> None:
        if self._unwritten and now_ns >= self._note_ns:
            self._note_ns = now_ns + int(NOTE_S * NS_PER_S)
            with self._registry.transaction() as connection:
                rescues.put_measuring(connection, self._unwritten)
            self._unwritten.clear()

    def _restore_interrupted(self, written: FleetFile, now_ns: int) -> None:
        for action in rescues.open_power_actions(self._registry):
            if action.action == "off":
                continue
            wired = None
            try:
                wired = wiring.wiring_of(action.device, written, self._folder)
            except ConfigError as error:
                logger.warning("%s may be without power: %s", action.device, error)
            if wired is None:
                self._end(action.number, "the service ended meanwhile, and the switch is no longer in fleet.toml", now_ns)
                continue
            logger.warning("%s: the service ended during a power cycle: restoring its power", action.device)
            switch = wiring.open_switch(wired)
            self._running[action.number] = (action.device, self._workers.submit(restore_power, switch))

    def _clear_returned(self) -> None:
        under_way = rescues.read_rescues(self._registry)
        presences = [find_presence(self._registry, device) for device in under_way]
        back = [presence.device for presence in presences if presence is not None and presence.state == "online"]
        if back:
            with self._registry.transaction() as connection:
                for device in back:
                    rescues.clear_rescue(connection, device)
                    self._reported.pop(device, None)
                    logger.info("%s is back after %d power cycles", device, under_way[device].attempts)

    def _rescue_lost(self, written: FleetFile, now_ns: int) -> None:
        lost_ns = int((written.rescue.lost_minutes or 0) * 60) * NS_PER_S
        lost = lost_since(self._registry, now_ns - lost_ns)
        if not lost:
            return
        under_way = rescues.read_rescues(self._registry)
        busy = {device for device, _ in self._running.values()}
        for presence in lost:
            rescue = under_way.get(presence.device) or Rescue(presence.device, 0, 0)
            if rescue.needs_attention or presence.device in busy or rescue.next_ns > now_ns or len(self._running) >= AT_ONCE:
                continue
            try:
                wired = wiring.wiring_of(presence.device, written, self._folder)
                if wired is not None:
                    self._rescue(wired, presence, rescue, written, now_ns)
            except EdgemeterError as error:
                self._report_once(presence.device, str(error))

    def _rescue(self, wired: Wiring, lost: Presence, rescue: Rescue, written: FleetFile, now_ns: int) -> None:
        if rescue.attempts >= written.rescue.at_most:
            self._give_up(lost, rescue, now_ns)
            return
        why = self._why_not(wired, lost, written, now_ns)
        if why is not None:
            reason = f"its power is not cut: {without_ages(why)}"
            if self._report_once(lost.device, reason):
                with self._registry.transaction() as connection:
                    rescues.put_rescue(connection, replace(rescue, reason=reason))
            return
        pause_s = (written.rescue.lost_minutes or 0) * 60 * 2 ** (rescue.attempts + 1)
        switch = wiring.open_switch(wired)
        with self._registry.transaction() as connection:
            number = rescues.begin_power_action(connection, lost.device, wired.text, "cycle", "rescue", now_ns)
            rescues.put_rescue(connection, Rescue(lost.device, rescue.attempts + 1, now_ns + int(pause_s) * NS_PER_S))
        logger.warning(
            "%s is lost for %s: cycling its power (attempt %d)", lost.device, age(now_ns - (lost.since_ns or now_ns)), rescue.attempts + 1
        )
        self._running[number] = (lost.device, self._workers.submit(switch.cycle, written.rescue.off_s))

    def _why_not(self, wired: Wiring, lost: Presence, written: FleetFile, now_ns: int) -> str | None:
        last = next(iter(rescues.read_power_actions(self._registry, lost.device, 1)), None)
        if last is not None and last.action == "off":
            return "it was switched off by hand"
        named = devices.find(self._registry, lost.device)
        if named is not None and named.trust == "revoked":
            return "it was revoked"
        since_ns = lost.since_ns or now_ns
        together, all_known = lost_together(self._registry, since_ns, MANY_WITHIN_S * NS_PER_S)
        if together >= MANY and together > MANY_RATIO * all_known:
            return f"{together} devices were lost at about the same time: the network or the mains rather than the board"
        if self._neighbours is None or self._neighbours[0] is not written:
            self._neighbours = (written, Neighbours(written, self._folder))
        neighbours = self._neighbours[1].of(wired, self._registry)
        executions = [find_in_flight(self._registry, device) for device in (lost.device, *neighbours)]
        in_flight = {execution.device: execution.job for execution in executions if execution is not None}
        longest_run_s = written.rescue.longest_run_minutes * 60
        why = why_not_cut(lost.device, neighbours, in_flight, self._measured, longest_run_s, now_ns)
        return why or schedule_may_run(self._registry, lost.device, longest_run_s, now_ns)

    def _give_up(self, lost: Presence, rescue: Rescue, now_ns: int) -> None:
        last = next(iter(rescues.read_power_actions(self._registry, lost.device, 1)), None)
        outcome = f"; last outcome: {last.outcome}" if last is not None and last.outcome else ""
        since = age(now_ns - (lost.since_ns or now_ns))
        reason = f"lost for {since}, its power was cycled {rescue.attempts} times and it did not come back{outcome}"
        with self._registry.transaction() as connection:
            rescues.put_rescue(connection, Rescue(lost.device, rescue.attempts, rescue.next_ns, needs_attention=True, reason=reason))
        logger.warning("%s needs attention: %s", lost.device, reason)

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
            rescues.end_power_action(connection, number, outcome, now_ns)

    def _report_once(self, device: str, text: str) -> bool:
        """Log something about a device once; return whether it is new."""
        kind = without_ages(text)
        if self._reported.get(device) == kind:
            return False
        self._reported[device] = kind
        logger.warning("%s: %s", device, text)
        return True


def without_ages(text: str) -> str:
    """Return a reason without its ages: they change with every poll."""
    return re.sub(r" \d+ (s|min|h|d) ago", "", text)
