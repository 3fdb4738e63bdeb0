"""Brings what was committed from SQLite's log into the ledger's file, beside the commits.

SQLite does so within each commit that finds 1,000 pages in the log: 6 ms, for which all receipts wait. This brings them in before, though
not after every commit: pages that several commits change are written once.
"""

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.ledger.ledger_file import LEDGER_FORMAT

# Some 20 to 700 pages, as they come in one commit or one by one.
RECORDS = 100
# A checkpoint holds up the commits beside it: a slow disk has a pause of so many times what the last one took.
PAUSE_S, PAUSE_TIMES = 0.02, 10.0


class Checkpoints:
    """Checkpoints the ledger at `path` in a thread of its own, soon after every RECORDS that it is told of; `stop` once or more.

    Raises what `sqlite_file.connect` raises.
    """

    def __init__(self, path: Path) -> None:
        self._records = 0
        self._connection = sqlite_file.connect(path, LEDGER_FORMAT)
        self._is_due = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgemeter-checkpoints", daemon=True)
        self._thread.start()

    def note(self, records: int) -> None:
        """Note that so many records were committed."""
        self._records += records
        if self._records >= RECORDS:
            self._records = 0
            self._is_due.set()

    def stop(self) -> None:
        """End the thread and close the file; may be called twice."""
        self._stopping.set()
        self._is_due.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(self._connection) as connection:
            while self._is_due.wait() and not self._stopping.is_set():
                self._is_due.clear()
                begun_s = time.monotonic()
                # What is wrong with the disk the next commit reports.
                with suppress(sqlite3.Error):
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                self._stopping.wait(max(PAUSE_S, PAUSE_TIMES * (time.monotonic() - begun_s)))
