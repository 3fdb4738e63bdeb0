import json
import math
import struct
from pathlib import Path

import pytest

from edgemeter.agent import power
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.hwmon import Hwmon
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders, table_row

FOLDER = "sys/class/hwmon/hwmon2"
TREES = Path(__file__).resolve().parents[2] / "fixtures/power/hwmon"
CAPTURE = "ina/ina219_hwmon_ups_on_battery.txt"


def _tree(root, name, folder=FOLDER, **files):
    values = {"name": name, **files}
    return write(
        root,
        {f"{folder}/{key}": f"{value}\n" for key, value in values.items() if value is not None},
    )


def _monitor(root, name="ina219", folder=FOLDER, **files):
    usual = {
        "in0_input": 49,
        "in1_input": 5000,
        "curr1_input": 490,
        "power1_input": 2440000,
        "shunt_resistor": 100000,
    }
    return _tree(root, name, folder, **(usual | files))


def test_recorded_trees_show_what_they_showed_before(tmp_path):
    """Scope, kind, power, gain and step are read for three kinds of devices.

    These are a current monitor, a meter in a USB-C lead and a graphics card.
    """
    for folder, tree, scope, power_w, gain_u_ratio, step_w in in_folders(
        tmp_path,
        [
            ("tree.json", "board-input", 3.185262, 0.02, 0.005121),
            ("others/powerz.json", "board-input", 3.718597, None, 0.005087),
            ("others/amdgpu.json", "gpu-board", 38.112, None, None),
        ],
    ):
        with table_row(tree):
            sensor = Hwmon(root=write(folder, json.loads((TREES / tree).read_text())))
            description, reading = sensor.describe(), sensor.read()
            assert (description.scope, description.kind, description.blocked) == (
                scope,
                "power",
                None,
            )
            assert (reading.power_w, description.gain_u_ratio) == (
                pytest.approx(power_w),
                gain_u_ratio,
            )
            assert description.resolution_w == (None if step_w is None else pytest.approx(step_w))


@pytest.mark.captures
def test_a_capture_of_a_supply_on_battery_is_read(tmp_path, captures):
    """The current flows backwards, so the power is negative.

    The power register of the INA219 has no sign, and reads +0.176 W.
    """
    command, *numbers = (captures / CAPTURE).read_text().split("\n")
    files = command.partition("{")[2].rstrip("}").split(",")
    sensor = Hwmon(root=_tree(tmp_path, "ina219", **dict(zip(files, numbers, strict=False))))
    assert any("gain = -1" in warning for warning in sensor.describe().warnings)
    assert sensor.read().power_w == pytest.approx(-0.16912)
    turned = power.create("hwmon", root=tmp_path, gain="-1")
    assert turned.read().power_w == pytest.approx(0.16912)
    assert turned.describe().resolution_w == pytest.approx(0.004228)


def test_a_default_shunt_blocks_until_it_is_confirmed(tmp_path):
    """The driver takes 10 mOhm by default, which blocks the energy until it is confirmed.

    If the shunt is corrected, the current is a tenth.
    """
    root = _monitor(tmp_path, shunt_resistor=10000)
    assert "shunt_ohm = 0.1" in Hwmon(root=root).describe().blocked
    for shunt_ohm, power_w in (("0.01", 2.45), ("0.1", 0.245)):
        sensor = Hwmon(root=root, shunt_ohm=shunt_ohm)
        assert sensor.describe().blocked is None
        assert sensor.read().power_w == pytest.approx(power_w)


def test_a_shunt_that_somebody_set_is_taken(tmp_path):
    """A driver's 100 mOhm is not its default, so it was set by the user.

    A device tree that states 10 mOhm counts too.
    """
    assert Hwmon(root=_monitor(tmp_path / "a")).describe().blocked is None
    root = _monitor(tmp_path / "b", shunt_resistor=10000)
    write(root, {f"{FOLDER}/device/of_node/shunt-resistor": struct.pack(">I", 10000)})
    assert Hwmon(root=root).describe().blocked is None


def test_a_chip_whose_driver_shows_no_shunt_is_blocked_too(tmp_path):
    """INA238's driver uses the device tree's shunt or its default."""
    root = _monitor(tmp_path, "ina238", shunt_resistor=None)
    assert "0.01 Ohm" in Hwmon(root=root).describe().blocked
    assert Hwmon(root=root, shunt_ohm="0.002").read().power_w == pytest.approx(2.45 * 5)
    write(root, {f"{FOLDER}/device/of_node/shunt-resistor": struct.pack(">I", 2000)})
    assert Hwmon(root=root).describe().blocked is None
    assert Hwmon(root=root).read().power_w == pytest.approx(2.45)


def test_the_step_is_the_coarser_of_chip_and_driver(tmp_path):
    """The resolution is at least the driver's whole milliamperes at 5 V.

    It is the chip's own step if that is larger.
    """
    for folder, name, shunt_uohm, current_ma, step_w, gain_u_ratio in in_folders(
        tmp_path,
        [
            # 10 uV / 0.1 Ohm is 0.1 mA, and the driver gives whole mA.
            ("ina219", 100000, 100, 0.005, 0.02),
            # 10 uV / 1 mOhm is 10 mA.
            ("ina219", 1000, 100, 0.05, 0.02),
            ("ina226", 1000, 100, 0.0125, 0.02),
            # 4 mV of bus voltage at 3 A is more than 1 mA at 5 V.
            ("ina219", 100000, 3000, 0.012, 0.02),
            # A shunt inside the chip, in steps of 1.25 mA.
            ("ina260", None, 490, 0.00625, 0.005),
        ],
    ):
        with table_row(name, shunt_uohm, current_ma):
            description = Hwmon(
                root=_monitor(folder, name, shunt_resistor=shunt_uohm, curr1_input=current_ma)
            ).describe()
            assert (description.blocked, description.gain_u_ratio) == (None, gain_u_ratio)
            assert description.resolution_w == pytest.approx(step_w)


def test_of_several_chips_the_widest_scope_is_read_or_one_is_named(tmp_path):
    """A monitor in the supply is chosen before a graphics card.

    Two monitors are not added up, and their addresses tell them apart.
    """
    (tmp_path / "sys/class/hwmon").mkdir(parents=True)
    for number, (name, address, current_ma) in enumerate(
        (("ina219", "1-0040", 490), ("ina219", "1-0041", 100), ("ina226", "1-0044", 200))
    ):
        device = f"sys/devices/platform/soc/i2c-1/{address}/hwmon/hwmon{number}"
        _monitor(tmp_path, name, device, curr1_input=current_ma)
        (tmp_path / f"sys/class/hwmon/hwmon{number}").symlink_to(tmp_path / device)
    for device in ("", "ina219", "hwmon9"):
        with (
            table_row(device),
            pytest.raises(
                UnavailableError, match=r"ina219 at 1-0040.*ina219 at 1-0041.*ina226 at 1-0044"
            ),
        ):
            Hwmon(device=device, root=tmp_path).describe()
    for device, power_w in (("ina226", 1.0), ("1-0041", 0.5), ("hwmon0", 2.45)):
        assert Hwmon(device=device, root=tmp_path).read().power_w == pytest.approx(power_w)
    assert Hwmon(device="1-0041", root=tmp_path).describe().id == "hwmon:ina219:1-0041"
    root = _tree(
        _monitor(tmp_path / "b"),
        "amdgpu",
        "sys/class/hwmon/hwmon0",
        power1_average=38112000,
        power1_label="PPT",
    )
    _tree(root, "unknown", "sys/class/hwmon/hwmon1", power1_input=38112000)
    assert Hwmon(root=root).describe().id == "hwmon:ina219"
    reading = Hwmon(device="amdgpu", root=root).read()
    assert [(rail.name, rail.power_w) for rail in reading.rails] == [("PPT", pytest.approx(38.112))]


def test_of_several_powers_of_a_chip_one_is_named(tmp_path):
    """A power supply's total and rails are named by number or label."""
    files = {
        "power1_input": 90000000,
        "power1_label": "power total",
        "power2_input": 80000000,
        "power10_input": 8000000,
    }
    root = _tree(tmp_path, "corsairpsu", **files)
    for channel in ("", "power3"):
        with (
            table_row(channel),
            pytest.raises(UnavailableError, match=r"power1 power total.*power2"),
        ):
            Hwmon(channel=channel, root=root).describe()
    assert Hwmon(channel="power total", root=root).read().power_w == pytest.approx(90)
    assert Hwmon(channel="power2", root=root).read().power_w == pytest.approx(80)


def test_an_unknown_chip_gives_no_energy_until_its_scope_is_configured(tmp_path):
    """The chip's power is still shown, even if it is negative."""
    root = _tree(tmp_path, "lm25066", power1_input=12500000)
    assert "set scope" in Hwmon(root=root).describe().blocked
    description = Hwmon(root=root, scope="board-input").describe()
    assert (description.scope, description.blocked) == ("board-input", None)
    assert Hwmon(root=root, scope="wall-ac").describe().excludes == ()
    sensor = Hwmon(root=root)
    assert sensor.read().power_w == pytest.approx(12.5)
    _tree(tmp_path, "lm25066", power1_input=-250000)
    assert sensor.read().power_w == pytest.approx(-0.25)
    _tree(tmp_path, "lm25066", power1_input="garbage")
    with pytest.raises(TransientError):
        sensor.read()
    with pytest.raises(UnavailableError):
        Hwmon(root=root).describe()


def test_an_energy_counter_is_read_before_the_power_and_may_not_go_back(tmp_path):
    """Microjoules become millijoules, rescaled by the shunt; a counter that falls was reset."""
    for folder, name, settings, energy_mj, offset_u_w in in_folders(
        tmp_path,
        [
            # Its zero is known to a step of its converter: 1 mA of the driver's, a tenth of it with
            # this shunt.
            ("ina228", {"shunt_ohm": "0.1"}, 500, 5.0 * 0.0001 / math.sqrt(3)),
            ("xe", {}, 5000, None),
        ],
    ):
        with table_row(name):
            files = {"in1_input": 5000, "curr1_input": 490, "power1_input": 20000000}
            root = _tree(folder, name, energy1_input=5_000_000, **files)
            sensor = Hwmon(root=root, **settings)
            description = sensor.describe()
            assert (description.kind, description.resolution_w) == ("energy", None)
            assert description.offset_u_w == (
                None if offset_u_w is None else pytest.approx(offset_u_w)
            )
            assert sensor.read().energy_mj == pytest.approx(energy_mj)
            _tree(folder, name, energy1_input=10, **files)
            with pytest.raises(UnavailableError, match="measure again"):
                sensor.read()


def test_a_counter_without_sign_is_not_used_backwards(tmp_path):
    """The counter would count energy that is given off as consumed."""
    root = _monitor(tmp_path, "ina228", energy1_input=5_000_000, curr1_input=-100)
    assert Hwmon(root=root).describe().kind == "power"
    _monitor(tmp_path, "ina228", energy1_input=5_000_000)
    sensor = Hwmon(root=root)
    assert sensor.describe().kind == "energy"
    _monitor(tmp_path, "ina228", energy1_input=6_000_000, curr1_input=-100)
    with pytest.raises(UnavailableError, match="backwards"):
        sensor.read()


def test_what_has_a_sensor_of_its_own_or_is_a_battery_is_left_out(tmp_path):
    """A power supply's chip is recognised by its device's type, under any name."""
    for folder, name, files in in_folders(
        tmp_path,
        [
            ("ina3221", {}),
            ("BAT0", {"device/type": "Battery"}),
            ("gauge", {"device/type": "Battery"}),
            ("ucsi", {"device/type": "USB"}),
        ],
    ):
        with table_row(name), pytest.raises(AbsentError):
            Hwmon(root=_tree(folder, name, power1_input=4000000, **files)).describe()


def test_the_intervals_are_read_from_the_driver(tmp_path):
    """The driver states its update interval and the interval of its mean.

    A slow chip is read no faster than it measures.
    """
    assert Hwmon(root=_monitor(tmp_path / "a", update_interval=563)).describe().period_ms == 563
    root = _tree(
        tmp_path / "b",
        "power_meter",
        power1_average=210000000,
        power1_average_interval=3000,
        update_interval=50,
    )
    description = Hwmon(root=root).describe()
    assert (description.period_ms, description.delay_ms) == (100, 3050.0)
    (root / FOLDER / "update_interval").unlink()
    (root / FOLDER / "power1_average_interval").write_text("garbled\n")
    assert Hwmon(root=root).describe().delay_ms is None


def test_a_wrong_setting_is_refused_with_its_name():
    """The setting is refused before anything is read."""
    for settings in [
        {"shunt_ohm": "R100"},
        {"shunt_ohm": "-0.1"},
        {"shunt_ohm": "nan"},
        {"scope": "desk"},
    ]:
        with table_row(settings), pytest.raises(ConfigError, match=next(iter(settings))):
            Hwmon(**settings)


def test_a_current_at_the_end_of_the_range_is_no_reading(tmp_path):
    """The largest current that can be shown may stand for any larger one.

    The driver's shunt determines that current.
    """
    for folder, name, shunt_uohm, last_ma in in_folders(
        tmp_path,
        [
            ("ina219", 100_000, 3200),
            ("ina226", 2_000, 40_959),
            ("ina238", 10_000, 16_383),
            ("ina260", None, 40_959),
        ],
    ):
        with table_row(name, shunt_uohm):
            root = _monitor(
                folder, name, shunt_resistor=shunt_uohm, curr1_input=round(0.98 * last_ma)
            )
            sensor = Hwmon(root=root, shunt_ohm="0.1")
            assert sensor.read().power_w > 0
            for sign in (1, -1):
                (root / FOLDER / "curr1_input").write_text(f"{sign * last_ma}\n")
                with pytest.raises(TransientError, match="end of its range"):
                    sensor.read()
