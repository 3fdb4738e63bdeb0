"""A power cycle in three steps, and the end of one that the switch times itself."""

import time
from collections.abc import Callable

from edgemeter.agent.errors import EdgemeterError, UnavailableError
from edgemeter.provisioning.rescue import PowerSwitch

# After the switch's own timer ran out; and how often giving the power back is tried before somebody has to.
MARGIN_S = 2.0
TRIES = 5
PAUSE_S = 3.0

Sleep = Callable[[float], None]


def by_hand(switch: PowerSwitch, off_s: float, sleep: Sleep = time.sleep) -> None:
    """Take the power away, wait, give it back: whatever happens in between, giving it back is tried.

    Raises:
        EdgemeterError: as the switch.
    """
    switch.off()
    try:
        sleep(off_s)
    finally:
        back_on(switch, sleep)


def await_timer(switch: PowerSwitch, off_s: float, sleep: Sleep = time.sleep) -> None:
    """Wait until the switch's own timer has given the power back, and give it back where it has not.

    Raises:
        EdgemeterError: as the switch.
    """
    sleep(off_s + MARGIN_S)
    if switch.state().is_on is not True:
        back_on(switch, sleep)


def back_on(switch: PowerSwitch, sleep: Sleep = time.sleep) -> None:
    """Give the power back, and try again where that fails.

    Raises:
        UnavailableError: the board may be without power.
    """
    for left in range(TRIES - 1, -1, -1):
        try:
            switch.on()
        except EdgemeterError as error:
            if not left:
                message = f"the power is off and cannot be given back: {error}"
                raise UnavailableError(message) from error
            sleep(PAUSE_S)
        else:
            return
