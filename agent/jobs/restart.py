"""Orders to restart the agent or the board, which end this process.

The next process knows that they are done.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from edgemeter.agent.base import durable_file
from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.orders import Restart
from edgemeter.agent.machine import clock

# The supervisor, which is root, reboots the board if this file names the present boot.
REQUEST = Path("update") / "reboot"


def check(work: Restart, home: Path) -> None:
    """Check that a service manager would restart the process; raises UnavailableError if not."""
    if work.what == "agent" and not ({"INVOCATION_ID", "NOTIFY_SOCKET"} & set(os.environ)):
        raise UnavailableError(
            "not allowed: no service manager would restart this agent (it was started by hand)"
        )
    if work.what == "board" and not os.access(home / REQUEST.parent, os.W_OK):
        raise UnavailableError(
            f"not allowed: no supervisor runs here ({str(home / REQUEST.parent)!r} is not writable)"
        )


def request(work: Restart, home: Path, restart: Callable[[], None]) -> None:
    """Request the restart; raises UnavailableError if the request cannot be written."""
    if work.what == "agent":
        restart()
    else:
        durable_file.write(home / REQUEST, f"{clock.boot_id()}\n".encode(), 0o644)


def withdraw(home: Path) -> None:
    """Withdraw the request for the board's restart, if it is still to come."""
    # The supervisor may have been quicker.
    with contextlib.suppress(OSError):
        (home / REQUEST).unlink()


def came_of(work: Restart, asked_in: str | None, boot_id: str | None) -> str | None:
    """Return what was restarted, from the boot of the request and the present one.

    None if it is still to come.
    """
    if work.what == "agent":
        return "the agent was restarted"
    return "the board was restarted" if asked_in != boot_id or boot_id is None else None
