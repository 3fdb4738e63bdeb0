"""Settings of a board: checked, set, read back, and put back at the end of the block."""

import json
import os

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.machine.machine import Machine
from edgemeter.agent.operating import board_settings
from edgemeter.agent.operating.board_settings import SettingError
from edgemeter.agent.operating.changed_board import changed_board, check
from tests.fixtures.machine_trees import raspberry_pi_5, write
from tests.fixtures.rows import table_row
from tests.fixtures.settable_board import FrequencyRequests

MODES = [OperatingPoint(power_mode="15W", governor="performance")]
GOVERNORS = [OperatingPoint(governor="performance")]

CPUFREQ = "sys/devices/system/cpu/cpufreq"
GOVERNOR = f"{CPUFREQ}/policy0/scaling_governor"
HIGHEST = f"{CPUFREQ}/policy0/scaling_max_freq"
SLOWED = {
    "sys/class/thermal/cooling_device1/type": "cpufreq-cpu0\n",
    "sys/class/thermal/cooling_device1/cur_state": "2\n",
}


def test_each_setting_is_set_and_put_back(board):
    """Modes are set by name or number, governors by name, and nothing is written twice.

    Nothing is left when the block ends.
    """
    before = board.settings()
    both = OperatingPoint(power_mode="15W", governor="performance")
    with changed_board(board.home, MODES, board.machine) as changed:
        assert not board.record.exists()
        assert changed.set(both) == (both, True)
        assert board.record.exists()
        assert changed.set(both) == (both, False)
        assert board.settings()[GOVERNOR] == "performance"
        assert changed.set(OperatingPoint(power_mode="2")) == (
            OperatingPoint(power_mode="MAXN_SUPER"),
            True,
        )
        assert changed.set(None) == (None, True)
        assert board.settings() == before
        changed.set(OperatingPoint(power_mode="15W"))
    assert (board.settings(), board.record.exists()) == (before, False)


def test_a_mode_brings_its_own_clocks_and_a_point_leaves_the_rest_as_it_was(board):
    """Another mode has its own clocks, and the user's clocks return with the first mode."""
    with changed_board(board.home, MODES, board.machine) as changed:
        changed.set(OperatingPoint(governor="powersave"))
        changed.set(OperatingPoint(power_mode="15W"))
        assert (board.settings()[HIGHEST], board.settings()[GOVERNOR]) == ("1510400", "schedutil")
        changed.set(OperatingPoint(governor="powersave"))
        assert (board.settings()[HIGHEST], board.settings()[GOVERNOR]) == ("1113600", "powersave")


def test_the_record_is_on_the_disk_before_the_first_write(board, monkeypatch):
    """The record holds the settings that were found, and is synchronised to disk."""
    synchronised, records = [], []
    fsync, write_file = os.fsync, board_settings.write
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: (synchronised.append(os.fstat(descriptor).st_ino), fsync(descriptor))[1],
    )

    def write_and_look(path, text):
        records.append(
            (
                json.loads(board.record.read_bytes())["original"][GOVERNOR],
                board.record.stat().st_ino in synchronised,
            )
        )
        write_file(path, text)

    monkeypatch.setattr(board_settings, "write", write_and_look)
    with changed_board(board.home, GOVERNORS, board.machine) as changed:
        changed.set(*GOVERNORS)
    assert set(records) == {("schedutil", True)}


def test_a_setting_that_the_board_does_not_have_is_refused(board, tmp_path):
    """The error is one line that lists the available settings; nothing is changed.

    A Raspberry Pi has no power modes, a virtual machine no governors.
    """
    before, pi, virtual = (
        board.settings(),
        Machine(raspberry_pi_5(tmp_path / "pi")),
        Machine(tmp_path / "none"),
    )
    for machine, point, words in [
        (
            board.machine,
            OperatingPoint(power_mode="30W"),
            "unknown power mode '30W': there are 15W, 25W, MAXN_SUPER, 7W",
        ),
        (
            board.machine,
            OperatingPoint(governor="turbo"),
            "unknown governor 'turbo': there are schedutil, performance",
        ),
        (pi, OperatingPoint(power_mode="15W"), "no nvpmodel.conf"),
        (virtual, OperatingPoint(governor="performance"), "no CPU governors"),
    ]:
        with table_row(words):
            with pytest.raises(UnavailableError) as refusal:
                check([point], machine)
            assert words in str(refusal.value)
            assert "\n" not in str(refusal.value)
    assert (board.settings(), board.record.exists(), board.home.exists()) == (before, False, False)


def test_files_that_may_not_be_written_are_refused_before_the_session(board, monkeypatch):
    """In a container sysfs is read-only for root too.

    The mode that the board is in already needs no right.
    """
    denied = {board.root / GOVERNOR, board.root / "var/lib/nvpmodel/status"}
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path not in denied and access(path, mode))
    check([OperatingPoint(power_mode="25W")], board.machine)
    for point in (OperatingPoint(governor="performance"), OperatingPoint(power_mode="15W")):
        with pytest.raises(UnavailableError, match=r"no right to write .* run it as root"):
            check([point], board.machine)


def test_a_file_that_refuses_is_stated_and_the_record_stays(board, caplog, monkeypatch):
    """The run fails, the others are put back, and what ended the block is raised."""
    before, write_file = board.settings(), board_settings.write

    def refuse(path, text):
        if path == board.root / GOVERNOR:
            raise SettingError(f"cannot write {text!r} to {str(path)!r}: Permission denied")
        write_file(path, text)

    def measure(changed):
        changed.set(OperatingPoint(power_mode="15W", governor="performance"))
        monkeypatch.setattr(board_settings, "write", refuse)
        with pytest.raises(
            UnavailableError, match="not set to governor powersave: cannot write 'schedutil' to "
        ):
            changed.set(OperatingPoint(governor="powersave"))
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        changed_board(board.home, MODES, board.machine) as changed,
    ):
        measure(changed)
    assert (
        f"not restored (cannot write 'schedutil' to '{board.root / GOVERNOR}': Permission denied)"
        in (line := caplog.messages[-1])
    )
    assert "doctor` restores them" in line
    assert board.record.exists()
    assert board.settings() == before | {GOVERNOR: "performance"}


def test_a_mode_that_asks_for_a_reboot_changes_nothing(board):
    """The question that nvpmodel asks is left unanswered, and the block goes on."""
    before = board.settings()
    with changed_board(board.home, MODES, board.machine) as changed:
        with pytest.raises(
            UnavailableError, match="it needs a reboot: `sudo nvpmodel -m 3`, and answer yes"
        ):
            changed.set(OperatingPoint(power_mode="7W"))
        changed.set(OperatingPoint(governor="performance"))
        assert board.settings() == before | {
            name: "performance" for name in before if name.endswith("governor")
        }
    assert (board.settings(), board.record.exists()) == (before, False)


def test_the_kernel_caps_clocks_to_cool_the_chip_so_they_are_not_recorded(board):
    """A capped clock is not the setting; if recorded, it would be restored for ever."""
    write(board.root, SLOWED)
    with (
        pytest.raises(UnavailableError, match="let the board cool"),
        changed_board(board.home, MODES, board.machine),
    ):
        pass
    assert not board.record.exists()


@pytest.mark.parametrize(
    ("fault", "words"), [("half way", "Error writing 0 to "), ("silent", "(status 1: no message)")]
)
def test_a_mode_that_was_entered_half_way_is_left_again(board, fault, words):
    """The old mode is still reported by nvpmodel, although CPUs are off and clocks lower.

    The mode that was found is therefore set again.
    """
    before = board.settings()
    board.fault(fault)
    with changed_board(board.home, MODES, board.machine) as changed:
        with pytest.raises(UnavailableError) as refusal:
            changed.set(OperatingPoint(power_mode="15W"))
        assert words in str(refusal.value)
        board.fault(None)
    assert (board.settings(), board.record.exists()) == (before, False)


def test_what_somebody_else_sets_meanwhile_is_set_again_and_put_back(board):
    """The next run has its own operating point, and the board ends as it was found."""
    before = board.settings()
    point = OperatingPoint(power_mode="15W", governor="performance")
    with changed_board(board.home, MODES, board.machine) as changed:
        changed.set(point)
        write(board.root, {GOVERNOR: "ondemand\n"})
        assert changed.set(point) == (point, True)
        assert board.settings()[GOVERNOR] == "performance"
        board_settings.set_power_mode("2")
        assert changed.set(point) == (point, True)
        assert board.settings()["var/lib/nvpmodel/status"] == "pmode:0000"
        board_settings.set_power_mode("2")
    assert (board.settings(), board.record.exists()) == (before, False)


def test_a_clock_that_is_held_back_at_the_end_is_put_back_all_the_same(board, monkeypatch):
    """The requested clock takes effect once the chip is cool.

    A cap at the clock that was found hides that it is not restored.
    """
    requests = FrequencyRequests(board, monkeypatch)
    before, requested = board.settings(), dict(requests.requested)
    with changed_board(board.home, MODES, board.machine) as changed:
        changed.set(OperatingPoint(power_mode="MAXN_SUPER"))
        requests.heat(1113600)
    assert requests.requested == requested
    requests.heat(None)
    assert (board.settings(), board.record.exists()) == (before, False)


def test_the_clock_of_userspace_is_put_back_within_its_limits(board, monkeypatch):
    """The limits are restored first, because the kernel holds the clock below the highest one."""
    for cpu in (0, 4):
        write(
            board.root / CPUFREQ / f"policy{cpu}",
            {"scaling_governor": "userspace\n", "scaling_setspeed": "1113600\n"},
        )
    requests = FrequencyRequests(board, monkeypatch)
    requested = dict(requests.requested)
    with changed_board(board.home, MODES, board.machine) as changed:
        for mode in ("15W", "MAXN_SUPER"):
            changed.set(OperatingPoint(power_mode=mode, governor="performance"))
        changed.set(OperatingPoint(governor="performance"))
    assert requests.requested == requested
    assert (board.root / CPUFREQ / "policy4/scaling_setspeed").read_text() == "1113600\n"


def test_a_kernel_that_refuses_a_highest_clock_below_the_lowest_gets_it_once_more(
    board, monkeypatch
):
    """Kernels before 5.4 refuse a highest clock that is below the lowest.

    In the mode that is left, the lowest clock was above the highest that was found.
    """
    before, write_file = board.settings(), board_settings.write

    def refuse(path, text):
        if path == board.root / HIGHEST and int(text) < int(
            path.with_name("scaling_min_freq").read_text()
        ):
            raise SettingError("Invalid argument")
        write_file(path, text)

    with changed_board(board.home, MODES, board.machine) as changed:
        changed.set(*MODES)
        write(board.root / CPUFREQ / "policy0", {"scaling_min_freq": "1510400\n"})
        monkeypatch.setattr(board_settings, "write", refuse)
    assert (board.settings(), board.record.exists()) == (before, False)


def test_a_sweep_of_governors_writes_nothing_else(board):
    """It writes neither clocks nor the power mode, which somebody may set meanwhile."""
    before = board.settings()
    with changed_board(board.home, GOVERNORS, board.machine) as changed:
        changed.set(*GOVERNORS)
        board_settings.set_power_mode("2")
    assert (board.settings()["var/lib/nvpmodel/status"], board.settings()[HIGHEST]) == (
        "pmode:0002",
        "1728000",
    )
    assert (board.settings()[GOVERNOR], board.record.exists()) == (before[GOVERNOR], False)


def test_a_board_whose_mode_is_not_reported_is_not_changed(board):
    """A mode that is not reported could not be restored."""
    (board.root / "var/lib/nvpmodel/status").write_text("pmode:0009")
    board.program.unlink()
    with (
        pytest.raises(UnavailableError, match="there is no 'nvpmodel' here"),
        changed_board(board.home, MODES, board.machine),
    ):
        pass
    assert not board.record.exists()
