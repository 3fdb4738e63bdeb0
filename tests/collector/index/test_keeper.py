"""The keeper makes the index by itself, and never outlives who started it."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.base.threads import ended_by_dead_threads
from edgemeter.collector.index import index_file, keeper
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.mqtt_peer import wait_until

QUICK = "from pathlib import Path; from edgemeter.collector.index import keeper; keeper.FIRST_REFRESH_S = 0.01; keeper.main(Path({!r}))"


def indexed_runs(path):
    """Return how many runs the index of a ledger holds."""
    if not index_file.index_path(path).exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{index_file.index_path(path)}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'measured'").fetchone():
            return 0
        return connection.execute("SELECT count(*) FROM measured").fetchone()[0]


@pytest.mark.services
def test_a_large_ledger_gets_its_index_without_being_asked(path):
    """And the keeper ends when its standard input does."""
    write_ledger(path, Fleet(devices=10, days=50, cases=5))
    process = subprocess.Popen([sys.executable, "-c", QUICK.format(str(path))], stdin=subprocess.PIPE)
    try:
        assert wait_until(lambda: indexed_runs(path), 60)
        process.stdin.close()
        assert process.wait(300) == 0
    finally:
        process.kill()
        process.wait()


def test_a_duty_is_due_after_a_change_and_not_before_its_pause():
    """Nothing for a version of the ledger that was seen; what failed is tried again in the same version; long work has a long pause."""
    now, worked, failing = [100.0], [], [True]

    def work():
        worked.append(now[0])
        now[0] += 2.0
        if failing:
            raise TransientError(failing.pop())

    duty = keeper.Duty(work, 5.0, 10.0, lambda: now[0])
    with pytest.raises(TransientError):
        duty.poll("1")
    for now[0], version in ((121.9, "1"), (122.0, "1"), (200.0, "1"), (200.0, "2")):
        duty.poll(version)
    assert worked == [100.0, 122.0, 200.0]


@pytest.mark.nightly
def test_a_reader_that_reads_nothing_stops_no_keeper():
    """A hundred thousand reports into a pipe that is full: the process goes on, and ends."""
    lines = (
        "import logging",
        "from edgemeter.collector.index import keeper",
        "logging.basicConfig(handlers=[keeper.ReportHandler()])",
        "for _ in range(100_000): logging.warning('the server does not answer ' * 4)",
    )
    flood = "\n".join(lines)
    process = subprocess.Popen([sys.executable, "-c", flood], stdout=subprocess.PIPE)
    try:
        assert process.wait(60) == 0
        assert len(process.stdout.read()) < 2**20
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.services
def test_a_keeper_that_dies_by_itself_ends_the_collector_and_none_stays_behind(tmp_path, monkeypatch):
    """As the kernel ends one that takes too much memory; SIGTERM is how systemd ends all processes of a service."""
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: started.append(real(*arguments, **options)) or started[-1])
    with keeper.index_keeper(tmp_path / "none.sqlite"):
        assert started[-1].poll() is None
    assert started[-1].poll() is not None
    ended = threading.Event()
    with ended_by_dead_threads(ended.set), keeper.index_keeper(tmp_path / "none.sqlite"):
        started[-1].send_signal(signal.SIGTERM)
        started[-1].wait(60)
    assert not ended.is_set()
    with (  # noqa: PT012 - it is raised where the block ends
        pytest.raises(UnavailableError, match=r"the thread 'edgemeter-keeper' died .*ended with status -9"),
        ended_by_dead_threads(ended.set),
        keeper.index_keeper(tmp_path / "none.sqlite"),
    ):
        started[-1].send_signal(signal.SIGKILL)
        assert ended.wait(60)
