"""The counters of a collector, watched from outside.

A SIGKILL takes its counters with it, so they are read again and again.
"""

import re
import threading
import urllib.request
from http.client import HTTPException

LOOK_S = 0.25


class Counted:
    """The sum of one counter at `url` over all lives of a process.

    Counts after the last look before a kill are not in it.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._pattern = re.compile(
            rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+]+)$", re.MULTILINE
        )
        self._ended = 0
        self._now = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        return self._ended + self._now

    def stop(self) -> None:
        self.look()
        self._stopping.set()
        self._thread.join()

    def look(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=2) as response:  # noqa: S310 - loopback
                counts = self._pattern.findall(response.read().decode())
        except (OSError, HTTPException):
            return
        value = int(sum(map(float, counts)))
        if value < self._now:
            self._ended += self._now
        self._now = value

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self.look()
