"""Messages to the service manager (systemd) that started this process: ready, and alive."""

import os
import socket
import time
from collections.abc import Mapping

_WATCHDOG_SHARE = 0.3


def notify_service_manager(message: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send the service manager e.g. `READY=1` or `WATCHDOG=1`; return whether one is listening.

    Source: sd_notify(3): one datagram to the socket that NOTIFY_SOCKET names; a leading `@` stands
    for the abstract namespace.
    """
    name = environment.get("NOTIFY_SOCKET", "")
    if not name.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
            connection.sendto(message.encode(), "\0" + name[1:] if name.startswith("@") else name)
    except OSError:
        # The watchdog's timeout is the remedy.
        return False
    return True


class ServiceManager:
    """Reports to systemd if it asks for that (Type=notify, WatchdogSec), else nothing.

    Source: sd_watchdog_enabled(3).
    """

    def __init__(self) -> None:
        try:
            watchdog_s = int(os.environ.get("WATCHDOG_USEC", "")) / 1e6
        except ValueError:
            watchdog_s = 0.0
        self._every_s = watchdog_s * _WATCHDOG_SHARE
        self._next_s = 0.0

    def ready(self) -> None:
        """Report that the service is up."""
        notify_service_manager("READY=1")

    def alive(self) -> None:
        """Report progress.

        It is cheap enough to call every second. systemd restarts a service that stops calling this.
        """
        if self._every_s > 0 and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._every_s
            notify_service_manager("WATCHDOG=1")
