"""What systemd is told by the service itself: it is ready, and it is still alive (units with Type=notify and WatchdogSec=)."""

import os
import socket
from collections.abc import Mapping


def notify(said: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell the service manager, e.g. `READY=1` or `WATCHDOG=1`; return whether there is one that listens.

    Source: sd_notify(3): one datagram to the socket that NOTIFY_SOCKET names; an `@` in front stands for the abstract namespace.
    """
    name = environment.get("NOTIFY_SOCKET", "")
    if not name.startswith(("/", "@")):
        return False
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as way:
            way.sendto(said.encode(), address)
    except OSError:
        return False
    return True
