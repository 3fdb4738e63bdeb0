"""Reports of devices that wait for a commit: devices take turns, and each has a bounded share."""

from collections import OrderedDict, deque

from edgemeter.agent.contract.messages import Topic
from edgemeter.agent.contract.orders import ExecutionReport

# Of one device; it sends again what was not acknowledged.
MOST_OF_ONE = 32


class WaitingReports:
    """Reports by device, in the order of their turns; false where there is none."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[tuple[Topic, ExecutionReport]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, topic: Topic, report: ExecutionReport) -> None:
        """Add a report of the topic's device; its oldest gives way where there are too many."""
        self._waiting.setdefault(topic.device, deque(maxlen=MOST_OF_ONE)).append((topic, report))

    def take(self, limit: int) -> list[tuple[Topic, ExecutionReport]]:
        """Return and remove the next reports, at most `limit`."""
        reports: list[tuple[Topic, ExecutionReport]] = []
        while self._waiting and len(reports) < limit:
            device, waiting = self._waiting.popitem(last=False)
            reports.append(waiting.popleft())
            if waiting:
                self._waiting[device] = waiting
        return reports
