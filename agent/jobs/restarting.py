"""Starts the agent or the whole board anew, never during a run: who asks for it holds the run lock."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.jobs.contract import Restart

# The supervisor, which is root, starts the board anew when this file appears, and removes it first.
REQUEST = Path("update") / "reboot"


def check(work: Restart, home: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Find out whether somebody would start again what is ended.

    Raises:
        UnavailableError: nobody would.
    """
    if work.what == "agent" and not ({"INVOCATION_ID", "NOTIFY_SOCKET"} & set(environment)):
        message = "not allowed: no service manager would start this agent again (it was started by hand)"
        raise UnavailableError(message)
    if work.what == "board" and not os.access(home / REQUEST.parent, os.W_OK):
        message = f"not allowed: there is no supervisor here ({str(home / REQUEST.parent)!r} may not be written)"
        raise UnavailableError(message)


def ask(work: Restart, home: Path, restart: Callable[[], None]) -> None:
    """Ask for it.

    Raises:
        UnavailableError: the request cannot be written.
    """
    if work.what == "agent":
        restart()
        return
    path = home / REQUEST
    try:
        blank = path.with_name(f".{path.name}")
        blank.write_text("ordered by the fleet's server\n", encoding="utf-8")
        blank.replace(path)
    except OSError as error:
        message = f"cannot ask for a restart at {str(path)!r}: {error.strerror}"
        raise UnavailableError(message) from error


def take_back(home: Path) -> None:
    """Ask no more for the board's restart, if that was asked for and is still to come."""
    # The supervisor may have been quicker.
    with contextlib.suppress(OSError):
        (home / REQUEST).unlink()


def came_of(work: Restart, asked_in: str | None, boot_id: str | None) -> str | None:
    """Return what was started anew, given the boot in which it was asked for and the present one; None when that is still to come."""
    if work.what == "agent":
        return "the agent was started anew"
    return "the board was started anew" if asked_in != boot_id or boot_id is None else None
