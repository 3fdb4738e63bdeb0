"""A process that is meant to run.

It is started again whenever it ends, as a service manager does; `kill` is SIGKILL.
"""

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.fixtures.servers import LOOPBACK

AGAIN_S = 0.3


class Supervised:
    """`command` kept running until it ends with status 0, or `stop`."""

    def __init__(
        self, name: str, command: list[str], log: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = command
        self.starts = 0
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._held = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def kill(self, down_s: float) -> None:
        self._held.set()
        process = self._process
        if process is not None:
            process.kill()
        time.sleep(down_s)
        self._held.clear()

    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def pid(self) -> int | None:
        return (
            self._process.pid
            if self._process is not None and self._process.poll() is None
            else None
        )

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(number)
        self._thread.join(150)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join()
        return self._process.returncode if self._process is not None else None

    def _watch(self) -> None:
        while not self._stopping.is_set():
            if self._held.is_set():
                self._stopping.wait(0.05)
                continue
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command, stdout=log, stderr=log, env=self._environment
                )
            self.starts += 1
            if self._process.wait() == 0:
                return
            self._stopping.wait(AGAIN_S)


def await_port(port: int) -> None:
    """Return when somebody listens at a port of loopback.

    Raises:
        OSError: nobody does within 30 s.
    """
    deadline = time.monotonic() + 150
    while True:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
