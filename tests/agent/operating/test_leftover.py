"""Every command that measures, the daemon and the doctor first put back what a killed process left, and say so in one line."""

import pytest

from edgemeter.agent.base import durable_file
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.operating.restoring import RECORD, record_now
from tests.fixtures.command import edgemeter
from tests.fixtures.machine_trees import write
from tests.fixtures.replay_case import write_replay
from tests.fixtures.settable_board import SettableBoard

GOVERNOR = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
LINE = "the board was put back as it was before a run that was cut off"


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Return this machine as a Jetson whose governor a killed process has left changed."""
    jetson = SettableBoard(tmp_path)
    for name in ("PATH", "EDGEMETER_HOME"):
        monkeypatch.setenv(name, jetson.environment[name])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    root = THIS_MACHINE.root
    object.__setattr__(THIS_MACHINE, "root", jetson.root)
    durable_file.write_struct(jetson.home / RECORD, record_now(jetson.machine))
    write(jetson.root, {GOVERNOR: "performance\n"})
    yield jetson
    object.__setattr__(THIS_MACHINE, "root", root)


@pytest.mark.services
@pytest.mark.parametrize("command", ["run A --mode rapid --no-save", "doctor", "agent up"])
def test_the_board_is_put_back_before_anything_else(board, tmp_path, caplog, command):
    """The settings are as they were, the record is gone, and the line is there once."""
    command = command.replace("A", str(write_replay(tmp_path, "a", latencies_ms=[1.0])))
    ended = edgemeter(*command.split())
    assert (ended.stderr + caplog.text).count(LINE) == 1, ended.stderr
    assert (board.root / GOVERNOR).read_text() == "schedutil\n"
    assert not (board.home / RECORD).exists()
