"""The keeper makes the index and the trends by itself, and never outlives who started it."""

import contextlib
import sqlite3
import subprocess
import sys

import pytest

from edgemeter.collector.index import index_file, keeper
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.mqtt_peer import wait_until

QUICK = "from pathlib import Path; from edgemeter.collector.index import keeper; keeper.FIRST_REFRESH_S = 0.01; keeper.main(Path({!r}))"


def kept_trends(path):
    """Return how many results of trends the index of a ledger holds."""
    if not index_file.index_path(path).exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{index_file.index_path(path)}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'found'").fetchone():
            return 0
        return connection.execute("SELECT count(*) FROM found").fetchone()[0]


@pytest.mark.slow
def test_a_large_ledger_gets_its_index_without_being_asked(path):
    """And the keeper ends when its standard input does."""
    write_ledger(path, Fleet(devices=10, days=50, cases=5))
    process = subprocess.Popen([sys.executable, "-c", QUICK.format(str(path))], stdin=subprocess.PIPE)
    try:
        assert wait_until(lambda: kept_trends(path), 60)
        process.stdin.close()
        assert process.wait(300) == 0
    finally:
        process.kill()
        process.wait()


def test_the_keeper_ends_with_the_block(tmp_path, monkeypatch):
    """No process stays behind, whatever it is doing, and a ledger that is not there yet is no trouble."""
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: started.append(real(*arguments, **options)) or started[-1])
    with keeper.index_keeper(tmp_path / "none.sqlite"):
        assert started[0].poll() is None
    assert started[0].poll() is not None
