"""Facts about the sensors `ina3221`, `ina3221x` and `jetson_thor`.

They read the monitors of JetPack 4 to 7, and the input of a Thor.
"""

import math

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.ina3221 import Ina3221
from edgemeter.agent.power.ina3221x import Ina3221x
from edgemeter.agent.power.jetson_thor import JetsonThor
from tests.fixtures.jetson_trees import (
    AGX_ORIN,
    AGX_XAVIER,
    ORIN_NANO,
    THOR,
    device_tree,
    ina3221,
    ina3221x,
)
from tests.fixtures.machine_trees import write

HWMON = "sys/class/hwmon"


def _total_w(root):
    return Ina3221(root).read().power_w


def test_power_is_voltage_times_current_of_the_input_rail(tmp_path):
    """The power is 5.032 V x 1.096 A; units are right, and shunt voltages and sums are ignored."""
    write(tmp_path, ina3221(f"{HWMON}/hwmon4", ORIN_NANO))
    sensor = Ina3221(tmp_path)
    description, reading = sensor.describe(), sensor.read()
    assert reading.power_w == pytest.approx(5.515072)
    assert [(rail.name, rail.power_w) for rail in reading.rails] == [
        ("VDD_IN", pytest.approx(5.515072)),
        ("VDD_CPU_GPU_CV", pytest.approx(1.046656)),
        ("VDD_SOC", pytest.approx(1.53216)),
    ]
    assert description.id == "ina3221:VDD_IN"
    assert description.scope == "module"
    assert description.kind == "power"
    assert description.period_ms == 100.0
    assert description.warnings == ()
    # 40 uV / 5 mOhm x 5.032 V.
    assert description.resolution_w == pytest.approx(0.040256)


def test_agx_orin_is_not_counted_twice(tmp_path):
    """VDDQ_VDD2_1V8AO lies inside VIN_SYS_5V0, and NC channels are not shown."""
    for chip, channels in zip(("hwmon3", "hwmon2"), AGX_ORIN, strict=True):
        write(tmp_path, ina3221(f"{HWMON}/{chip}", channels, shunt_uohm=2000))
    sensor = Ina3221(tmp_path)
    reading = sensor.read()
    assert reading.power_w == pytest.approx(19.896 * 0.140 + 19.896 * 0.040 + 5.032 * 0.780)
    assert {rail.name for rail in reading.rails} == {
        "VDD_GPU_SOC",
        "VDD_CPU_CV",
        "VIN_SYS_5V0",
        "VDDQ_VDD2_1V8AO",
    }
    assert sensor.describe().resolution_w == pytest.approx(
        math.hypot(0.02 * 19.896, 0.02 * 19.896, 0.02 * 5.032)
    )


def test_two_rails_of_the_total_s_name_are_not_guessed_between(tmp_path):
    """A carrier board may have its own monitor with a rail called VDD_IN."""
    write(
        tmp_path,
        ina3221(f"{HWMON}/hwmon4", ORIN_NANO)
        | ina3221(f"{HWMON}/hwmon5", [("VDD_IN", 12000, 900)]),
    )
    with pytest.raises(UnavailableError, match=r"more than once .*hwmon4.*hwmon5"):
        _total_w(tmp_path)


def test_a_current_at_the_end_of_the_chip_s_range_is_no_reading(tmp_path):
    """An Orin Nano's chip shows 32.76 A for that current and any larger one.

    This is 163.8 mV over its shunt of 5 mOhm.
    """
    write(tmp_path, ina3221(f"{HWMON}/hwmon4", ORIN_NANO))
    sensor = Ina3221(tmp_path)
    assert sensor.read().power_w > 0
    current = tmp_path / f"{HWMON}/hwmon4/curr1_input"
    current.write_text("32752\n")
    assert sensor.read().power_w > 160
    current.write_text("32760\n")
    with pytest.raises(TransientError, match="end of its range"):
        sensor.read()


def test_a_slow_chip_is_not_read_faster_than_it_measures(tmp_path):
    """With 64 samples a cycle takes longer than our 100 ms."""
    write(
        tmp_path,
        ina3221(f"{HWMON}/hwmon4", ORIN_NANO) | {f"{HWMON}/hwmon4/update_interval": "422\n"},
    )
    description = Ina3221(tmp_path).describe()
    assert (description.period_ms, description.delay_ms) == (422.0, 422.0)


def test_a_rail_of_the_total_that_is_switched_off_is_an_error(tmp_path):
    """The error says how to switch the rail on; its old value in the file is not used."""
    write(tmp_path, ina3221(f"{HWMON}/hwmon4", ORIN_NANO) | {f"{HWMON}/hwmon4/in1_enable": "0\n"})
    with pytest.raises(
        UnavailableError, match=r"'VDD_IN' is part of the total .*in1_enable.*sudo tee"
    ):
        Ina3221(tmp_path).describe()


def test_a_driver_that_returns_an_error_gives_no_number(tmp_path):
    """EIO makes the sensor unavailable at first, and later fails a reading.

    On a rail outside the total it is a warning. The test gets EIO from the beginning of
    /proc/self/mem.
    """
    write(tmp_path, ina3221(f"{HWMON}/hwmon4", ORIN_NANO))
    sensor = Ina3221(tmp_path)
    sensor.describe()
    for number, is_total in ((3, False), (1, True)):
        path = tmp_path / f"{HWMON}/hwmon4/curr{number}_input"
        path.unlink()
        path.symlink_to("/proc/self/mem")
        if is_total:
            with pytest.raises(TransientError, match=r"curr1_input.*Input/output error"):
                sensor.read()
            with pytest.raises(UnavailableError, match=r"'VDD_IN'.*Input/output error"):
                Ina3221(tmp_path).describe()
        else:
            assert sensor.read().rails[2].power_w is None
            assert "Input/output error" in Ina3221(tmp_path).describe().warnings[0]


def test_a_thor_is_left_to_the_sensor_that_sees_its_input(tmp_path):
    """With an INA238 this sensor is absent; without one the chip has no total."""
    write(tmp_path, ina3221(f"{HWMON}/hwmon4", THOR, 2000))
    with pytest.raises(UnavailableError, match="needs VIN") as refusal:
        _total_w(tmp_path)
    assert not isinstance(refusal.value, AbsentError)
    write(
        tmp_path, {f"{HWMON}/hwmon3/name": "ina238\n", f"{HWMON}/hwmon3/power1_input": "25000000\n"}
    )
    with pytest.raises(AbsentError, match="jetson_thor"):
        _total_w(tmp_path)


@pytest.mark.captures
def test_the_captured_orin_nano_draws_the_power_of_its_input(captures):
    """The input draws 4.984 V x 1.856 A."""
    sensor = Ina3221(captures / "jetson/sysfs_orin_nano_tree_partial")
    assert sensor.describe().scope == "module"
    assert sensor.read().power_w == pytest.approx(9.250304)


DRIVER_IIO = "sys/bus/i2c/drivers/ina3221x"
NANO = (("POM_5V_IN", 5088, 392), ("POM_5V_GPU", 5080, 24), ("POM_5V_CPU", 5080, 112))


def test_the_driver_s_milliwatts_are_the_power(tmp_path):
    """The driver truncates 5088 mV x 392 mA to 1994 mW, and updates every 422 ms at worst."""
    write(tmp_path, ina3221x(f"{DRIVER_IIO}/6-0040/iio:device0", NANO))
    sensor = Ina3221x(tmp_path)
    description, reading = sensor.describe(), sensor.read()
    assert (reading.power_w, [rail.power_w for rail in reading.rails]) == (
        1.994,
        [1.994, 0.121, 0.568],
    )
    assert (description.id, description.scope, description.period_ms) == (
        "ina3221x:POM_5V_IN",
        "module",
        422.0,
    )
    assert description.resolution_w == pytest.approx(0.008 * 5.088)


def test_agx_xavier_adds_up_both_its_chips_once(tmp_path):
    """The driver, the bus and IIO list the same devices."""
    for base in (DRIVER_IIO, "sys/bus/i2c/devices"):
        for number, channels in enumerate(AGX_XAVIER):
            write(tmp_path, ina3221x(f"{base}/1-004{number}/iio:device{number}", channels))
    write(tmp_path, ina3221x("sys/bus/iio/devices/iio:device1", AGX_XAVIER[1]))
    write(tmp_path, {"sys/bus/iio/devices/iio:device2/name": "adc\n"})
    reading = Ina3221x(tmp_path).read()
    assert reading.power_w == pytest.approx((465 + 465 + 1240 + 0 + 310 + 2754) / 1000)
    assert len(reading.rails) == 6


INPUT = {
    f"{HWMON}/hwmon3/name": "ina238\n",
    f"{HWMON}/hwmon3/in1_input": "19912\n",
    f"{HWMON}/hwmon3/curr1_input": "1290\n",
}
POWER = {f"{HWMON}/hwmon3/power1_input": "25686000\n"}


@pytest.fixture
def thor(tmp_path):
    """Return a Thor whose INA238 has no label."""
    return write(tmp_path, INPUT | POWER | ina3221(f"{HWMON}/hwmon5", THOR, 2000))


def test_the_input_is_the_total_and_its_rails_lie_inside(thor):
    """The total is 25.686 W, and a GPU rail of -392 mW is shown but not added."""
    description, reading = JetsonThor(thor).describe(), JetsonThor(thor).read()
    assert (description.scope, description.excludes) == ("board-input", ("power-supply loss",))
    assert reading.power_w == pytest.approx(25.686)
    rails = {rail.name: rail.power_w for rail in reading.rails}
    assert rails["VDD_GPU"] == pytest.approx(-0.39232)
    assert list(rails) == ["VIN", "VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"]
    assert (description.resolution_w, description.gain_u_ratio, description.warnings) == (
        None,
        None,
        (),
    )


def test_a_labelled_input_needs_no_other_evidence(tmp_path):
    """A channel's or chip's label is enough; a chip with another label belongs to somebody else."""
    for name in ("in1_label", "power1_label", "label"):
        root = write(tmp_path / name, INPUT | POWER | {f"{HWMON}/hwmon3/{name}": "VIN\n"})
        assert JetsonThor(root).read().power_w == pytest.approx(25.686)
    root = write(
        tmp_path / "other",
        INPUT | POWER | {f"{HWMON}/hwmon3/label": "12V_AUX\n"} | ina3221(f"{HWMON}/hwmon5", THOR),
    )
    with pytest.raises(AbsentError):
        JetsonThor(root).describe()


def test_an_ina238_without_a_label_is_a_thor_s_only_on_a_thor(tmp_path):
    """A Thor is recognised by its device tree, or by the rail that only Thor has.

    An INA238 beside an Orin Nano's monitor, alone or as one of two is not taken.
    """
    with pytest.raises(AbsentError):
        JetsonThor(write(tmp_path / "alone", INPUT | POWER)).describe()
    with pytest.raises(AbsentError):
        JetsonThor(
            write(tmp_path / "nano", INPUT | POWER | ina3221(f"{HWMON}/hwmon5", ORIN_NANO))
        ).describe()
    root = write(
        tmp_path / "tree",
        INPUT
        | POWER
        | device_tree(
            "NVIDIA Jetson AGX Thor Developer Kit", "nvidia,p3834-0008", "nvidia,tegra264"
        ),
    )
    assert JetsonThor(root).read().power_w == pytest.approx(25.686)
    write(root, {path.replace("hwmon3", "hwmon7"): text for path, text in (INPUT | POWER).items()})
    with pytest.raises(AbsentError):
        JetsonThor(root).describe()


def test_without_a_power_file_it_is_voltage_times_current(tmp_path):
    """The power is 19.912 V x 1.29 A."""
    root = write(tmp_path, INPUT | ina3221(f"{HWMON}/hwmon5", THOR))
    assert JetsonThor(root).read().power_w == pytest.approx(19.912 * 1.29)
