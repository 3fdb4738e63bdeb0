"""Questions to a ledger as the collector keeps it, next to a plain scan of its figures by SQLite.

The scan counts the runs of each case and averages their p50, of a table of nothing but figures. A
command is a process next to one that scans, and nothing that is asked makes the next question
cheaper. A page is an answer of the server next to a scan in the same process: its thread has read
the runs before, which takes what is stated.
"""

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from edgemeter.collector.compare.case_book import CaseBook
from edgemeter.collector.runs.store import LedgerStore
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.server import SHOWN, PageServer
from edgemeter.collector.web.view import read_address
from tests.fixtures.fleet_ledger import Fleet, multiply_ledger, write_ledger
from tools.benchmarks.commands import COMMAND, environment_of
from tools.benchmarks.harness import Comparison, Line, at_most, compared, figure, in_turn

TREND = [*COMMAND, "trend", "--ledger"]
DEVICE = "board-0007"
PAGES = {
    "overview": "overview",
    "compare": "compare",
    "device": f"device?fleet=lab&device={DEVICE}",
}
SCAN = (
    "SELECT device, model, precision, count(*), avg(latency_p50_ms), min(latency_p50_ms), "
    "max(latency_p50_ms) FROM runs"
    " GROUP BY device, model, precision"
)
IN_SQLITE = (
    "import sqlite3, sys; print(len(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
)
PLAIN = """CREATE TABLE runs AS
SELECT subjects.device, model, precision, started_at_ns, latency_p50_ms, energy_gross_mj,
    accuracy_value, verdict
FROM ledger.runs JOIN ledger.subjects USING (subject)
ORDER BY board, model, subjects.device, precision, at_ns"""
TREND_SCANS, PAGE_SCANS, EVERYTHING_S = 10.0, 3.0, 5.0
COPIES = 10
# How often the trend of a million runs is measured; how long each ratio is.
TIMES, SECONDS = 6, 10.0


def comparisons() -> Iterator[Comparison]:
    """Yield the questions to 100,000 runs, and one to a million."""
    with tempfile.TemporaryDirectory(
        prefix="edgemeter-questions-", dir=os.environ.get("EDGEMETER_BENCH_DIR")
    ) as name:
        folder, fleet = Path(name), Fleet(devices=50, days=200, cases=10)
        path, runs = folder / "ledger.sqlite", f"{fleet.runs:,} runs"
        write_ledger(path, fleet)
        yield from _commands(path, plain := _plain(path), runs)
        yield from _pages(path, plain, runs)
        # A million runs as they are received take minutes to write: their devices are copies of a
        # tenth of them.
        fleet, path = Fleet(devices=100, days=100, cases=10), folder / "million.sqlite"
        write_ledger(path, fleet)
        multiply_ledger(path, COPIES)
        took_s = [_ask([*TREND, str(path)], folder)[0] for _ in range(TIMES)]
        yield figure(
            f"first `trend` of {COPIES * fleet.runs:,} runs", "s", took_s, at_most(EVERYTHING_S)
        )


def _commands(path: Path, plain: Path, runs: str) -> Iterator[Comparison]:
    compared_s = _ask(
        [*COMMAND, "compare", "--ledger", str(path), "--reference", "reference"], path.parent
    )[1]
    yield figure(f"`compare` of {runs}", "s of the processor", compared_s)
    of_one, scan = (
        [*TREND, str(path), "--device", DEVICE],
        [sys.executable, "-c", IN_SQLITE, str(plain), SCAN],
    )
    line = Line(
        f"first `trend` of one board among {runs}",
        "s of the processor",
        "a scan by SQLite",
        at_most(TREND_SCANS),
    )
    yield compared(
        line,
        in_turn(lambda: _ask(of_one, path.parent)[1], lambda: _ask(scan, path.parent)[1]),
        SECONDS,
        has_processes=True,
    )


def _pages(path: Path, plain: Path, runs: str) -> Iterator[Comparison]:
    store, begin_s = LedgerStore(path), time.process_time()
    # The server does this in its own thread, before anybody asks.
    server = PageServer(CaseBook(store, SHOWN), TrendEvents(store))
    server.book.refresh()
    yield figure(
        f"the cases of {runs} for the page", "s of the processor", time.process_time() - begin_s
    )
    server.events.refresh()

    def scanned_s() -> float:
        begin_s = time.process_time()
        with closing(sqlite3.connect(plain)) as connection:
            connection.execute(SCAN).fetchall()
        return time.process_time() - begin_s

    def answered_s(address: str) -> float:
        begin_s = time.process_time()
        server.answer(read_address(address), "")
        return time.process_time() - begin_s

    for name, address in PAGES.items():
        # The templates of a view are read once.
        answered_s(address)
        line = Line(
            f"page {name} of {runs}", "s of the processor", "a scan by SQLite", at_most(PAGE_SCANS)
        )
        yield compared(line, in_turn(partial(answered_s, address), scanned_s), SECONDS)


def _ask(command: list[str], home: Path) -> tuple[float, float]:
    """Return how long a command takes, and how long its processor.

    Raises:
        CalledProcessError: it fails.
    """
    begin_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment_of(home), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        time.monotonic() - begin_s,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def _plain(path: Path) -> Path:
    """Return a table of the figures of every run of the ledger, in a file next to it."""
    plain = path.with_suffix(".plain")
    with closing(sqlite3.connect(plain)) as connection, connection:
        connection.execute("ATTACH ? AS ledger", (str(path),))
        connection.execute(PLAIN)
    return plain
