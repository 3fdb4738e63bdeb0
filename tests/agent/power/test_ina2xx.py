"""Facts about `edgemeter.agent.power.ina2xx`."""

import math
import struct

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power.ina2xx import Ina2xx
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders, table_row

FOLDER = "sys/class/hwmon/hwmon2"


def _chip(root, folder=FOLDER, **files):
    values = {"name": "ina219", "in0_input": 49, "in1_input": 5000, "curr1_input": 490, "power1_input": 2440000, "shunt_resistor": 100000}
    values.update(files)
    return write(root, {f"{folder}/{key}": f"{value}\n" for key, value in values.items() if value is not None})


def _sensor(root, **settings):
    return Ina2xx(root=root, **settings)


def test_power_is_voltage_times_current_not_the_power_register(tmp_path):
    """5 V x 0.49 A = 2.45 W, where the register's coarse steps say 2.44."""
    sensor = _sensor(_chip(tmp_path))
    description = sensor.describe()
    assert (description.scope, description.kind, description.blocked) == ("board-input", "power", None)
    assert sensor.read().power_w == pytest.approx(2.45)


def test_current_that_flows_backwards_stays_negative(tmp_path):
    """The INA219's power register has no sign; `direction` turns it."""
    root = _chip(tmp_path, curr1_input=-40, in1_input=4228, power1_input=176000)
    sensor = _sensor(root)
    assert any("negative" in warning for warning in sensor.describe().warnings)
    assert sensor.read().power_w == pytest.approx(-0.16912)
    assert _sensor(root, direction="reverse").read().power_w == pytest.approx(0.16912)


def test_a_default_shunt_blocks_until_it_is_confirmed(tmp_path):
    """10 mOhm is what the driver takes unasked; confirmed it stands, corrected the current is a tenth."""
    root = _chip(tmp_path, shunt_resistor=10000)
    blocked = _sensor(root).describe().blocked
    assert 'shunt_ohm = "0.1"' in blocked
    confirmed = _sensor(root, shunt_ohm="0.01")
    assert confirmed.describe().blocked is None
    assert confirmed.read().power_w == pytest.approx(2.45)
    corrected = _sensor(root, shunt_ohm="0.1")
    description = corrected.describe()
    assert description.blocked is None
    assert any("multiplied by 0.1" in warning for warning in description.warnings)
    assert corrected.read().power_w == pytest.approx(0.245)


def test_a_shunt_that_somebody_set_is_taken(tmp_path):
    """100 mOhm in the driver: not its default, so the user's; and a device tree that says 10 mOhm means it."""
    assert _sensor(_chip(tmp_path / "a")).describe().blocked is None
    root = _chip(tmp_path / "b", shunt_resistor=10000)
    write(root, {f"{FOLDER}/device/of_node/shunt-resistor": struct.pack(">I", 10000)})
    assert _sensor(root).describe().blocked is None


def test_a_chip_whose_driver_shows_no_shunt_is_blocked_too(tmp_path):
    """INA238's driver: the device tree's shunt, or the default."""
    root = _chip(tmp_path, name="ina238", shunt_resistor=None)
    assert "0.01 Ohm" in _sensor(root).describe().blocked
    assert _sensor(root, shunt_ohm="0.002").read().power_w == pytest.approx(2.45 * 5)
    write(root, {f"{FOLDER}/device/of_node/shunt-resistor": struct.pack(">I", 2000)})
    assert _sensor(root).describe().blocked is None
    assert _sensor(root).read().power_w == pytest.approx(2.45)


def test_a_shunt_inside_the_chip_needs_no_word(tmp_path):
    """INA260: steps of 1.25 mA, so 6.25 mW at 5 V."""
    description = _sensor(_chip(tmp_path, name="ina260", shunt_resistor=None)).describe()
    assert (description.blocked, description.gain_u_ratio) == (None, 0.005)
    assert description.resolution_w == pytest.approx(0.00625)


def test_the_step_is_the_coarser_of_chip_and_driver(tmp_path):
    """The resolution at 5 V is the larger of the chip's step and of the whole mA that the driver gives."""
    for folder, name, shunt_uohm, current_ma, step_w in in_folders(
        tmp_path,
        [
            # 10 uV / 0.1 Ohm is 0.1 mA, and the driver gives whole mA.
            ("ina219", 100000, 100, 0.005),
            # 10 uV / 1 mOhm is 10 mA.
            ("ina219", 1000, 100, 0.05),
            ("ina226", 1000, 100, 0.0125),
            # 4 mV of bus voltage at 3 A is more than 1 mA at 5 V.
            ("ina219", 100000, 3000, 0.012),
        ],
    ):
        description = _sensor(_chip(folder, name=name, shunt_resistor=shunt_uohm, curr1_input=current_ma)).describe()
        assert description.resolution_w == pytest.approx(step_w), f"{name!r}, {shunt_uohm!r}, {current_ma!r}"


def test_several_chips_are_not_added_up_unasked(tmp_path):
    """They are reported with their watts; one, or a sum, has to be named."""
    _chip(tmp_path)
    _chip(tmp_path, "sys/class/hwmon/hwmon3", name="ina226", curr1_input=100)
    with pytest.raises(UnavailableError, match=r"ina219 at hwmon2 2\.450 W, ina226 at hwmon3 0\.500 W"):
        _sensor(tmp_path).describe()
    assert _sensor(tmp_path, device="ina226").read().power_w == pytest.approx(0.5)
    both = _sensor(tmp_path, device="hwmon2, hwmon3").read()
    assert both.power_w == pytest.approx(2.95)
    assert [(rail.name, rail.power_w) for rail in both.rails] == [("ina219", pytest.approx(2.45)), ("ina226", pytest.approx(0.5))]
    with pytest.raises(UnavailableError, match="hwmon9"):
        _sensor(tmp_path, device="hwmon9").describe()


def test_two_chips_of_one_name_are_distinguished_by_address(tmp_path):
    """The class folder's entries are links to the devices; the address is read from where they point."""
    (tmp_path / "sys/class/hwmon").mkdir(parents=True)
    for number, (address, current_ma) in enumerate((("1-0040", 490), ("1-0041", 100))):
        device = f"sys/devices/platform/soc/i2c-1/{address}/hwmon/hwmon{number}"
        _chip(tmp_path, device, curr1_input=current_ma)
        (tmp_path / f"sys/class/hwmon/hwmon{number}").symlink_to(tmp_path / device)
    assert _sensor(tmp_path, device="1-0041").read().power_w == pytest.approx(0.5)
    with pytest.raises(UnavailableError, match='device = "1-0040"'):
        _sensor(tmp_path, device="ina219").describe()
    assert _sensor(tmp_path, device="1-0041").describe().id == "ina2xx:ina219@1-0041"


def test_an_energy_counter_is_preferred_and_rescaled(tmp_path):
    """INA228: energy in mJ, the present watts beside it as a rail."""
    root = _chip(tmp_path, name="ina228", shunt_resistor=None, energy1_input=5_000_000)
    sensor = _sensor(root, shunt_ohm="0.1")
    description = sensor.describe()
    assert (description.kind, description.resolution_w) == ("energy", None)
    # Its zero is known to a step of its converter, as that of its watts: 1 mA of the driver's, a tenth of it with this shunt.
    assert description.offset_u_w == pytest.approx(5.0 * 0.0001 / math.sqrt(3))
    first = sensor.read()
    assert first.energy_mj == pytest.approx(500)
    assert first.rails[0].power_w == pytest.approx(0.245)
    _chip(tmp_path, name="ina228", shunt_resistor=None, energy1_input=7_000_000)
    assert sensor.read().energy_mj == pytest.approx(700)
    _chip(tmp_path, name="ina228", shunt_resistor=None, energy1_input=10)
    with pytest.raises(UnavailableError, match="was reset"):
        sensor.read()


def test_a_counter_without_sign_is_not_used_backwards(tmp_path):
    """It would count what is given as taken."""
    root = _chip(tmp_path, name="ina228", shunt_resistor=None, energy1_input=5_000_000, curr1_input=-100)
    assert _sensor(root, shunt_ohm="0.01").describe().kind == "power"
    _chip(tmp_path, name="ina228", shunt_resistor=None, energy1_input=5_000_000, curr1_input=100)
    sensor = _sensor(root, shunt_ohm="0.01")
    assert sensor.describe().kind == "energy"
    _chip(tmp_path, name="ina228", shunt_resistor=None, energy1_input=6_000_000, curr1_input=-100)
    with pytest.raises(UnavailableError, match="backwards"):
        sensor.read()


def test_an_averaging_chip_is_read_no_faster_than_it_measures(tmp_path):
    """update_interval, where the driver shows it."""
    assert _sensor(_chip(tmp_path, update_interval=563)).describe().period_ms == 563
    description = _sensor(_chip(tmp_path, update_interval=35)).describe()
    averaging = description.averaging
    assert (description.period_ms, averaging.update_interval_s, averaging.sources) == (100, 0.035, {"update_interval_s": "driver"})


def test_a_wrong_setting_is_refused_with_its_name():
    """Before anything is read."""
    for settings in [{"shunt_ohm": "R100"}, {"shunt_ohm": "-0.1"}, {"shunt_ohm": "nan"}, {"scope": "desk"}, {"direction": "up"}]:
        with table_row(settings), pytest.raises(ConfigError, match=next(iter(settings))):
            Ina2xx(**settings)


def test_a_current_at_the_end_of_the_range_is_no_reading(tmp_path):
    """By the shunt that the driver takes, the chip's range and its amplifier: the last current that can be shown may be any larger one."""
    for number, (name, shunt_uohm, gain, last_ma) in enumerate(
        [
            ("ina219", 100_000, None, 3200),
            ("ina226", 2_000, None, 40_959),
            ("ina238", 10_000, 1, 4096),
            ("ina260", None, None, 40_959),
        ]
    ):
        with table_row(name, shunt_uohm, gain):
            root = _chip(tmp_path / str(number), name=name, shunt_resistor=shunt_uohm, curr1_input=round(0.98 * last_ma))
            if gain:
                tree = root / FOLDER / "device/of_node"
                tree.mkdir(parents=True)
                (tree / "ti,shunt-gain").write_bytes(struct.pack(">I", gain))
            sensor = _sensor(root, shunt_ohm="0.1")
            assert sensor.read().power_w > 0
            for sign in (1, -1):
                (root / FOLDER / "curr1_input").write_text(f"{sign * last_ma}\n")
                with pytest.raises(TransientError, match="end of its range"):
                    sensor.read()
