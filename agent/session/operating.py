"""Sets the board to the operating point of a run, and waits until it has settled."""

import time
from collections.abc import Callable
from dataclasses import replace

from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine import fingerprint, temperatures
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.operating.changed_board import ChangedBoard
from edgemeter.agent.session.run_record import SessionContext

SETTLE_LIMIT_S = 60.0  # Longest wait for the board to settle at another power mode or governor.
PERIOD_S = 1.0
# The board has settled when so many readings in a row lie within these limits; without a thermometer after as many.
READINGS = 5
STEADY_C = 1.0


def at_point(
    board: ChangedBoard | None, point: OperatingPoint | None, context: SessionContext, begins: Callable[[], object]
) -> tuple[SessionContext, OperatingPoint | None]:
    """Set the board, if the session has one, as `ChangedBoard.set` does; return the context with its environment now, and the point.

    `begins` is called before the wait until it has settled.
    """
    if board is None:
        return context, None
    confirmed, is_written = board.set(point)
    if is_written:
        begins()
        settle()
    return replace(context, environment=fingerprint.read()), confirmed if point else None


def settle(
    machine: Machine = THIS_MACHINE, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Return when the hottest sensor moves by at most 1 C within five readings; after a minute at the latest."""
    begin_s = clock()
    hottest_c: list[float] = []
    while True:
        hottest_c = [*hottest_c[1 - READINGS :], max(temperatures.read(machine).values(), default=0.0)]
        is_steady = len(hottest_c) == READINGS and max(hottest_c) - min(hottest_c) <= STEADY_C
        if is_steady or clock() - begin_s >= SETTLE_LIMIT_S:
            return
        sleep(PERIOD_S)
