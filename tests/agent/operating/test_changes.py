"""Settings of a board: checked, set, read back, and put back at the end of the block."""

import json
import os

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.file_lock import RunLock
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.operating import changes
from tests.fixtures.machine_trees import raspberry_pi_5, write
from tests.fixtures.rows import table_row

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
GPU = "sys/class/devfreq/17000000.gpu"


def test_each_setting_is_set_and_put_back(board):
    """The mode by name or number, the rest by value; nothing of it is left when the block ends."""
    before = board.settings()
    with changes.changed_board(board.home, board.machine) as changed:
        record = json.loads(board.record.read_bytes())
        assert record["settings"]["power_mode"] == {"nvpmodel": "1"}
        assert changed.set(OperatingPoint(power_mode="15W", governor="performance")) == OperatingPoint(
            power_mode="15W", governor="performance"
        )
        assert board.settings()[f"{POLICY}/scaling_governor"] == "performance"
        assert changed.set(OperatingPoint(power_mode="2")) == OperatingPoint(power_mode="MAXN_SUPER")
        assert changed.set(None) == OperatingPoint()
        assert board.settings() == before
        changed.set(OperatingPoint(power_mode="15W"))
    assert board.settings() == before
    assert not board.record.exists()


def test_a_mode_brings_its_own_clocks_and_a_point_leaves_the_rest_as_it_was(board):
    """In another mode the clocks are that mode's, not those that the user had set in the first, which come back with it."""
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="powersave"))
        changed.set(OperatingPoint(power_mode="15W"))
        assert board.settings()[f"{POLICY}/scaling_max_freq"] == "1510400"
        assert board.settings()[f"{POLICY}/scaling_governor"] == "schedutil"
        changed.set(OperatingPoint(governor="powersave"))
        assert board.settings()[f"{POLICY}/scaling_max_freq"] == "1113600"


def test_a_value_that_the_board_has_not_is_refused_with_those_it_has(board):
    """In one line, before anything is changed, and without a record."""
    for point, kind, words in [
        (OperatingPoint(power_mode="30W"), ConfigError, "unknown power mode '30W': there are 15W, 25W, MAXN_SUPER, 7W"),
        (OperatingPoint(power_mode="7W"), UnavailableError, "needs a reboot from '25W'"),
        (OperatingPoint(governor="turbo"), ConfigError, "unknown governor 'turbo': there are schedutil, performance"),
    ]:
        with table_row(words):
            before = board.settings()
            with pytest.raises(kind) as refusal:
                changes.check([OperatingPoint(power_mode="15W"), point], board.machine)
            assert words in str(refusal.value)
            assert "\n" not in str(refusal.value)
            assert (board.settings(), board.home.exists()) == (before, False)


def test_a_setting_that_the_board_has_not_is_unavailable(tmp_path, monkeypatch):
    """A Raspberry Pi has no power modes."""
    monkeypatch.setattr("edgemeter.agent.operating.board_settings.PATH", "")
    machine = changes.Machine(raspberry_pi_5(tmp_path))
    with pytest.raises(UnavailableError, match="there is no nvpmodel"):
        changes.check([OperatingPoint(power_mode="15W")], machine)


def test_a_mode_that_asks_for_a_reboot_changes_nothing(board):
    """Where the conf does not show it, the question of nvpmodel does; the board is put back and the block goes on."""
    before = board.settings()
    (board.root / "asks").touch()
    with changes.changed_board(board.home, board.machine) as changed:
        with pytest.raises(UnavailableError, match="only at a boot: `sudo nvpmodel -m 0` there, and answer yes"):
            changed.set(OperatingPoint(power_mode="15W", governor="performance"))
        assert board.settings() == before
        changed.set(OperatingPoint(governor="performance"))
    assert board.settings() == before


def test_the_kernel_caps_clocks_to_cool_the_chip_so_they_are_not_recorded(board):
    """What it reports then is not what was set, and would be put back for ever."""
    write(board.root, {"sys/class/thermal/cooling_device1/type": "cpufreq-cpu0\n", "sys/class/thermal/cooling_device1/cur_state": "2\n"})
    with pytest.raises(UnavailableError, match="let the board cool"), changes.changed_board(board.home, board.machine):
        pass
    assert not board.record.exists()


def test_two_processes_do_not_change_one_board(board):
    """The second is refused, and finds nothing left over: the first is alive."""
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="performance"))
        with (
            pytest.raises(UnavailableError, match=rf"changed already, by edgemeter \(pid {os.getpid()}"),
            changes.changed_board(board.home, board.machine),
        ):
            pass
        lock = RunLock(board.home)
        assert lock.take("edgemeter run")
        assert changes.restore_leftover(board.home, board.machine) is None
        lock.release()
        assert board.settings()[f"{POLICY}/scaling_governor"] == "performance"


def test_the_next_start_puts_back_what_was_left(board):
    """And states it in one line; a board that is to be changed is refused until then."""
    before = board.settings()
    board.leave_changed()
    assert board.settings() != before
    with (
        pytest.raises(UnavailableError, match="doctor` puts them back"),
        changes.changed_board(board.home, board.machine),
    ):
        pass
    line = changes.restore_leftover(board.home, board.machine)
    assert line.startswith(f"the board was put back as it was before a run that was cut off (pid {os.getpid()}, since 20")
    assert line.endswith("power mode 1, governor schedutil, clocks")
    assert board.settings() == before
    assert changes.restore_leftover(board.home, board.machine) is None


def test_after_a_reboot_only_the_power_mode_is_put_back(board):
    """Governor and clocks are the kernel's own then; the old values are not written."""
    board.leave_changed()
    board.reboot()
    assert "power mode 1" in changes.restore_leftover(board.home, board.machine)
    settings = board.settings()
    assert settings["var/lib/nvpmodel/status"] == "pmode:0001"
    assert settings[f"{POLICY}/scaling_min_freq"] == "729600"
    assert not board.record.exists()


def test_while_another_run_is_in_progress_nothing_is_put_back(board):
    """It would be disturbed; the next start does it."""
    board.leave_changed()
    lock, now = RunLock(board.home), board.settings()
    assert lock.take("edgemeter run")
    assert changes.restore_leftover(board.home, board.machine) is None
    assert board.settings() == now
    assert "as it was" in changes.restore_leftover(board.home, board.machine, holds_run_lock=True)
    lock.release()


@pytest.mark.parametrize("error", [None, ZeroDivisionError("in the block")])
def test_rights_that_are_lost_within_the_block_are_stated_at_its_end(board, error):
    """The record stays, the other settings are put back, and what ended the block is raised, not this."""
    before = board.settings()
    governor = board.root / POLICY / "scaling_governor"

    def measure(changed):
        changed.set(OperatingPoint(power_mode="15W", governor="performance"))
        governor.unlink()
        governor.symlink_to("/proc/version")
        if error is not None:
            raise error

    kind, words = (UnavailableError, "doctor` puts them back") if error is None else (ZeroDivisionError, "in the block")
    with pytest.raises(kind, match=words), changes.changed_board(board.home, board.machine) as changed:
        measure(changed)
    governor.unlink()
    governor.write_text("performance\n")
    assert board.settings()[f"{GPU}/max_freq"] == before[f"{GPU}/max_freq"]
    assert "as it was" in changes.restore_leftover(board.home, board.machine)
    assert board.settings() == before


def test_a_damaged_record_is_one_line_and_nothing_is_written(board):
    """It is named, with what to do; a board that is to be changed is refused."""
    for content in ["null", "\0" * 300]:
        with table_row(content):
            before = board.settings()
            board.record.write_text(content)
            line = changes.restore_leftover(board.home, board.machine)
            assert "is damaged" in line
            assert f"nothing was written: check the board's settings, then remove it: `rm {board.record}`" in line
            assert "\n" not in line
            assert board.settings() == before
            with pytest.raises(ConfigError, match="is damaged"), changes.changed_board(board.home, board.machine):
                pass


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("board", "0123456789abcdef", "is of another board"),
        ("settings", {"fan": {"x": "1"}}, "names 'fan', which is no setting of a board"),
        ("settings", {"governor": {f"{POLICY}/../../../../../../scaling_governor": "x"}}, "is no setting of a board"),
        ("settings", {"cpu_clocks": {f"{POLICY}/scaling_max_freq": "1\n2"}}, "is no setting of a board"),
        ("settings", {"power_mode": {"nvpmodel": "-f /tmp/x"}}, "is no power mode"),
    ],
)
def test_a_foreign_record_writes_nothing(board, monkeypatch, key, value, words):
    """Of another board, or of files that are none of a board's settings: root puts back what a user's folder holds."""
    monkeypatch.setattr("edgemeter.agent.machine.board.SERIAL_PLACES", ("etc/machine-id",))
    write(board.root, {"etc/machine-id": "f" * 32, "etc/passwd": "root:x:0:0"})
    board.leave_changed()
    path = board.record
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"board": None, key: value}))
    now = board.settings()
    line = changes.restore_leftover(board.home, board.machine)
    assert words in line
    assert "\n" not in line
    assert (board.settings(), (board.root / "etc/passwd").read_text()) == (now, "root:x:0:0")
