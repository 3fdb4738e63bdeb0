"""Keeps the digest of a ledger warm: a process of its own beside the collector, so that receiving never waits for it.

`python -m edgemeter.collector.digest.keeper LEDGER`; it ends when its standard input does, so with whoever started it.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from edgemeter.agent.errors import EdgemeterError

FIRST_LOOK_S = 30.0
SHORTEST_PAUSE_S = 60.0
# Of the time it works at most so much: it pauses so many times longer.
PAUSE_TIMES = 20.0
NICENESS = 15


@contextlib.contextmanager
def running(ledger: Path) -> Iterator[None]:
    """Keep the digest of `ledger` warm for the block."""
    command = [sys.executable, "-m", "edgemeter.collector.digest.keeper", str(ledger)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        # The digest is as good as it was: its transactions are whole or not there.
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def main(ledger: Path) -> None:
    """Look again and again until standard input ends."""
    os.nice(NICENESS)
    pause_s = FIRST_LOOK_S
    while not _has_ended(pause_s):
        began_s = time.monotonic()
        # Whoever asks next is told what is wrong with the ledger.
        with contextlib.suppress(EdgemeterError):
            _look(ledger)
        pause_s = max(SHORTEST_PAUSE_S, PAUSE_TIMES * (time.monotonic() - began_s))


def _has_ended(pause_s: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], pause_s)
    return bool(ready)


def _look(ledger: Path) -> None:
    from edgemeter.collector.compare.store import LedgerFile  # noqa: PLC0415 - not before it is needed: most ledgers are small
    from edgemeter.collector.digest.digest import digested  # noqa: PLC0415 - as above

    digested(LedgerFile(ledger))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
