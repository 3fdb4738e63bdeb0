"""The desk for jobs: sends orders to devices that are there, takes their reports, and gives up what takes too long.

What it decides is in the registry before anybody hears of it, so a kill at any moment costs nothing: orders go out again and are
answered from the device's journal, and reports come again until they are acknowledged. It looks at what was changed, never at everything.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from edgemeter.agent.delivery import messages, topics
from edgemeter.agent.delivery.mqtt_session import Message
from edgemeter.agent.delivery.topics import EVERY_JOB, EVERY_PROGRESS, EVERY_STATE, Topic
from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.jobs import contract
from edgemeter.provisioning.fleet_folder import FleetFolder
from edgemeter.provisioning.jobs import executions, rules, sending
from edgemeter.provisioning.jobs.decision import Decision
from edgemeter.provisioning.jobs.executions import Execution
from edgemeter.provisioning.jobs.queue import Queue
from edgemeter.provisioning.jobs.rulebook import Rulebook
from edgemeter.provisioning.jobs.sending import Sending
from edgemeter.provisioning.registry.registry import Registry
from edgemeter.provisioning.serve.desk import Publish

if TYPE_CHECKING:
    from edgemeter.agent.jobs.contract import Report
    from edgemeter.provisioning.jobs.rules import Asked

logger = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
# One commit holds so many reports and starts at most, so that no other desk waits long.
MOST_AT_ONCE = 500
# Those that wait are asked again this often even when nothing changed: quiet hours and cool-downs end by the clock.
ASK_AGAIN_S = 2.0
DOING_S = 2.0
# When nobody looked for so long, devices have that long to say what happened meanwhile before they are given up.
PAUSE_S, PATIENCE_S = 10.0, 60.0
# Who comes back may bring the end of an attempt that was given up: it has so long to say so before it is ordered again.
BEFORE_RETRY_S = 5.0
LONGEST_DOING = 200
REVOKED = "its device was revoked"


class JobsDesk:
    """Brings jobs to devices; see `provisioning/serve/desk.py` for how it is called."""

    topics = (EVERY_JOB, EVERY_STATE, EVERY_PROGRESS)

    def __init__(self, folder: FleetFolder, registry: Registry, publish: Publish) -> None:
        self._registry = registry
        self._publish = publish
        self._rulebook = Rulebook(folder, registry)
        self._sending = Sending()
        self._queue: Queue | None = None
        self._reports: list[tuple[Topic, Report]] = []
        self._doing: dict[str, str] = {}
        # What the next execution of each device that is there and idle asks for.
        self._ready: dict[str, Asked] = {}
        self._moved: set[str] = set()
        self._came_ns: dict[str, int] = {}
        # What revoked devices were busy with: one that comes back is told at once that it is over, not when it next reports.
        self._dropped: dict[str, Execution] = {}
        self._ask_ns = 0
        self._doing_ns = 0
        self._looked_ns = 0
        self._patient_ns = 0

    def received(self, message: Message) -> None:
        """Take a report, a device's state, or what it says that it does."""
        topic = topics.parse(message.topic)
        if topic.kind == "job":
            self._reports.append((topic, contract.decode_report(message.payload)))
        elif topic.kind == "state":
            self._presence(topic.device, messages.decode_state(message.payload))
        elif topic.kind == "progress":
            self._doing[topic.device] = messages.decode_progress(message.payload).doing[:LONGEST_DOING]

    def look(self, now_ns: int) -> None:
        """Take reports, give up what is overdue, start what may start, send what is due."""
        queue = self._loaded()
        if self._rulebook.look(now_ns):
            queue.set_rules(self._rulebook.rules)
            self._ask_ns = 0
        out = [device for device in self._rulebook.rules.revoked if queue.of_device(device)]
        self._follow(queue, queue.refresh(), now_ns)
        self._meet(queue, now_ns)
        overdue = self._overdue(queue, now_ns)
        if self._reports or overdue or out or self._is_asking(now_ns) or self._has_doings(now_ns):
            self._decide(queue, overdue, out, now_ns)
        for number in self._sending.due(now_ns):
            execution = queue.get(number)
            if execution is None or not sending.needs_sending(execution):
                self._sending.end(number)
            elif self._sending.is_online(execution.device):
                self._publish(*sending.order(execution, queue.job(execution)))

    def close(self) -> None:
        """Hold nothing more."""
        self._queue = None

    def _overdue(self, queue: Queue, now_ns: int) -> list[Execution]:
        """Return what is given up now: nothing soon after a pause, in which nobody could report (no broker, no service)."""
        if now_ns - self._looked_ns > int(PAUSE_S * NS_PER_S):
            self._patient_ns = now_ns + int(PATIENCE_S * NS_PER_S)
        self._looked_ns = now_ns
        return [] if now_ns < self._patient_ns else list(queue.overdue(now_ns))

    def _loaded(self) -> Queue:
        if self._queue is None:
            queue = Queue(self._registry)
            queue.load(self._rulebook.rules)
            self._ready.clear()
            self._moved = self._sending.everybody_online()
            self._queue = queue
            logger.info("%d executions are open", len(queue))
        return self._queue

    def _presence(self, device: str, state: messages.State) -> None:
        note = self._sending.online if state.state == "online" else self._sending.offline
        if note(device, state.session):
            self._moved.add(device)

    def _meet(self, queue: Queue, now_ns: int) -> None:
        """Send to who came back what it has not answered, and ask who came or went anew."""
        for device in self._moved:
            self._came_ns[device] = now_ns
            execution = queue.in_flight(device)
            is_online = self._sending.is_online(device)
            if execution is not None and sending.needs_sending(execution) and is_online:
                self._sending.begin(execution, now_ns)
            if is_online and (over := self._dropped.pop(device, None)) is not None:
                self._publish(*sending.order(over, queue.job(over)))
            self._ask(queue, device)
        self._moved.clear()

    def _follow(self, queue: Queue, changed: Iterable[Execution], now_ns: int) -> None:
        """Take note of executions that were changed."""
        for execution in changed:
            if not sending.needs_sending(execution):
                self._sending.end(execution.id)
            elif not self._sending.is_under_way(execution):
                self._sending.begin(execution, now_ns)
            self._ask(queue, execution.device)

    def _ask(self, queue: Queue, device: str) -> None:
        # One that came this moment is met first.
        execution = queue.first(device) if self._sending.is_online(device) and device in self._came_ns else None
        if execution is None:
            self._ready.pop(device, None)
        else:
            asked = queue.asked(execution)
            earliest_ns = self._came_ns[device] + int(BEFORE_RETRY_S * NS_PER_S) if execution.attempt else 0
            self._ready[device] = replace(asked, due_ns=max(asked.due_ns, earliest_ns))
        # Something ended or came: others may start too.
        self._ask_ns = 0

    def _is_asking(self, now_ns: int) -> bool:
        return bool(self._ready) and now_ns >= self._ask_ns

    def _has_doings(self, now_ns: int) -> bool:
        return bool(self._doing) and now_ns >= self._doing_ns

    def _decide(self, queue: Queue, overdue: list[Execution], out: list[str], now_ns: int) -> None:
        """Decide, commit, and only then say so."""
        reports, self._reports = self._reports[:MOST_AT_ONCE], self._reports[MOST_AT_ONCE:]
        busy = [held for device in out if (held := queue.in_flight(device)) is not None]
        try:
            with self._registry.transaction() as connection:
                self._follow(queue, queue.refresh(), now_ns)
                decision = Decision(self._registry, queue, now_ns)
                for topic, report in reports:
                    decision.report(topic, report)
                for execution in overdue:
                    decision.give_up(execution.id)
                for device in out:
                    decision.drop(device, REVOKED)
                self._note_doings(queue, decision, now_ns)
                for execution in decision.changed.values():
                    self._ask(queue, execution.device)
                if self._is_asking(now_ns):
                    self._start(queue, decision, now_ns)
                executions.write(connection, decision.changed.values())
        except EdgemeterError:
            # What is held here may be ahead of the registry now; devices say again what was not acknowledged.
            self._queue = None
            raise
        self._dropped.update((one.device, decision.changed[one.id]) for one in busy)
        self._follow(queue, decision.changed.values(), now_ns)
        for said, payload in decision.said:
            self._publish(said, payload)

    def _start(self, queue: Queue, decision: Decision, now_ns: int) -> None:
        waiting = sorted(self._ready.values(), key=lambda one: (one.measures, one.due_ns, one.execution))
        starting, _ = rules.choose(waiting, queue.busy, self._rulebook.rules, now_ns, MOST_AT_ONCE)
        for asked in starting:
            decision.start(asked.execution)
            del self._ready[asked.device]
        self._ask_ns = now_ns + int(ASK_AGAIN_S * NS_PER_S)

    def _note_doings(self, queue: Queue, decision: Decision, now_ns: int) -> None:
        if not self._has_doings(now_ns):
            return
        self._doing_ns = now_ns + int(DOING_S * NS_PER_S)
        for device, doing in self._doing.items():
            execution = queue.in_flight(device)
            if execution is not None and execution.state != "sent" and execution.doing != doing:
                decision.note(replace(execution, doing=doing))
        self._doing.clear()
