"""Facts about `edgemeter.agent.power.stored`: the files of calibrations and self-tests, and the sensors that use them."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_figures import Averaging
from edgemeter.agent.power import Description, PowerSensor, Rail, Reading, stored
from edgemeter.agent.power.stored import (
    CalibratedSensor,
    CheckedSensor,
    MeasuredProperty,
    SelfTest,
    contradictions,
    find_self_test,
    save_self_test,
    self_test_path,
)
from tests.fixtures.power_traces import PlayedSensor, make_calibration, make_description
from tests.fixtures.rows import table_row


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """Give each test a home of its own."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))


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


def test_a_calibration_is_found_by_board_and_sensor_only():
    """Another board's, another sensor's and a promotion's are not taken for it."""
    stored.save_calibration(make_calibration())
    stored.save_calibration(make_calibration(kind="promotion", name="desk", scope="wall-ac"))
    sensor = make_description()
    assert stored.find_calibration("b", sensor) == make_calibration()
    assert stored.find_calibration("b", sensor, "desk").scope == "wall-ac"
    assert stored.find_calibration("c", sensor) is None
    assert stored.find_calibration("b", make_description(id="other")) is None
    assert stored.find_calibration("b", sensor, "lab") is None
    assert stored.find_calibration(None, sensor) is None


def test_a_damaged_calibration_is_an_error_and_never_ignored():
    """A figure that should have been corrected and was not would be wrong."""
    for content in [b"", b"{}", b"garbage", b"\xff\xfe", msgspec.json.encode(make_calibration(gain=2.0))[:-20]]:
        path = stored.save_calibration(make_calibration())
        path.write_bytes(content)
        with table_row(content), pytest.raises(ConfigError, match="calibrate again"):
            stored.find_calibration("b", make_description())


def test_a_file_of_another_board_under_this_name_is_refused():
    """Copied from one card to another, or edited."""
    path = stored.save_calibration(make_calibration())
    path.write_bytes(msgspec.json.encode(make_calibration(board="c")))
    with pytest.raises(ConfigError, match="does not apply here"):
        stored.find_calibration("b", make_description())


UNTOLD = MeasuredProperty(reason="not seen")


def _test(**changes):
    fields = {
        "board": "board",
        "sensor": "meter",
        "made_at": "2026-11-23T05:00:00+00:00",
        "test_s": 60.0,
        "readings": 600,
        "failures": 0,
        "sees_load": True,
        "step": UNTOLD,
        "delay_s": UNTOLD,
        "window_s": MeasuredProperty(value=0.0, low=0.0, high=0.06),
        "lag_s": MeasuredProperty(value=0.5, low=0.45, high=0.55),
        "update_interval_s": MeasuredProperty(value=1.0, low=0.99, high=1.01),
        "seen_ratio": UNTOLD,
        "resolution": MeasuredProperty(value=0.1, low=0.098, high=0.102),
        "reading_interval_s": 0.1,
        "longest_gap_s": 0.2,
    }
    return SelfTest(**fields | changes)


class Meter(PowerSensor):
    """A meter that is described as it is told."""

    def __init__(self, **fields):
        self.description = Description("meter", "board-input", (), "power", 100.0, **fields)

    def describe(self):
        """Return the description."""
        return self.description

    def read(self):
        """Return 5 W."""
        return Reading(0, power_w=5.0)


def test_a_self_test_is_found_again_on_its_board_only():
    """By the sensor's id; what lies there and is of another, or damaged, is an error with what to do."""
    path = save_self_test(_test())
    assert find_self_test("board", "meter") == _test()
    assert find_self_test("other", "meter") is None
    assert find_self_test(None, "meter") is None
    path.rename(self_test_path("other", "meter"))
    with pytest.raises(ConfigError, match="is of sensor 'meter' on board 'board': delete it"):
        find_self_test("other", "meter")
    path.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        find_self_test("board", "meter")


def test_what_the_driver_does_not_state_comes_from_the_self_test_with_its_date():
    """All of it, or only the clock where the rest is described; what nobody knows stays unknown."""
    described = CheckedSensor(Meter(), _test()).describe()
    assert described.averaging == Averaging(
        window_s=0.0, lag_s=0.5, update_interval_s=1.0, sources=dict.fromkeys(("window_s", "lag_s", "update_interval_s"), "self-test")
    )
    assert described.self_tested_at == "2026-11-23T05:00:00+00:00"
    assert (described.resolution_w, described.warnings) == (0.1, ())
    described_by_driver = Averaging(window_s=0.02, lag_s=0.5, sources={"window_s": "published", "lag_s": "driver"})
    completed = CheckedSensor(Meter(averaging=described_by_driver, resolution_w=0.1), _test()).describe()
    assert (completed.averaging.window_s, completed.averaging.update_interval_s) == (0.02, 1.0)
    assert completed.averaging.sources == {**described_by_driver.sources, "update_interval_s": "self-test"}
    assert CheckedSensor(Meter(), _test()).read().power_w == 5.0


def test_a_description_that_the_self_test_contradicts_stays_and_is_doubted():
    """A lag described as 0 s; the warning names both, and a finding of the test stands beside it."""
    meter = Meter(averaging=Averaging(lag_s=0.0), resolution_w=0.1)
    described = CheckedSensor(meter, _test(findings=("readings are missing",))).describe()
    assert described.averaging.lag_s == 0.0
    contradicted = "lag_s is described as 0, and the self-test of 2026-11-23 shows 0.5 (0.45 to 0.55)"
    assert described.warnings == ("readings are missing", contradicted)
    assert contradictions(_test(), meter.description) == (contradicted,)
