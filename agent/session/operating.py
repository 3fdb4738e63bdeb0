"""The board of a session: set to the operating point of each run, settled, read back, and put back as it was at the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from edgemeter.agent.base.config import home
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.machine import fingerprint, temperatures
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.operating import changes
from edgemeter.agent.session.run_record import SessionContext

SETTLE_LIMIT_S = 60.0  # Longest wait for the board to settle at another power mode or clock.
PERIOD_S = 1.0
# The board has settled when so many readings in a row lie within these limits; without a thermometer after as many.
READINGS = 5
STEADY_C = 1.0


class OperatedBoard:
    """The facts that the runs of a session share, with the environment of each operating point; `at` sets the board."""

    def __init__(self, context: SessionContext, changed: changes.ChangedBoard | None, begins: Callable[[], object]) -> None:
        self._context, self._changed, self._begins = context, changed, begins
        self._confirmed = OperatingPoint()
        # What the board was set to last, with the governor and the power mode that it had then.
        self._current: tuple[OperatingPoint | None, str | None, str | None] | None = None

    def at(self, point: OperatingPoint | None) -> tuple[SessionContext, OperatingPoint | None]:
        """Set the board to `point` (None: as it was found), wait until it has settled, and return what it is now, as read back.

        Nothing is written if it is so already; what others have changed since is set again.

        Raises:
            UnavailableError: the board did not take it.
        """
        if self._changed is None:
            return self._context, None
        environment = fingerprint.read()
        if self._current != (point, environment.governor, environment.power_mode):
            self._current = None
            self._confirmed = self._changed.set(point)
            self._begins()
            settle()
            environment = fingerprint.read()
            self._current = point, environment.governor, environment.power_mode
        return replace(self._context, environment=environment), self._confirmed if point else None


@contextmanager
def operated_board(cases: Sequence[Case], context: SessionContext, begins: Callable[[], object]) -> Iterator[OperatedBoard]:
    """Yield the board, and put its settings back at the end; `begins` is called before each wait. Cases that set nothing change nothing.

    Raises:
        UnavailableError: another process changes the board, or a setting cannot be put back.
    """
    if not any(case.operating_point for case in cases):
        yield OperatedBoard(context, None, begins)
        return
    with changes.changed_board(home()) as changed:
        yield OperatedBoard(context, changed, begins)


def settle(
    machine: Machine = THIS_MACHINE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the hottest sensor moves by at most 1 C within five readings ; after a minute at the latest."""
    begin = clock()
    hottest_c: list[float] = []
    for reading in range(1 << 20):
        hottest_c = [*hottest_c[1 - READINGS :], max(temperatures.read(machine).values(), default=0.0)]
        is_steady = reading + 1 >= READINGS and max(hottest_c) - min(hottest_c) <= STEADY_C
        if is_steady or clock() - begin >= SETTLE_LIMIT_S:
            return
        sleep(PERIOD_S)
