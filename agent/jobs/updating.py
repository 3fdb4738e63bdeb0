"""Hands an update to `edgemeter.agent.update.order`, and asks it what came of one: its end lies beyond the switch to another release.

What that module has to offer, called with the bundle already here and its hash right:

    carry_out(order: Order, bundle: Path, home: Path) -> None                 in a process of its own; asks the supervisor, then returns
    came_of(order: Order, home: Path) -> tuple[State, str | None] | None      in the agent that stays, every few seconds; None: not yet

Both may raise EdgemeterError: ConfigError and UnavailableError before anything was switched reject the order.
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.jobs import contract
from edgemeter.agent.jobs.contract import Order, State

MODULE = "edgemeter.agent.update.order"


def check(module: str = MODULE) -> None:
    """Find out whether this agent can update itself.

    Raises:
        UnavailableError: it cannot.
    """
    if find_spec(module) is None:
        message = "this agent cannot update itself"
        raise UnavailableError(message)


def carry_out(order: Order, bundle: Path, home: Path, module: str = MODULE) -> None:
    """Begin the update; how it ended is told by `came_of`.

    Raises:
        EdgemeterError: it cannot begin.
    """
    check(module)
    import_module(module).carry_out(order, bundle, home)


def came_of(order: Order, home: Path, module: str = MODULE) -> tuple[State, str | None] | None:
    """Return how the update ended, None while it goes on.

    Raises:
        EdgemeterError: that cannot be found out now.
    """
    if not isinstance(order.work, contract.Update) or find_spec(module) is None:
        return "failed", "this agent cannot tell what came of the update"
    ended: tuple[State, str | None] | None = import_module(module).came_of(order, home)
    return ended
