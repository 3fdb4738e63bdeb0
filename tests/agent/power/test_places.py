"""Facts about `edgemeter.agent.power.places`."""

import pytest

from edgemeter.agent.power import places


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("hwmon12", "sys/class/hwmon"),
        ("intel-rapl:0:2", "sys/class/powercap"),
        ("BAT1", "sys/class/power_supply"),
        ("7-0040", "sys/bus/i2c/devices"),
        ("class", "sys"),
        ("hwmon", None),
        ("", None),
    ],
)
def test_a_folder_lies_where_its_name_says(name, place):
    """As the kernel lays it out."""
    assert places.of_folder(name) == place


@pytest.mark.parametrize(
    ("names", "place"),
    [
        (["name", "in1_input"], "sys/class/hwmon/hwmon0"),
        (["name", "energy_uj"], "sys/class/powercap/intel-rapl:0"),
        (["status", "power_now"], "sys/class/power_supply/recorded"),
        (["rail_name_0", "in_power0_input"], "sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0"),
        (["name", "status"], None),
    ],
)
def test_files_lie_in_the_device_that_has_such(names, place):
    """A name that any device has tells nothing."""
    assert places.of_files(names) == place
