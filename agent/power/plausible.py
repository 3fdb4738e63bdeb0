"""A power that a sensor can have seen: garbled figures are whole numbers too."""

from edgemeter.agent.errors import TransientError


def power_w(found_w: float, highest_w: float, what: str) -> float:
    """Return the power.

    Raises:
        TransientError: it is more than `what` can show, in either direction.
    """
    if abs(found_w) > highest_w:
        message = f"{what} shows {found_w:.3g} W, more than it can ({highest_w:g} W): the figure is garbled; read it again"
        raise TransientError(message)
    return found_w
