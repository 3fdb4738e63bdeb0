"""Orders on their way: who is there, what has to be sent again, and when. Held in memory alone: after a kill it is sent once more."""

import heapq
from collections.abc import Iterator

from edgemeter.agent.delivery.topics import Topic
from edgemeter.agent.jobs import contract
from edgemeter.agent.jobs.contract import Cancel, Noted, Order
from edgemeter.provisioning.jobs.executions import IN_FLIGHT, Execution
from edgemeter.provisioning.jobs.jobs import Job

NS_PER_S = 1_000_000_000
FIRST_AGAIN_S = 10.0
LONGEST_AGAIN_S = 300.0
MOST_DOUBLINGS = 10


class Sending:
    """Remembers what a device has not answered yet; `due` yields what to send again, with longer and longer pauses."""

    def __init__(self) -> None:
        self._online: dict[str, int] = {}
        # What is being sent of an execution, how often it was, and when next.
        self._tries: dict[int, tuple[tuple[int, str | None], int, int]] = {}
        self._due: list[tuple[int, int]] = []

    def is_online(self, device: str) -> bool:
        """Return whether the device last said that it is there."""
        return device in self._online

    def online(self, device: str, session: int) -> bool:
        """Note that a device is there; return whether that is news, or another session of its agent."""
        is_news = self._online.get(device) != session
        self._online[device] = session
        return is_news

    def offline(self, device: str, session: int) -> bool:
        """Note that a session has ended; return whether that is news: the last word of one that was followed by another is none."""
        is_news = self._online.get(device) == session
        if is_news:
            del self._online[device]
        return is_news

    def everybody_online(self) -> set[str]:
        """Return who is there."""
        return set(self._online)

    def begin(self, execution: Execution, now_ns: int) -> None:
        """Send what this execution needs its device to know, now and until it answers."""
        self._tries[execution.id] = (_what(execution), 0, now_ns)
        heapq.heappush(self._due, (now_ns, execution.id))

    def end(self, execution: int) -> None:
        """Send nothing more of an execution."""
        self._tries.pop(execution, None)

    def is_under_way(self, execution: Execution) -> bool:
        """Return whether just this is being sent: this attempt, or the wish to end it."""
        return execution.id in self._tries and self._tries[execution.id][0] == _what(execution)

    def due(self, now_ns: int) -> Iterator[int]:
        """Yield the executions of which something is sent now, and note when next."""
        while self._due and self._due[0][0] <= now_ns:
            due_ns, execution = heapq.heappop(self._due)
            what, tries, next_ns = self._tries.get(execution, (None, 0, 0))
            if what is None or next_ns != due_ns:
                continue
            again_ns = now_ns + int(min(LONGEST_AGAIN_S, FIRST_AGAIN_S * 2.0**tries) * NS_PER_S)
            self._tries[execution] = (what, min(tries + 1, MOST_DOUBLINGS), again_ns)
            heapq.heappush(self._due, (again_ns, execution))
            yield execution


def needs_sending(execution: Execution) -> bool:
    """Return whether its device has yet to hear something: the order, or that it is to be ended."""
    return execution.state == "sent" or (execution.state in IN_FLIGHT and execution.wish == "cancel")


def order(execution: Execution, job: Job) -> tuple[str, bytes]:
    """Return the topic and payload of the order: the job, or its end."""
    work = Cancel() if execution.wish == "cancel" or execution.state not in IN_FLIGHT else job.work
    said = Order(job=execution.job, attempt=execution.attempt, version=execution.version, work=work, timeout_s=job.timeout_s)
    return _command(execution.fleet, execution.device), contract.encode(said)


def noted(fleet: str, device: str, said: Noted) -> tuple[str, bytes]:
    """Return the topic and payload of the server's word on a report."""
    return _command(fleet, device), contract.encode(said)


def _what(execution: Execution) -> tuple[int, str | None]:
    return execution.attempt, execution.wish


def _command(fleet: str, device: str) -> str:
    return str(Topic(fleet, device, "command"))
