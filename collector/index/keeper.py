"""Keeps the index of a ledger, its trends and its tables for SQL up to date, in a process of its own: receiving never waits for it.

`python -m edgemeter.collector.index.keeper` reads the ledger's place from standard input, and ends with it, and so with its parent.
"""

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place

FIRST_REFRESH_S = 30.0
SHORTEST_PAUSE_S = 60.0
# It pauses this many times longer than it works.
PAUSE_TIMES = 20.0
NICENESS = 15


@contextlib.contextmanager
def index_keeper(ledger: LedgerPlace) -> Iterator[None]:
    """Keep the index and the trends of `ledger` up to date for the block."""
    command = [sys.executable, "-m", "edgemeter.collector.index.keeper"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if process.stdin is not None:
            # Everybody may see the arguments of a process, and an address may hold a password.
            process.stdin.write(f"{ledger.text if isinstance(ledger, PostgresAddress) else ledger}\n".encode())
            process.stdin.flush()
        yield
    finally:
        # Killing is safe: its transactions are complete or absent.
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def main(ledger: LedgerPlace) -> None:
    """Refresh repeatedly until standard input ends."""
    os.nice(NICENESS)
    if isinstance(ledger, PostgresAddress):
        threading.Thread(target=_fill_views, args=(ledger,), name="edgemeter-views", daemon=True).start()
    pause_s = FIRST_REFRESH_S
    while not select.select([sys.stdin], [], [], pause_s)[0]:
        began_s = time.monotonic()
        # The next reader reports what is wrong with the ledger.
        with contextlib.suppress(EdgemeterError):
            _refresh(ledger)
        pause_s = max(SHORTEST_PAUSE_S, PAUSE_TIMES * (time.monotonic() - began_s))


def _fill_views(ledger: PostgresAddress) -> None:
    from edgemeter.collector.sql_views.fill import POLL_S, ViewsFiller  # noqa: PLC0415 - most ledgers are files

    while True:
        # What is behind shows in `collector stats` and the metrics, as of any sink.
        with contextlib.suppress(EdgemeterError), contextlib.closing(ViewsFiller(ledger)) as filler:
            while True:
                filler.fill()
                time.sleep(POLL_S)
        time.sleep(POLL_S)


def _refresh(ledger: LedgerPlace) -> None:
    # Not before they are needed: most ledgers are small.
    from edgemeter.collector.index.history import LedgerHistory  # noqa: PLC0415
    from edgemeter.collector.index.rollup import keep_index  # noqa: PLC0415
    from edgemeter.collector.trend.metrics import DEFAULT  # noqa: PLC0415
    from edgemeter.collector.trend.watch import trends_of  # noqa: PLC0415
    from edgemeter.collector.trend.watch_file import annotations_of  # noqa: PLC0415

    if not keep_index(ledger):
        return
    with contextlib.closing(LedgerHistory(ledger)) as history:
        for by_type in (False, True):
            trends_of(history, annotations_of(ledger), DEFAULT, by_type=by_type)


if __name__ == "__main__":
    main(ledger_place(sys.stdin.readline().rstrip("\n")))
