"""Settings that a killed process left changed are put back by the next start, and only then."""

import json
import os
import shutil
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.operating.changed_board import changed_board, restore_leftover
from tests.fixtures.command import edgemeter
from tests.fixtures.machine_trees import write
from tests.fixtures.replay_case import write_replay
from tests.fixtures.settable_board import SettableBoard

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
GOVERNOR = f"{POLICY}/scaling_governor"
GOVERNORS = [OperatingPoint(governor="performance")]
RESTORED = "restored the board's settings after a run that was cut off"


def restore(board, caplog, **options):
    why = restore_leftover(board.home, board.machine, **options)
    assert "\n" not in why
    printed = "".join(f"{line}\n" for line in caplog.messages)
    caplog.clear()
    return why, printed


def test_the_next_start_puts_back_what_was_left(board, caplog):
    """It says so in one line, once."""
    before = board.settings()
    board.leave_changed()
    assert board.settings() != before
    assert restore(board, caplog) == ("", f"{RESTORED}: power_mode 1, scaling_governor schedutil\n")
    assert (board.settings(), board.record.exists()) == (before, False)
    assert restore(board, caplog) == ("", "")


def test_the_next_that_changes_the_board_puts_it_back_first(board, caplog):
    """What it finds is the board as it was."""
    before = board.settings()
    board.leave_changed()
    with changed_board(board.home, GOVERNORS, board.machine) as changed:
        assert board.settings() == before
        changed.set(OperatingPoint(governor="powersave"))
    assert board.settings() == before
    assert RESTORED in "".join(f"{line}\n" for line in caplog.messages)


def test_after_a_reboot_only_the_power_mode_is_put_back(board, tmp_path, caplog):
    """Governor and clocks are the kernel's own then.

    Root's record is found from every home, and is removed afterwards.
    """
    board.leave_changed()
    shutil.rmtree(board.root / "run/lock")
    (board.root / "run/lock").mkdir()
    board.reboot()
    assert restore_leftover(tmp_path / "other", board.machine) == ""
    assert "".join(f"{line}\n" for line in caplog.messages).endswith(": power_mode 1\n")
    settings = board.settings()
    assert (settings["var/lib/nvpmodel/status"], settings[f"{POLICY}/scaling_min_freq"]) == (
        "pmode:0001",
        "729600",
    )
    assert not board.record.exists()


def test_after_a_reboot_a_record_of_governors_is_dropped(board, caplog):
    """The values that it holds are gone; whoever has set a governor since keeps it."""
    with changed_board(board.home, GOVERNORS, board.machine) as changed:
        changed.set(*GOVERNORS)
        content = board.record.read_bytes()
    board.record.write_bytes(content)
    board.reboot()
    write(board.root, {GOVERNOR: "ondemand\n"})
    assert restore(board, caplog) == ("", "")
    assert (board.record.exists(), board.settings()[GOVERNOR]) == (False, "ondemand")


def test_while_another_run_is_in_progress_nothing_is_put_back(board, caplog):
    """It would be disturbed, or is the one that has changed the board: it is named."""
    board.leave_changed()
    lock, now = RunLock(board.home), board.settings()
    assert lock.take("edgemeter run")
    assert f"edgemeter run (pid {os.getpid()}, since " in restore(board, caplog)[0]
    assert board.settings() == now
    assert restore(board, caplog, holds_run_lock=True)[0] == ""
    lock.release()


def test_what_cannot_be_put_back_is_named_with_the_reason_and_stays(board, caplog):
    """The rest is put back, and the next start tries again."""
    before = board.settings()
    board.leave_changed()
    board.fault("killed")
    remaining, printed = restore(board, caplog)
    assert "not restored (nvpmodel does not set power mode 1 (status -9: " in remaining
    assert "doctor` restores them" in remaining
    assert (printed, board.settings()[GOVERNOR]) == ("", "schedutil")
    with (
        pytest.raises(UnavailableError, match="were not restored"),
        changed_board(board.home, GOVERNORS, board.machine),
    ):
        pass
    board.fault(None)
    assert restore(board, caplog)[0] == ""
    assert (board.settings(), board.record.exists()) == (before, False)


def test_the_record_of_root_is_named_to_a_user_who_cannot_remove_it(board, caplog, monkeypatch):
    """Nothing is tried, and the remedy is `sudo`."""
    board.leave_changed()
    now, access = board.settings(), os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != board.record.parent and access(path, mode)
    )
    remaining, printed = restore(board, caplog)
    assert (printed, board.settings(), board.record.exists()) == ("", now, True)
    assert str(board.record) in remaining
    assert "sudo -E" in remaining


@pytest.mark.parametrize("content", ["null", "\0" * 300, "{}"])
def test_a_damaged_record_is_one_line_and_nothing_is_written(board, caplog, content):
    """It is named, with what to do; a board that is to be changed is refused."""
    before = board.settings()
    board.record.write_text(content)
    remaining, _ = restore(board, caplog)
    assert f"restore record {str(board.record)!r} is damaged" in remaining
    assert f"check the board's settings, then remove it: `rm {board.record}`" in remaining
    assert board.settings() == before
    with (
        pytest.raises(UnavailableError, match="is damaged"),
        changed_board(board.home, GOVERNORS, board.machine),
    ):
        pass


@pytest.fixture
def left_changed(tmp_path, monkeypatch):
    """Return this machine as a Jetson that a killed process has left changed."""
    jetson = SettableBoard(tmp_path)
    for name in ("PATH", "EDGEMETER_HOME"):
        monkeypatch.setenv(name, jetson.environment[name])
    monkeypatch.setenv("EDGEMETER_RUN_LOCK", str(tmp_path / "run.lock"))
    root = THIS_MACHINE.root
    object.__setattr__(THIS_MACHINE, "root", jetson.root)
    yield jetson
    object.__setattr__(THIS_MACHINE, "root", root)


@pytest.mark.services
@pytest.mark.parametrize(
    "command", ["run A --mode rapid --no-save", "doctor", "agent up", "models list", "config rules"]
)
def test_every_command_puts_the_board_back_first(left_changed, tmp_path, caplog, command):
    """The settings are restored, the record is gone, and the line is printed once."""
    before = left_changed.settings()
    left_changed.leave_changed()
    ended = edgemeter(
        *command.replace("A", str(write_replay(tmp_path, "a", latencies_ms=[1.0]))).split()
    )
    assert (ended.stderr + caplog.text).count(RESTORED) == 1, ended.stderr
    assert (left_changed.settings(), left_changed.record.exists()) == (before, False)


@pytest.mark.services
def test_the_doctor_names_what_is_not_put_back(left_changed):
    """The doctor warns with the reason; a command that does not measure does not mention it."""
    left_changed.leave_changed()
    left_changed.fault("killed")
    assert edgemeter("config", "rules").stderr == ""
    findings = json.loads(edgemeter("doctor", "--format", "json").stdout)["findings"]
    (finding,) = [finding for finding in findings if finding["name"] == "settings"]
    assert finding["state"] == "warn"
    assert "nvpmodel does not set power mode 1" in finding["what"]
    assert Path(left_changed.record).exists()
