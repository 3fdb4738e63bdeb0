"""Boards that do not report all of what they are set to: nvpmodel that ends half way, clocks that are held back, CPUs that are off."""

import shutil

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.operating_point import OperatingPoint
from edgemeter.agent.operating import changes
from tests.fixtures.machine_trees import write
from tests.fixtures.settable_board import FrequencyRequests

CPUFREQ = "sys/devices/system/cpu/cpufreq"


@pytest.fixture
def requests(board, monkeypatch):
    """Return the board's clocks as its kernel keeps them."""
    return FrequencyRequests(board, monkeypatch)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("half way", "Error writing 0 to "),
        ("silent", "it ended with status 1"),
    ],
)
def test_a_mode_that_was_entered_half_way_is_left_again(board, fault, words):
    """It reports the mode before, though CPUs are off and clocks lower: the mode that was found is set anew."""
    before = board.settings()
    board.fault(fault)
    with changes.changed_board(board.home, board.machine) as changed:
        with pytest.raises(UnavailableError) as refusal:
            changed.set(OperatingPoint(power_mode="15W"))
        assert words in str(refusal.value)
        assert "reboot" not in str(refusal.value)
        assert "as root" not in str(refusal.value)
        board.fault(None)
    assert board.settings() == before
    assert not board.record.exists()


def test_the_way_back_that_ends_half_way_keeps_the_record(board):
    """The next start goes it once more, though nvpmodel reports the mode that was found."""
    before = board.settings()

    def measure(changed):
        changed.set(OperatingPoint(power_mode="15W"))
        board.fault("killed")

    with (
        pytest.raises(UnavailableError, match="power_mode: nvpmodel does not set power mode '25W': it was ended by signal 9"),
        changes.changed_board(board.home, board.machine) as changed,
    ):
        measure(changed)
    write(board.root, {"var/lib/nvpmodel/status": "pmode:0001"})
    assert board.record.exists()
    board.fault(None)
    write(board.root, {"sys/devices/system/cpu/cpu4/online": "0"})
    assert "put back as it was" in changes.restore_leftover(board.home, board.machine)
    assert board.settings() | {"sys/devices/system/cpu/cpu4/online": "1"} == before
    assert board.settings() == before


def test_a_clock_that_is_held_back_at_the_end_is_put_back_all_the_same(board, requests):
    """What is asked for is as it was once the chip is cool; a cap at the clock that was found hides that it is not."""
    before, requested = board.settings(), dict(requests.requested)
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(power_mode="MAXN_SUPER"))
        requests.heat(1113600)
    assert requests.requested == requested
    requests.heat(None)
    assert board.settings() == before
    assert not board.record.exists()


def test_the_clocks_of_a_mode_are_not_those_that_cool_the_chip(board, monkeypatch):
    """A mode that is entered hot is entered again when its next point is set."""
    highest = f"{CPUFREQ}/policy0/scaling_max_freq"
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(power_mode="15W"))
        hot = {f"sys/class/thermal/cooling_device9/{name}": text for name, text in (("type", "cpufreq-cpu0"), ("cur_state", "2"))}
        write(board.root, hot)
        set_power_mode = changes.board_settings.set_power_mode

        def enter_hot(mode):
            set_power_mode(mode)
            write(board.root, {highest: "960000"})

        with monkeypatch.context() as patch:
            patch.setattr(changes.board_settings, "set_power_mode", enter_hot)
            changed.set(OperatingPoint(power_mode="MAXN_SUPER"))
        # Cool again, the kernel shows what the mode asked for.
        write(board.root, {highest: "1728000", "sys/class/thermal/cooling_device9/cur_state": "0"})
        changed.set(OperatingPoint(power_mode="MAXN_SUPER", governor="performance"))
        assert board.settings()[highest] == "1728000"


def test_the_clock_of_userspace_is_put_back_within_its_limits(board, monkeypatch):
    """After them: the kernel holds it below a highest clock."""
    for cpu in (0, 4):
        write(board.root / CPUFREQ / f"policy{cpu}", {"scaling_governor": "userspace\n", "scaling_setspeed": "1113600\n"})
    requests = FrequencyRequests(board, monkeypatch)
    requested = dict(requests.requested)
    with changes.changed_board(board.home, board.machine) as changed:
        for mode in ("15W", "MAXN_SUPER"):
            changed.set(OperatingPoint(power_mode=mode, governor="performance"))
    assert requests.requested == requested
    assert (board.root / CPUFREQ / "policy4/scaling_setspeed").read_text() == "1113600\n"


def test_a_cpu_that_was_switched_off_meanwhile_keeps_the_record(board):
    """It comes back with the governor of the sweep: it is put back then."""
    before, policy = board.settings(), board.root / CPUFREQ / "policy4"

    def measure(changed):
        changed.set(OperatingPoint(governor="performance"))
        shutil.move(policy, board.root / "off")

    with (
        pytest.raises(UnavailableError, match="policy4/scaling_governor' is gone, and was 'schedutil': switch its CPU on, or reboot"),
        changes.changed_board(board.home, board.machine) as changed,
    ):
        measure(changed)
    assert board.record.exists()
    shutil.move(board.root / "off", policy)
    assert "put back as it was" in changes.restore_leftover(board.home, board.machine)
    assert board.settings() == before


def test_what_was_never_changed_needs_no_right_to_be_put_back(board):
    """A user who may set the governor only sets that."""
    clock = board.root / CPUFREQ / "policy0/scaling_max_freq"
    clock.unlink()
    # Which not even root may write.
    clock.symlink_to("/proc/sys/kernel/cap_last_cap")
    with changes.changed_board(board.home, board.machine) as changed:
        changed.set(OperatingPoint(governor="performance"))
    assert not board.record.exists()
