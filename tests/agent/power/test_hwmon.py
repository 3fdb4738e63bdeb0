"""Facts about `edgemeter.agent.power.hwmon`."""

import tempfile
from pathlib import Path

import pytest

from edgemeter.agent.errors import UnavailableError
from edgemeter.agent.power import hwmon
from tests.fixtures.machine_trees import write
from tests.fixtures.ordinary_user import closed_mode, ordinary_user


def test_chips_come_in_the_order_of_their_numbers(tmp_path):
    """10 after 9; what is no chip is left out."""
    write(tmp_path, {f"sys/class/hwmon/{name}/name": f"{name}\n" for name in ("hwmon10", "hwmon9", "hwmonitor", "other")})
    assert [chip.name for chip in hwmon.chips(tmp_path)] == ["hwmon9", "hwmon10"]
    assert hwmon.chips(tmp_path / "nothing") == []


def test_an_empty_name_is_none_and_an_old_driver_has_it_in_its_device(tmp_path):
    """Before Linux 3.13 the name stood below device/."""
    write(tmp_path, {"sys/class/hwmon/hwmon0/name": "\n", "sys/class/hwmon/hwmon1/device/name": "ina219\n"})
    assert [chip.name for chip in hwmon.chips(tmp_path)] == [None, "ina219"]


def test_a_chip_copied_twice_is_one_chip_with_its_address(tmp_path):
    """A tree copied without its links holds the chip below the class and below its bus."""
    write(tmp_path, dict.fromkeys(["sys/class/hwmon/hwmon2/name", "sys/bus/i2c/devices/1-0040/hwmon/hwmon2/name"], "ina219\n"))
    assert [(chip.name, chip.address) for chip in hwmon.chips(tmp_path)] == [("ina219", "1-0040")]


@pytest.mark.parametrize("bus", ["soc/fe804000.i2c", "axi/1000120000.pcie/1f00074000.i2c", "c240000.i2c"])
def test_a_recording_of_the_devices_alone_is_read(tmp_path, bus):
    """Without the folders that link to them: on the boards of Raspberry Pi and NVIDIA."""
    write(tmp_path, {f"sys/devices/platform/{bus}/i2c-1/1-0040/hwmon/hwmon3/name": "ina226\n"})
    assert [(chip.name, chip.address) for chip in hwmon.chips(tmp_path)] == [("ina226", "1-0040")]


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"\0\1\x86", b"100000\n\n\n\n"])
def test_a_shunt_that_is_no_cell_is_none(tmp_path, content):
    """Four bytes, not all zero."""
    write(tmp_path, {"sys/class/hwmon/hwmon0/name": "ina238\n", "sys/class/hwmon/hwmon0/device/of_node/shunt-resistor": content})
    assert hwmon.chips(tmp_path)[0].shunt_in_device_tree_ohm() is None


def test_a_shunt_is_microohms_big_endian(tmp_path):
    """0x000186a0 is 0.1 Ohm."""
    write(tmp_path, {"sys/class/hwmon/hwmon0/name": "ina238\n", "sys/class/hwmon/hwmon0/device/of_node/shunt-resistor": b"\0\1\x86\xa0"})
    assert hwmon.chips(tmp_path)[0].shunt_in_device_tree_ohm() == pytest.approx(0.1)


def test_a_closed_folder_is_said():
    """As an ordinary user."""
    with tempfile.TemporaryDirectory() as folder:
        root = write(Path(folder), {"sys/class/hwmon/hwmon0/name": "ina219\n"})
        root.chmod(0o755)
        name = root / "sys/class/hwmon/hwmon0/name"
        name.chmod(closed_mode())
        with ordinary_user(), pytest.raises(UnavailableError, match="may not read"):
            hwmon.chips(root)
        (root / "sys/class/hwmon").chmod(closed_mode())
        with ordinary_user(), pytest.raises(UnavailableError, match="cannot look for chips"):
            hwmon.chips(root)
        (root / "sys/class/hwmon").chmod(0o700)
