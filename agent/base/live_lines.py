"""Lines on a terminal that change while work goes on."""

import sys
import threading
from collections.abc import Iterable
from typing import Any

from edgemeter.agent.base.console import Console


class LiveLines:
    """Lines that are drawn again, and erased when the block ends.

    Text that is printed meanwhile stays above them.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._stream = console, console.file
        self._lines: list[str] = []
        self._unfinished = ""
        self._lock = threading.RLock()
        self._takes_errors = self._stream is sys.stderr

    def __enter__(self) -> "LiveLines":  # noqa: PYI034 - Self needs Python 3.11
        self._console.file = self
        if self._takes_errors:
            sys.stderr = self
        return self

    def __exit__(self, *_: object) -> None:
        self.write("\n" if self._unfinished else "")
        self.draw(())
        self._console.file = self._stream
        if self._takes_errors:
            sys.stderr = self._stream

    def draw(self, lines: Iterable[str]) -> None:
        with self._lock:
            erased = self._erased()
            self._lines = list(lines)
            self._stream.write(erased + "\n".join(self._lines))
            self._stream.flush()

    def write(self, text: str) -> int:
        """Print the finished lines of `text` above; as the method of a stream."""
        with self._lock:
            *finished, self._unfinished = (self._unfinished + text).split("\n")
            if finished:
                self._stream.write(
                    self._erased() + "\n".join(finished) + "\n" + "\n".join(self._lines)
                )
        return len(text)

    def _erased(self) -> str:
        """Return the control sequences that erase the lines. Source: ECMA-48, CUU and ED."""
        above = f"\x1b[{len(self._lines) - 1}A" if len(self._lines) > 1 else ""
        return f"\r{above}\x1b[J" if self._lines else ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
