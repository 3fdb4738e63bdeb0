"""A ledger of a million runs, and what questions to it cost, beside a plain scan by SQLite and by DuckDB.

`python -m tests.benchmarks.ledger_size PATH [DEVICES DAYS CASES]` writes the ledger where it is not there yet, asks each question in a
process of its own, and prints processor time, the most memory, and the size of what is printed: `from nothing` where files that
questions are answered from had to be made, `kept` with those files as the collector keeps them, `+10 devices` after a day of ten of them.
The scans count the runs of each case and average their p50: of a plain table of figures in SQLite, and of the same as Parquet in DuckDB
(`pip install duckdb`; without it that line is left out).
"""

import csv
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgemeter.collector.index.history import LedgerHistory
from tests.fixtures.fleet_ledger import Fleet, write_ledger

OURS = [sys.executable, "-m", "edgemeter.agent.cli.main"]
PAGE = [sys.executable, "-m", "tests.benchmarks.ledger_size", "--page"]
QUESTIONS = {
    "trend of one device": [*OURS, "trend", "--device", "board-0007", "--ledger", "{path}"],
    "trend": [*OURS, "trend", "--ledger", "{path}"],
    "page, overview": [*PAGE, "{path}", "overview"],
    "page, compare": [*PAGE, "{path}", "compare"],
    "page, trend": [*PAGE, "{path}", "trend"],
    "page, device": [*PAGE, "{path}", "device?fleet=lab&device=board-0007"],
    "compare": [*OURS, "compare", "--reference", "reference", "--ledger", "{path}"],
}
SCAN = "SELECT device, model, precision, count(*), avg(p50_ms), min(p50_ms), max(p50_ms) FROM {} GROUP BY device, model, precision"
IN_SQLITE = "import sqlite3, sys; print(len(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
IN_DUCKDB = "import duckdb, sys; duckdb.execute('SET threads = 1'); print(len(duckdb.execute(sys.argv[1]).fetchall()))"
COLUMNS = ("device", "model", "precision", "started_at_ns", "p50_ms", "gross_mj", "accuracy", "verdict")
TEXTS = ("device", "model", "precision", "verdict")


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: processor time, the most resident memory, and what it printed, in bytes."""

    cpu_s: float
    memory_mb: float
    printed: int


def ask(command: list[str]) -> Asked:
    """Run a command in a process of its own.

    Raises:
        RuntimeError: it fails.
    """
    reading, writing = os.pipe()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)])
    os.close(writing)
    with os.fdopen(reading, "rb") as out:
        printed = sum(map(len, out))
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{command} ended with {status}")
    answer = Asked(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, printed)
    print(f"{answer.cpu_s:7.2f} s {answer.memory_mb:4.0f} MB: {' '.join(command[1:])[-100:]}", file=sys.stderr, flush=True)
    return answer


def write_figures(path: Path) -> None:
    """Write the figures of every run of the ledger as CSV to standard output."""
    history = LedgerHistory(path)
    out = csv.writer(sys.stdout)
    out.writerow(COLUMNS)
    for key in history.series():
        for run, _ in history.points(key):
            name = key.device, key.model, key.precision
            out.writerow([*name, run.started_at_ns, run.p50_ms, run.energy_mj, run.accuracy, run.verdict])
    history.close()


def print_page(path: Path, address: str) -> None:
    """Bring the index up to date and print a view of the page as the server makes it."""
    # The memory of the process that asks counts for those that it starts.
    from edgemeter.collector.index.run_index import open_index  # noqa: PLC0415
    from edgemeter.collector.index.sources import LedgerSource  # noqa: PLC0415
    from edgemeter.collector.web.events import TrendEvents  # noqa: PLC0415
    from edgemeter.collector.web.server import PageServer  # noqa: PLC0415
    from edgemeter.collector.web.view import read_address  # noqa: PLC0415

    index = open_index(LedgerSource(path))
    index.refresh()
    sys.stdout.buffer.write(PageServer(index, TrendEvents(index.source)).answer(read_address(address), "").body)


def scans(path: Path) -> dict[str, list[str]]:
    """Write the figures as a plain table and as Parquet beside the ledger; return the commands that scan them."""
    plain, text, parquet = (path.with_suffix(suffix) for suffix in (".plain", ".csv", ".parquet"))
    for file_path in (plain, text, parquet):
        file_path.unlink(missing_ok=True)
    # In a process of its own: the memory of this one counts for those that it starts.
    with text.open("w") as file:
        subprocess.run([sys.executable, "-m", "tests.benchmarks.ledger_size", "--figures", str(path)], stdout=file, check=True)
    names = ", ".join(f"{name} {'TEXT' if name in TEXTS else 'REAL'}" for name in COLUMNS)
    with sqlite3.connect(plain) as connection, text.open(newline="") as file:
        connection.execute(f"CREATE TABLE runs ({names})")
        rows = csv.reader(file)
        next(rows)
        connection.executemany(f"INSERT INTO runs VALUES ({', '.join('?' * len(COLUMNS))})", rows)  # noqa: S608 - question marks
    commands = {"SQLite": [sys.executable, "-c", IN_SQLITE, str(plain), SCAN.format("runs")]}
    if find_spec("duckdb") is None:
        return commands
    ask([sys.executable, "-c", IN_DUCKDB, f"COPY (FROM read_csv('{text}')) TO '{parquet}' (FORMAT parquet)"])
    return commands | {"DuckDB": [sys.executable, "-c", IN_DUCKDB, SCAN.format(f"'{parquet}'")]}


def main(arguments: list[str]) -> int:
    """Write a ledger where there is none, ask, and print what it costs."""
    if arguments[0] == "--figures":
        write_figures(Path(arguments[1]))
        return 0
    if arguments[0] == "--page":
        print_page(Path(arguments[1]), arguments[2])
        return 0
    path, fleet = Path(arguments[0]), Fleet(*(int(size) for size in arguments[1:]))
    if not path.exists():
        began = time.monotonic()
        write_ledger(path, fleet)
        print(f"{fleet.runs:,} runs in {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e6:.0f} MB", flush=True)
    words = {name: [word.format(path=path) for word in command] for name, command in QUESTIONS.items()}
    print("| question | from nothing, s | kept, s | memory, MB | printed, kB | +10 devices, s |\n|---|---|---|---|---|---|", flush=True)
    first = {name: ask(command) for name, command in words.items()}
    cached = {name: ask(command) for name, command in words.items()}
    of_peers = {name: ask(command) for name, command in scans(path).items()}
    write_ledger(path, Fleet(10, 1, fleet.cases, seed=2), first_day=fleet.days)
    later = {name: ask(command) for name, command in words.items()}
    for name, answer in cached.items():
        costs = f"{first[name].cpu_s:.1f} | {answer.cpu_s:.2f} | {answer.memory_mb:.0f} | {answer.printed / 1e3:.0f}"
        print(f"| {name} | {costs} | {later[name].cpu_s:.2f} |")
    for name, scan in of_peers.items():
        ratios = ", ".join(f"{question} {answer.cpu_s / scan.cpu_s:.2f}" for question, answer in cached.items())
        print(f"{name} scans all in {scan.cpu_s:.2f} s with {scan.memory_mb:.0f} MB; as ratios: {ratios}")
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
