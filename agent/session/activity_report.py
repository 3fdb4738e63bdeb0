"""The reports of a device on the session in progress."""

from collections.abc import Callable

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.messages import Measuring
from edgemeter.agent.session.session import RunBegins, RunEnds, SessionEvent

LONGEST_TEXT = 300


class ActivityReport:
    """Calls `report`, which may not block, when a run begins.

    The end of the session is not reported.
    """

    def __init__(
        self, suite: str, report: Callable[[Measuring], None], order: str | None = None
    ) -> None:
        self._suite = suite
        self._report = report
        self._order = order
        self._failed = 0

    def __call__(self, event: SessionEvent) -> None:
        """Take an event of the session."""
        if isinstance(event, RunBegins):
            measuring = Measuring(
                suite=self._suite[:LONGEST_TEXT],
                case=event.case.label[:LONGEST_TEXT],
                run=event.place,
                runs=event.total,
                failed=self._failed,
                job=self._order,
            )
            self._report(measuring)
        elif isinstance(event, RunEnds) and isinstance(event.outcome, EdgemeterError):
            self._failed += 1
