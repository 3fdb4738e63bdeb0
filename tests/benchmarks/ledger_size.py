"""Questions to a ledger as the collector keeps it, beside a plain scan of its figures by SQLite.

The scan counts the runs of each case and averages their p50, of a table of nothing but figures. A command is a process beside one that
scans, and nothing that is asked makes the next question cheaper. A page is an answer of the server beside a scan in the same process: its
thread has read the runs before, which takes what is stated.
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
from edgemeter.collector.trend.history import History
from edgemeter.collector.web.events import TrendEvents
from edgemeter.collector.web.server import SHOWN, PageServer
from edgemeter.collector.web.view import read_address
from tests.benchmarks.harness import Comparison, Line, at_most, compared, figure, in_turn
from tests.fixtures.fleet_ledger import Fleet, write_ledger

EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]
TREND = [*EDGEMETER, "trend", "--ledger"]
DEVICE = "board-0007"
PAGES = {"overview": "overview", "compare": "compare", "device": f"device?fleet=lab&device={DEVICE}"}
SCAN = (
    "SELECT device, model, precision, count(*), avg(latency_p50_ms), min(latency_p50_ms), max(latency_p50_ms) FROM runs"
    " GROUP BY device, model, precision"
)
IN_SQLITE = "import sqlite3, sys; print(len(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
COLUMNS = ("device", "model", "precision", "started_at_ns", "latency_p50_ms", "energy_gross_mj", "accuracy_value", "verdict")
TREND_SCANS, PAGE_SCANS, EVERYTHING_S = 10.0, 3.0, 5.0
SECONDS = 15.0


def comparisons() -> Iterator[Comparison]:
    """Yield the questions to 100,000 runs."""
    yield from _questions(Fleet(devices=50, days=200, cases=10))


def long_comparisons() -> Iterator[Comparison]:
    """Yield the questions to a million runs."""
    yield from _questions(Fleet(devices=1000, days=100, cases=10))


def _questions(fleet: Fleet) -> Iterator[Comparison]:
    with tempfile.TemporaryDirectory(prefix="edgemeter-questions-", dir=os.environ.get("EDGEMETER_BENCH_DIR")) as folder:
        path, runs = Path(folder) / "ledger.sqlite", f"{fleet.runs:,} runs"
        write_ledger(path, fleet)
        of_one = [*TREND, str(path), "--device", DEVICE]
        compared_s = _ask([*EDGEMETER, "compare", "--ledger", str(path), "--reference", "reference"])[1]
        yield figure(f"`compare` of {runs}", "s of the processor", compared_s)
        plain = _plain(path)
        scan = [sys.executable, "-c", IN_SQLITE, str(plain), SCAN]
        line = Line(f"first `trend` of one board among {runs}", "s of the processor", "a scan by SQLite", at_most(TREND_SCANS))
        yield compared(line, in_turn(lambda: _ask(of_one)[1], lambda: _ask(scan)[1]), SECONDS)
        took_s = _ask([*TREND, str(path)])[0]
        yield figure(f"first `trend` of {runs}", "s", took_s, at_most(EVERYTHING_S))
        yield from _pages(path, plain, runs)


def _pages(path: Path, plain: Path, runs: str) -> Iterator[Comparison]:
    store, begin_s = LedgerStore(path), time.process_time()
    # The server does this in its own thread, before anybody asks.
    server = PageServer(CaseBook(store, SHOWN), TrendEvents(store))
    server.book.refresh()
    yield figure(f"the cases of {runs} for the page", "s of the processor", time.process_time() - begin_s)
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
        line = Line(f"page {name} of {runs}", "s of the processor", "a scan by SQLite", at_most(PAGE_SCANS))
        yield compared(line, in_turn(partial(answered_s, address), scanned_s), SECONDS)


def _ask(command: list[str]) -> tuple[float, float]:
    """Return how long a command takes, and how long its processor; raises CalledProcessError if it fails."""
    begin_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _plain(path: Path) -> Path:
    """Return a table of the figures of every run of the ledger, beside it."""
    plain = path.with_suffix(".plain")
    history = History(LedgerStore(path))
    with closing(sqlite3.connect(plain)) as connection, connection:
        connection.execute(f"CREATE TABLE runs ({', '.join(COLUMNS)})")
        insert = f"INSERT INTO runs VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - question marks
        for key in history.series():
            name = key.device, key.model, key.precision
            rows = ((*name, run.started_at_ns, *map(run.value, COLUMNS[4:7]), run.verdict.state) for run in history.points(key))
            connection.executemany(insert, rows)
    return plain
