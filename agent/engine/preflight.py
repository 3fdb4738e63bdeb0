"""The look at the machine before the first run: what should hold and does not, told while something can still be done about it."""

import os
import time
from collections.abc import Callable

from edgemeter.agent.engine.verdict import precondition_rules
from edgemeter.agent.machine import conditions, fingerprint, load
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine

# On two cores this is 100 clock ticks: enough to see a tenth of the machine busy.
LOOK_S = 0.5


def notes(machine: Machine = THIS_MACHINE, sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Return what speaks against measuring now, each as `rule: evidence`; takes half a second, to see the load of others."""
    since = load.read(machine, None, os.getpid())
    sleep(LOOK_S)
    before = conditions.look("before", machine, since=since)
    return [f"{one.name}: {evidence}" for one, evidence in precondition_rules.broken(before, fingerprint.read(machine))]
