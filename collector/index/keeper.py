"""Keeps the index of a ledger and its trends up to date, in a process of its own: receiving never waits for it.

Figures are taken in as records arrive, so that the first question never pays for history; then come trends, and last the summaries of
cases, which take the longest.

`python -m edgemeter.collector.index.keeper` reads the ledger's place from standard input, and ends with it, and so with its parent.
"""

import contextlib
import logging
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from edgemeter.agent.base.errors import EdgemeterError, UnavailableError, one_line
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.threads import ended_by_dead_threads
from edgemeter.collector.ledgers.place import LedgerPlace, ledger_place, ledger_version

logger = logging.getLogger(__name__)

FIRST_REFRESH_S = 30.0
REFRESH_S = 5.0
NICENESS = 15


@dataclass(slots=True)
class Duty:
    """Work that is due after each change of the ledger, but only so many seconds, and times longer than it took, after it was last done."""

    work: Callable[[], object]
    pause_s: float
    pause_times: float
    clock: Callable[[], float] = time.monotonic
    _version: str = ""
    _next_s: float = 0.0

    def poll(self, version: str) -> None:
        """Work if it is due in this version of the ledger."""
        began_s = self.clock()
        if version == self._version or began_s < self._next_s:
            return
        try:
            self.work()
            self._version = version
        finally:
            self._next_s = self.clock() + max(self.pause_s, self.pause_times * (self.clock() - began_s))


@contextlib.contextmanager
def index_keeper(ledger: LedgerPlace) -> Iterator[None]:
    """Keep the index and the trends of `ledger` up to date for the block, and log what the process reports."""
    command = [sys.executable, "-m", "edgemeter.collector.index.keeper"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    is_over = threading.Event()
    reports = threading.Thread(target=_log_reports, args=(process, is_over), name="edgemeter-keeper", daemon=True)
    reports.start()
    try:
        if process.stdin is not None:
            # Everybody may see the arguments of a process, and an address may hold a password.
            process.stdin.write(f"{ledger.text if isinstance(ledger, PostgresAddress) else ledger}\n".encode())
            process.stdin.flush()
        yield
    finally:
        is_over.set()
        # Killing is safe: its transactions are complete or absent.
        process.kill()
        process.wait()
        reports.join(timeout=1.0)
        if process.stdin is not None:
            process.stdin.close()


def _log_reports(process: subprocess.Popen[bytes], is_over: threading.Event) -> None:
    """Log what the process reports; raise UnavailableError if it dies by itself."""
    with process.stdout or contextlib.nullcontext(()) as reports:
        for line in reports:
            logger.warning("%s", line.decode("utf-8", "replace").rstrip("\n"))
    # Ctrl-C, and systemd, end all processes of a service at once.
    if process.wait() not in (-signal.SIGINT, -signal.SIGTERM) and not is_over.is_set():
        raise UnavailableError(f"the process that keeps the index ended with status {process.returncode}")


class ReportHandler(logging.Handler):
    """Writes a line to whoever started the process; one that the pipe has no room for is dropped, so that nobody is waited for."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        os.set_blocking(sys.stdout.fileno(), False)
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), f"{' '.join(record.getMessage().split())}\n".encode())


def main(ledger: LedgerPlace) -> None:
    """Refresh repeatedly until standard input ends."""
    os.nice(NICENESS)
    is_over = threading.Event()
    with ended_by_dead_threads(is_over.set):
        _keep_up(ledger, is_over)


def _keep_up(ledger: LedgerPlace, is_over: threading.Event) -> None:
    duties: tuple[Duty, ...] = ()
    pause_s = FIRST_REFRESH_S
    while not is_over.is_set() and not select.select([sys.stdin], [], [], pause_s)[0]:
        pause_s = REFRESH_S
        # The next reader reports what is wrong with the ledger, or with the index.
        with contextlib.suppress(EdgemeterError, sqlite3.DatabaseError):
            duties = duties or _duties(ledger)
            # What comes meanwhile is another version.
            version = ledger_version(ledger)
            for duty in duties:
                duty.poll(version)


def _duties(ledger: LedgerPlace) -> tuple[Duty, ...]:
    """Return what there is to do, in its order; nothing for a ledger that is read as fast as its index."""
    # Not before they are needed: most ledgers are small.
    from edgemeter.collector.index.index_file import connect_index, index_path  # noqa: PLC0415
    from edgemeter.collector.index.refresh import IndexRefresher  # noqa: PLC0415
    from edgemeter.collector.index.rollup import WORTH_RUNS  # noqa: PLC0415
    from edgemeter.collector.index.sources import LedgerSource  # noqa: PLC0415

    source = LedgerSource(ledger)
    if source.last_row() < WORTH_RUNS:
        return ()

    def refresh(part: Callable[[IndexRefresher], object]) -> None:
        with contextlib.closing(connect_index(index_path(ledger))) as connection:
            part(IndexRefresher(connection, source))

    return (
        Duty(lambda: refresh(IndexRefresher.take_in), 0.0, 1.0),
        Duty(lambda: refresh(IndexRefresher.sum_up), 60.0, 20.0),
    )


def _report_death(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    logger.error("the process that keeps the index dies of %s: %s", kind.__name__, one_line(error))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, handlers=[ReportHandler()])
    sys.excepthook = _report_death
    # Ctrl-C at a terminal reaches this process too; it ends with its parent, which closes standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(ledger_place(sys.stdin.readline().rstrip("\n")))
