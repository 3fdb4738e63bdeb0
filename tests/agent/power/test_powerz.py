"""Facts about `edgemeter.agent.power.powerz`."""

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.power.powerz import PowerZ
from tests.fixtures.machine_trees import write


def _meter(root, number=4, voltage_mv=5000, current_ma=600):
    folder = f"sys/class/hwmon/hwmon{number}"
    return write(
        root,
        {
            f"{folder}/name": "powerz\n",
            f"{folder}/in0_input": f"{voltage_mv}\n",
            f"{folder}/in1_input": "1640\n",
            f"{folder}/curr1_input": f"{current_ma}\n",
        },
    )


def test_power_is_vbus_times_ibus(tmp_path):
    """5 V x 0.6 A; in1 is a configuration channel's voltage, not the bus'."""
    sensor = PowerZ(root=_meter(tmp_path))
    description = sensor.describe()
    assert description.scope == "board-input"
    assert description.kind == "power"
    assert description.gain_u_ratio is None
    assert description.warnings == ()
    assert description.resolution_w == pytest.approx(0.005)
    assert sensor.read().power_w == pytest.approx(3.0)


def test_a_meter_plugged_the_other_way_round_is_negative_until_configured(tmp_path):
    """The sign is the direction."""
    root = _meter(tmp_path, current_ma=-600)
    sensor = PowerZ(root=root)
    (warning,) = sensor.describe().warnings
    assert "reverse" in warning
    assert sensor.read().power_w == pytest.approx(-3.0)
    assert PowerZ(direction="reverse", root=root).read().power_w == pytest.approx(3.0)


def test_of_two_meters_one_is_named(tmp_path):
    """Two of the same name differ by their folder."""
    _meter(tmp_path)
    _meter(tmp_path, 5, current_ma=100)
    with pytest.raises(UnavailableError, match="hwmon4 or hwmon5"):
        PowerZ(root=tmp_path).describe()
    assert PowerZ(device="hwmon5", root=tmp_path).read().power_w == pytest.approx(0.5)
