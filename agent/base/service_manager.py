"""Messages to the service manager (systemd) that started this process: that it is ready, and that it still makes progress."""

import os
import socket
import time

_WATCHDOG_SHARE = 0.3


class ServiceManager:
    """Reports to systemd where that asks for it (Type=notify, WatchdogSec); does nothing elsewhere.

    Source: sd_notify(3), sd_watchdog_enabled(3): datagrams to $NOTIFY_SOCKET.
    """

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET")
        try:
            watchdog_s = int(os.environ.get("WATCHDOG_USEC", "")) / 1e6
        except ValueError:
            watchdog_s = 0.0
        self._every_s = watchdog_s * _WATCHDOG_SHARE
        self._next_s = 0.0

    def ready(self) -> None:
        """Report that it is up."""
        self._send(b"READY=1")

    def alive(self) -> None:
        """Report that it makes progress; cheap enough to call every second. systemd restarts what stops calling this."""
        if self._every_s > 0 and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._every_s
            self._send(b"WATCHDOG=1")

    def _send(self, text: bytes) -> None:
        if not self._address:
            return
        # An address that begins with @ is an abstract one.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.sendto(text, address)
        except OSError:
            # The watchdog's own limit is the remedy.
            return
