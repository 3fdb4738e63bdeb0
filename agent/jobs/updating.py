"""Hands an update to `edgemeter.agent.update.order`, and asks it what came of one: its end lies beyond the switch to another release.

What that module has to offer, called with the bundle already here and its hash right:

    check(update: Update, home: Path) -> None                              before anything is fetched
    carry_out(order: Order, bundle: Path, home: Path) -> None              in a process of its own; asks the supervisor, then returns
    came_of(order: Order, home: Path) -> tuple[State, str] | None          in the agent that stays, every few seconds; None: not yet
    withdraw(order: Order, home: Path) -> None                             it is cancelled or overdue: take the wish back, if that can be

The first two may raise EdgemeterError: ConfigError and UnavailableError reject the order. It is imported when there is an update only.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from edgemeter.agent.jobs.contract import Order, State, Update

MODULE = "edgemeter.agent.update.order"


def check(update: Update, home: Path) -> None:
    """Find out whether this agent can go to that release.

    Raises:
        EdgemeterError: it cannot.
    """
    _module().check(update, home)


def carry_out(order: Order, bundle: Path, home: Path) -> None:
    """Begin the update; how it ended is told by `came_of`.

    Raises:
        EdgemeterError: it cannot begin.
    """
    _module().carry_out(order, bundle, home)


def came_of(order: Order, home: Path) -> tuple[State, str] | None:
    """Return how the update ended, None while it goes on.

    Raises:
        EdgemeterError: that cannot be found out now.
    """
    ended: tuple[State, str] | None = _module().came_of(order, home)
    return ended


def withdraw(order: Order, home: Path) -> None:
    """Give it up, where the supervisor has not begun."""
    _module().withdraw(order, home)


def _module() -> Any:
    return import_module(MODULE)
