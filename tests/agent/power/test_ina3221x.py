"""Facts about `edgemeter.agent.power.jetson`."""

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power.jetson import Ina3221x
from edgemeter.agent.power.recording import PowerRecording
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.jetson_trees import AGX_XAVIER, ina3221x
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders

DRIVER = "sys/bus/i2c/drivers/ina3221x"
NANO = (("POM_5V_IN", 5088, 392), ("POM_5V_GPU", 5080, 24), ("POM_5V_CPU", 5080, 112))


def test_the_driver_s_milliwatts_are_the_power(tmp_path):
    """5088 mV x 392 mA, which the driver cuts to 1994 mW; fresh every 422 ms at worst."""
    write(tmp_path, ina3221x(f"{DRIVER}/6-0040/iio:device0", NANO))
    sensor = Ina3221x(SensorWorld(tmp_path))
    found, reading = sensor.describe(), sensor.read()
    assert (reading.power_w, [rail.power_w for rail in reading.rails]) == (1.994, [1.994, 0.121, 0.568])
    assert (found.id, found.scope, found.period_ms) == ("ina3221x:POM_5V_IN", "module", 422.0)
    assert found.resolution_w == pytest.approx(0.008 * 5.088)


def test_the_device_is_found_wherever_it_is(tmp_path):
    """Recordings of the devices alone, of the boards and releases there were."""
    for folder, place in in_folders(
        tmp_path,
        [
            "sys/devices/50000000.host1x/546c0000.i2c/i2c-6/6-0040/iio:device0",
            "sys/devices/3160000.i2c/i2c-0/0-0041/iio_device",
            "sys/devices/platform/7000c400.i2c/i2c-1/1-0040/iio_device",
            "sys/bus/iio/devices/iio:device0",
        ],
    ):
        write(folder, ina3221x(place, NANO))
        assert Ina3221x(SensorWorld(folder)).read().power_w == 1.994, f"{place!r}"


def test_without_power_files_it_is_voltage_times_current(tmp_path):
    """Of a recording that kept those only."""
    files = {path: text for path, text in ina3221x(f"{DRIVER}/6-0040/iio:device0", NANO).items() if "in_power" not in path}
    write(tmp_path, files)
    assert Ina3221x(SensorWorld(tmp_path)).read().power_w == pytest.approx(1.994496)


def test_agx_xavier_adds_up_both_its_chips_once(tmp_path):
    """By driver, by address and by IIO: copies that a recording made of the links."""
    for place in (DRIVER, "sys/bus/i2c/devices"):
        for number, channels in enumerate(AGX_XAVIER):
            write(tmp_path, ina3221x(f"{place}/1-004{number}/iio:device{number}", channels))
    write(tmp_path, ina3221x("sys/bus/iio/devices/iio:device1", AGX_XAVIER[1]))
    write(tmp_path, {"sys/bus/iio/devices/iio:device2/name": "adc\n"})
    reading = Ina3221x(SensorWorld(tmp_path)).read()
    assert reading.power_w == pytest.approx((465 + 465 + 1240 + 0 + 310 + 2754) / 1000)
    assert len(reading.rails) == 6


@pytest.mark.parametrize("name", ["iio_device", "iio:device0"])
def test_devices_of_one_name_are_distinguished_by_their_address(tmp_path, name):
    """Some kernels call each of them iio_device; and a recording may be put together by hand."""
    for number, channels in enumerate(AGX_XAVIER):
        write(tmp_path, ina3221x(f"{DRIVER}/1-004{number}/{name}", channels))
    assert len(Ina3221x(SensorWorld(tmp_path)).read().rails) == 6


def test_tx2_is_its_module_and_not_its_carrier(tmp_path):
    """VDD_MUX feeds the carrier beside VDD_IN, and not through it."""
    write(
        tmp_path, ina3221x(f"{DRIVER}/0-0041/iio:device1", [("VDD_IN", 19096, 160), ("VDD_SYS_CPU", 19096, 16), ("VDD_SYS_DDR", 4784, 184)])
    )
    write(tmp_path, ina3221x(f"{DRIVER}/0-0042/iio:device2", [("VDD_MUX", 19088, 300), ("VDD_5V0_IO_SYS", 4984, 520)]))
    sensor = Ina3221x(SensorWorld(tmp_path))
    assert sensor.read().power_w == pytest.approx(3.055)
    assert "carrier board" in sensor.describe().excludes


def test_a_rail_that_garbles_fails_the_reading(tmp_path):
    """The next one may not."""
    write(tmp_path, ina3221x(f"{DRIVER}/6-0040/iio:device0", NANO))
    sensor = Ina3221x(SensorWorld(tmp_path))
    sensor.describe()
    power = tmp_path / DRIVER / "6-0040/iio:device0/in_power0_input"
    power.write_text("")
    with pytest.raises(TransientError, match="in_power0_input"):
        sensor.read()
    power.write_text("1500\n")
    assert sensor.read().power_w == 1.5
    (tmp_path / DRIVER / "6-0040/iio:device0/rail_name_0").write_text("")
    with pytest.raises(UnavailableError, match="needs POM_5V_IN"):
        Ina3221x(SensorWorld(tmp_path)).describe()


def test_a_transcript_with_the_shell_s_backslash_is_read(tmp_path):
    """As people type it, before the colon."""
    path = tmp_path / "session.txt"
    folder = f"/{DRIVER}/6-0040/iio\\:device0"
    path.write_text(f"$ cat {folder}/rail_name_0 {folder}/in_power0_input\nPOM_5V_IN\n1994\n")
    with PowerRecording(path) as recording:
        found = recording.read()
    assert (found.name, found.reading.power_w) == ("ina3221x", 1.994)


def test_a_folder_of_the_tree_is_put_in_its_place(tmp_path):
    """As people attach one."""
    for folder, below in in_folders(tmp_path, [DRIVER, f"{DRIVER}/6-0040", f"{DRIVER}/6-0040/iio:device0"]):
        write(folder, ina3221x(f"{DRIVER}/6-0040/iio:device0", NANO))
        with PowerRecording(folder / below) as recording:
            found = recording.read()
        assert (found.name, found.reading.power_w) == ("ina3221x", 1.994), f"{below!r}"


@pytest.mark.captures
def test_the_captured_tree_gives_its_input(captures):
    """4321 mW by in_power0_input; voltage times current would give 4320."""
    with PowerRecording(captures / "jetson/sysfs_jp4_ina3221x_tree_synthetic_values") as recording:
        found = recording.read()
    assert (found.name, found.description.scope, found.reading.power_w) == ("ina3221x", "module", 4.321)
