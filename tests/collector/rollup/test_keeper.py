"""The keeper makes roll-up and trends by itself, and never outlives who started it."""

import subprocess
import sys

import pytest

from edgemeter.collector.ledgers.place import beside
from edgemeter.collector.rollup import keeper, rollup_file
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.mqtt_peer import wait_until

QUICK = "from pathlib import Path; from edgemeter.collector.rollup import keeper; keeper.FIRST_REFRESH_S = 0.01; keeper.main(Path({!r}))"


@pytest.mark.slow
def test_a_large_ledger_gets_its_rollup_without_being_asked(tmp_path):
    """And the keeper ends when its standard input does."""
    path = tmp_path / "ledger.sqlite"
    write_ledger(path, Fleet(devices=10, days=50, cases=5))
    process = subprocess.Popen([sys.executable, "-c", QUICK.format(str(path))], stdin=subprocess.PIPE)
    try:
        assert wait_until(lambda: rollup_file.rollup_path(path).exists(), 60)
        assert wait_until(lambda: beside(path, ".trend").exists(), 60), "the trends are kept, too"
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
    with keeper.rollup_keeper(tmp_path / "none.sqlite"):
        assert started[0].poll() is None
    assert started[0].poll() is not None
