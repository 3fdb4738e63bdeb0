"""The keeper makes a digest by itself, and never outlives who started it."""

import subprocess
import sys

from edgemeter.collector.digest import digest_file, keeper
from tests.fixtures.fleet_ledger import Fleet, write_ledger
from tests.fixtures.mqtt_peer import wait_until

QUICK = "from pathlib import Path; from edgemeter.collector.digest import keeper; keeper.FIRST_LOOK_S = 0.01; keeper.main(Path({!r}))"


def test_a_large_ledger_gets_its_digest_without_being_asked(tmp_path):
    """And the keeper ends when its standard input does."""
    path = tmp_path / "ledger.sqlite"
    write_ledger(path, Fleet(devices=10, days=50, cases=5))
    process = subprocess.Popen([sys.executable, "-c", QUICK.format(str(path))], stdin=subprocess.PIPE)
    try:
        assert wait_until(lambda: digest_file.path_of(path).exists(), 60)
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_the_keeper_ends_with_the_block(tmp_path, monkeypatch):
    """No process stays behind, whatever it is doing, and a ledger that is not there yet is no trouble."""
    started = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: started.append(real(*arguments, **options)) or started[-1])
    with keeper.running(tmp_path / "none.sqlite"):
        assert started[0].poll() is None
    assert started[0].poll() is not None
