from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.pi5_pmic import RAILS, Pi5Pmic
from tests.fixtures.machine_trees import raspberry_pi_5, write
from tests.fixtures.rows import table_row

SWEEP = (
    Path(__file__).resolve().parents[2] / "fixtures/power/pi5_pmic/pmic_read_adc.txt"
).read_text()
OLD_BOARD = 'error=1 error_msg="Command not registered"\n'


def _sensor(stdout, stderr="", status=0, root="/nowhere"):
    return Pi5Pmic(
        Path(root),
        lambda command: CompletedProcess(command, status, stdout.encode(), stderr.encode()),
    )


def test_the_sum_is_of_twelve_products_paired_by_name():
    """The sum equals the fixture's products, computed by hand: 3.701 x 0.081 and so on.

    The numbers in brackets pair nothing.
    """
    by_hand_w = (
        0.081 * 3.701 + 0.0712 * 3.312 + 0.1604 * 1.7995 + 0.0117 * 1.1015
        + 0 * 0.6055 + 0.1981 * 1.1035 + 0.3101 * 0.8005 + 1.5625 * 0.7562
        + 0.0003 * 3.3081 + 0.0006 * 3.3095 + 0.0039 * 0.7985 + 0.0147 * 5.0914
    )  # fmt: skip
    reading = _sensor(SWEEP).read()
    assert reading.power_w == pytest.approx(by_hand_w, rel=1e-9)
    assert {rail.name for rail in reading.rails} == set(RAILS)
    description = _sensor(SWEEP).describe()
    assert (description.scope, {"NVMe drives", "USB devices"} <= set(description.excludes)) == (
        "soc-rails",
        True,
    )


def test_early_firmware_calls_a_rail_by_another_name():
    """0V8_SYS of early firmware counts as 0V8_SW."""
    early = SWEEP.replace("0V8_SW_", "0V8_SYS_")
    assert _sensor(early).read().power_w == pytest.approx(_sensor(SWEEP).read().power_w)


def test_a_sweep_cut_anywhere_in_its_rails_is_refused():
    """A number that is cut may still look like one; `describe` refuses the sensor for good."""
    for length in range(40, len(SWEEP) - 90, 37):
        with table_row(length):
            with pytest.raises(TransientError):
                _sensor(SWEEP[:length]).read()
            with pytest.raises(UnavailableError):
                _sensor(SWEEP[:length]).describe()


def test_a_garbled_line_is_refused():
    """A wrong letter, unit or quantity, an empty line and a repeated rail are refused."""
    for was, becomes in [
        ("1.56250000A", "1.5625x000A"),
        ("1.56250000A", "1.56250000V"),
        ("1.56250000A", ""),
        ("VDD_CORE_A current(7)", "VDD_CORE_A volt(7)"),
        ("3V3_SYS_A current", "1V8_SYS_A current"),
    ]:
        assert was in SWEEP, f"{was!r}, {becomes!r}"
        with table_row(was, becomes), pytest.raises(TransientError):
            _sensor(SWEEP.replace(was, becomes, 1)).read()


def test_an_unknown_rail_is_counted_and_reported():
    """Newer firmware adds a rail with both values, and one with a voltage only."""
    newer = SWEEP + (
        "  NEW_RAIL_A current(30)=0.50000000A\n  NEW_RAIL_V volt(31)=2.00000000V\n   EXT9V_V "
        "volt(32)=9.00000000V\n"
    )
    sensor = _sensor(newer)
    assert sensor.read().power_w == pytest.approx(_sensor(SWEEP).read().power_w + 1.0)
    (warning,) = sensor.describe().warnings
    assert "NEW_RAIL, EXT9V; counted: NEW_RAIL" in warning


def test_a_low_input_is_reported():
    """The firmware itself warns below 4.63 V."""
    (warning,) = _sensor(SWEEP.replace("5.09120000", "4.60120000")).describe().warnings
    assert "4.60 V" in warning


def test_an_older_board_refuses_on_stdout_whatever_its_status(tmp_path):
    """On a Pi 4 there is no such sensor, and on a Pi 5 the firmware is too old.

    The first is no fault; on other boards the reason is unknown.
    """
    write(tmp_path, {"proc/device-tree/model": b"Raspberry Pi 4 Model B Rev 1.4\0"})
    for status in (0, 255):
        with pytest.raises(AbsentError, match="no power sensor"):
            _sensor(OLD_BOARD, status=status, root=tmp_path).describe()
    for root in (raspberry_pi_5(tmp_path), "/nowhere"):
        with pytest.raises(UnavailableError, match="rpi-eeprom-update") as refusal:
            _sensor(OLD_BOARD, root=root).describe()
        assert not isinstance(refusal.value, AbsentError)


def test_what_is_no_sweep_is_an_error_that_names_the_remedy():
    """A missing group or command, another command's output and no output are tested."""
    for stdout, stderr, match in [
        ("VCHI initialization failed\n", "", "usermod -aG video"),
        ("", "VCHI initialization failed\n", "usermod -aG video"),
        ("throttled=0x50005\n", "", "no rail"),
        ("", "", "no rail"),
        ('error=2 error_msg="Invalid arguments"\n', "", "Invalid arguments"),
    ]:
        with table_row(stdout, stderr), pytest.raises(UnavailableError, match=match) as refusal:
            _sensor(stdout, stderr).describe()
        assert "\n" not in str(refusal.value), f"{stdout!r}, {stderr!r}"


@pytest.mark.captures
@pytest.mark.parametrize(
    ("file", "power_w"),
    [("pmic_read_adc_edu_idle", 2.2822), ("pmic_read_adc_jfikar_load_10A_core", 10.7999)],
)
def test_captured_sweeps_give_the_known_sums(captures, file, power_w):
    """Others have published the sums of the same lines."""
    assert round(_sensor((captures / f"pi/{file}.txt").read_text()).read().power_w, 4) == power_w


def test_a_command_that_does_not_start_is_an_error_of_ours():
    """A missing command is absent, and one that may not be started is unavailable.

    One that takes too long is a failed reading.
    """
    for error, raised in [
        (FileNotFoundError(), AbsentError),
        (PermissionError(13, "Permission denied"), UnavailableError),
        (TimeoutExpired("x", 5), TransientError),
    ]:  # fmt: skip

        def run(_, error=error):
            raise error

        with pytest.raises(raised):
            Pi5Pmic(run=run).read()
