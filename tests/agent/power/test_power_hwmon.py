"""Facts about `edgemeter.agent.power.power_hwmon`."""

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.power_hwmon import PowerHwmon
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders, table_row

FOLDER = "sys/class/hwmon/hwmon3"


def _chip(root, name, folder=FOLDER, **files):
    named = {} if name is None else {f"{folder}/name": f"{name}\n"}
    return write(root, named | {f"{folder}/{key}": f"{value}\n" for key, value in files.items()})


def _sensor(root, **settings):
    return PowerHwmon(root=root, **settings)


def test_microwatts_become_watts_of_a_known_scope(tmp_path):
    """A graphics card: its average, under its label."""
    sensor = _sensor(_chip(tmp_path, "amdgpu", power1_average=38112000, power1_label="PPT", power1_cap=180000000))
    description = sensor.describe()
    assert (description.scope, description.kind, description.blocked) == ("gpu-board", "power", None)
    reading = sensor.read()
    assert reading.power_w == pytest.approx(38.112)
    assert [(rail.name, rail.power_w) for rail in reading.rails] == [("PPT", pytest.approx(38.112))]


def test_an_unknown_chip_gives_no_energy_until_its_scope_is_configured(tmp_path):
    """Its watts are shown all the same."""
    root = _chip(tmp_path, "lm25066", power1_input=12500000)
    sensor = _sensor(root)
    assert "set scope" in sensor.describe().blocked
    assert sensor.read().power_w == pytest.approx(12.5)
    description = _sensor(root, scope="board-input").describe()
    assert (description.scope, description.blocked) == ("board-input", None)


def test_several_channels_are_not_added_up_unasked(tmp_path):
    """A power supply: the whole and its rails; the channel is named by number or label, or the parts are."""
    root = _chip(
        tmp_path,
        "corsairpsu",
        power1_input=90000000,
        power1_label="power total",
        power2_input=80000000,
        power2_label="power +12v",
        power10_input=8000000,
    )
    with pytest.raises(UnavailableError, match=r"power1 \(power total\) 90\.000 W, power2 \(power \+12v\) 80\.000 W, power10 8\.000 W"):
        _sensor(root).describe()
    assert _sensor(root, channel="power total").read().power_w == pytest.approx(90)
    assert _sensor(root, channel="power2, power10").read().power_w == pytest.approx(88)
    with pytest.raises(UnavailableError, match="power3"):
        _sensor(root, channel="power3").describe()


def test_a_counter_is_preferred_to_its_power_and_a_step_back_is_refused(tmp_path):
    """Where a chip has energy and power, the energy is read (microjoules become millijoules); a smaller count is an error."""
    root = _chip(tmp_path, "xe", energy1_input=2_500_000, power1_input=20000000)
    sensor = _sensor(root)
    assert sensor.describe().kind == "energy"
    assert sensor.read().energy_mj == pytest.approx(2500)
    _chip(tmp_path, "xe", energy1_input=4_500_000)
    assert sensor.read().energy_mj == pytest.approx(4500)
    _chip(tmp_path, "xe", energy1_input=100)
    with pytest.raises(UnavailableError, match="measure again"):
        sensor.read()


def test_chips_with_a_sensor_of_their_own_are_left_to_it(tmp_path):
    """The INA219's power register has no sign; a battery is no channel of the board."""
    for folder, name in in_folders(tmp_path, ["ina3221", "ina219", "ina238", "powerz", "BAT0", "ucsi_source_psy_USBC000:001"]):
        with table_row(name), pytest.raises(AbsentError):
            _sensor(_chip(folder, name, power1_input=176000)).describe()


def test_a_battery_under_any_name_is_left_to_its_sensor(tmp_path):
    """By its place among the power supplies, or by its device's type."""
    _chip(tmp_path, "max170xx_battery", power1_input=4000000)
    write(tmp_path, {"sys/class/power_supply/max170xx-battery/type": "Battery\n"})
    with pytest.raises(AbsentError):
        _sensor(tmp_path).describe()
    _chip(tmp_path / "b", "gauge", **{"power1_input": 4000000, "device/type": "Battery"})
    with pytest.raises(AbsentError):
        _sensor(tmp_path / "b").describe()


def test_negative_watts_are_kept_and_garbage_is_refused(tmp_path):
    """Power may flow back."""
    root = _chip(tmp_path, "lm25066", power1_input=-250000)
    sensor = _sensor(root)
    assert sensor.read().power_w == pytest.approx(-0.25)
    _chip(tmp_path, "lm25066", power1_input="garbage")
    with pytest.raises(TransientError):
        sensor.read()
    with pytest.raises(UnavailableError):
        _sensor(root).describe()


def test_the_interval_of_a_mean_is_read_from_the_driver(tmp_path):
    """ACPI power meters show it in ms, and any driver how often it renews its values; without them nothing is known."""
    description = _sensor(
        _chip(tmp_path, "power_meter", power1_average=210000000, power1_average_interval=3000, update_interval=500)
    ).describe()
    assert (description.averaging.window_s, description.averaging.update_interval_s) == (3.0, 0.5)
    assert description.averaging.sources == {"window_s": "driver", "update_interval_s": "driver"}
    (tmp_path / FOLDER / "update_interval").unlink()
    assert _sensor(tmp_path).describe().averaging.update_interval_s is None
    (tmp_path / FOLDER / "power1_average_interval").write_text("garbled\n")
    assert _sensor(tmp_path).describe().averaging is None
