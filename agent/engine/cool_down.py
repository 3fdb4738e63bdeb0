"""The wait before a run until the machine has cooled to a start temperature, where it has a thermometer."""

import time
from collections.abc import Callable

from edgemeter.agent.machine import temperatures
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.records import CoolDown

PERIOD_S = 1.0


def wait(
    below_c: float,
    limit_s: float,
    begins: Callable[[], object],
    machine: Machine = THIS_MACHINE,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> CoolDown:
    """Return how long it took until no sensor read `below_c` or more, for `limit_s` at most; `begins` is called when there is a wait.

    A machine without a thermometer is not waited for: `is_reached` is then None.
    """
    begin = clock()
    hottest_c = _hottest_c(machine)
    if hottest_c is not None and hottest_c >= below_c and limit_s > 0:
        begins()
    while hottest_c is not None and hottest_c >= below_c and clock() - begin < limit_s:
        sleep(min(PERIOD_S, limit_s))
        hottest_c = _hottest_c(machine)
    is_reached = None if hottest_c is None else hottest_c < below_c
    return CoolDown(below_c=below_c, waited_s=clock() - begin, temperature_c=hottest_c, is_reached=is_reached)


def _hottest_c(machine: Machine) -> float | None:
    return max(temperatures.read(machine).values(), default=None)
