"""Facts about `edgemeter.agent.power.calibration` and the file of a calibration."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.power import Rail, Reading, calibration
from edgemeter.agent.power.calibration import CalibratedSensor
from tests.fixtures.power_traces import PlayedSensor, make_calibration, make_description
from tests.fixtures.rows import table_row


def test_readings_are_corrected_and_rails_are_not():
    """The line was fitted to the total."""
    sensor = CalibratedSensor(PlayedSensor(Reading(5, power_w=2.0, rails=(Rail("VDD", 2.0),))), make_calibration())
    assert sensor.read() == Reading(5, power_w=pytest.approx(2.7), rails=(Rail("VDD", 2.0),))


def test_a_counter_that_shows_its_power_is_corrected_in_both():
    """A Joulescope gives both: 2 W and 20 J more after 10 s become 0.5 + 1.1 x 2 W and 5 + 1.1 x 20 J."""
    readings = [Reading(7, energy_mj=0.0, power_w=2.0), Reading(7 + 10_000_000_000, energy_mj=20_000.0, power_w=2.0)]
    sensor = CalibratedSensor(PlayedSensor(*readings, kind="energy"), make_calibration())
    first, second = sensor.read(), sensor.read()
    assert second.energy_mj - first.energy_mj == pytest.approx(27_000.0)
    assert second.power_w == pytest.approx(2.7)


def test_a_counter_is_corrected_over_time():
    """Its gain acts on the energy, its offset on the time since the first reading: over 10 s at 2 W, 0.5 x 10 + 1.1 x 20 J."""
    readings = [Reading(7, energy_mj=1000.0), Reading(7 + 10_000_000_000, energy_mj=21_000.0)]
    sensor = CalibratedSensor(PlayedSensor(*readings, kind="energy", resolution_w=None, resolution_mj=1.0), make_calibration())
    assert -sensor.read().energy_mj + sensor.read().energy_mj == pytest.approx(27_000.0)
    assert sensor.describe().resolution_mj == pytest.approx(1.1)


def test_the_gain_is_known_afterwards_and_the_scope_is_the_same():
    """What was unknown is now what the calibration says, and where it holds."""
    description = CalibratedSensor(PlayedSensor(gain_u_ratio=None, resolution_w=0.1), make_calibration()).describe()
    assert (description.gain_u_ratio, description.offset_u_w, description.resolution_w) == (0.01, 0.02, pytest.approx(0.11))
    assert description.id == "bench"
    assert description.scope == "board-input"
    assert description.is_modelled is False
    assert description.valid_w == (2.0, 8.0)


def test_a_promotion_is_a_model_with_a_name():
    """It has another identity and scope, and says what it was made from."""
    promoted = make_calibration(kind="promotion", name="desk", scope="wall-ac", excludes=("network switch",))
    description = CalibratedSensor(PlayedSensor(scope="soc-rails"), promoted).describe()
    assert description.id == "bench+desk"
    assert description.scope == "wall-ac"
    assert description.excludes == ("network switch",)
    assert description.is_modelled is True
    assert "wall-ac is modelled from soc-rails by 'desk' (6 load steps against joulescope)" in description.warnings


def test_closing_closes_the_sensor():
    """Its owner knows only the corrected one."""
    plain = PlayedSensor()
    CalibratedSensor(plain, make_calibration()).close()
    assert plain.closed == 1


def test_a_calibration_is_found_by_board_and_sensor_only(tmp_path):
    """Another board's, another sensor's and a promotion's are not taken for it."""
    calibration.save_calibration(make_calibration(), tmp_path)
    calibration.save_calibration(make_calibration(kind="promotion", name="desk", scope="wall-ac"), tmp_path)
    sensor = make_description()
    assert calibration.find_calibration("b", sensor, folder=tmp_path) == make_calibration()
    assert calibration.find_calibration("b", sensor, "desk", tmp_path).scope == "wall-ac"
    assert calibration.find_calibration("c", sensor, folder=tmp_path) is None
    assert calibration.find_calibration("b", make_description(id="other"), folder=tmp_path) is None
    assert calibration.find_calibration("b", sensor, "lab", tmp_path) is None
    assert calibration.find_calibration(None, sensor, folder=tmp_path) is None


def test_a_damaged_calibration_is_an_error_and_never_ignored(tmp_path):
    """A figure that should have been corrected and was not would be wrong."""
    for content in [b"", b"{}", b"garbage", b"\xff\xfe", msgspec.json.encode(make_calibration(gain=2.0))[:-20]]:
        path = calibration.save_calibration(make_calibration(), tmp_path)
        path.write_bytes(content)
        with table_row(content), pytest.raises(ConfigError, match="calibrate again"):
            calibration.find_calibration("b", make_description(), folder=tmp_path)


def test_a_file_of_another_board_under_this_name_is_refused(tmp_path):
    """Copied from one card to another, or edited."""
    path = calibration.save_calibration(make_calibration(), tmp_path)
    path.write_bytes(msgspec.json.encode(make_calibration(board="c")))
    with pytest.raises(ConfigError, match="does not apply here"):
        calibration.find_calibration("b", make_description(), folder=tmp_path)
