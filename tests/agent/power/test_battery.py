"""Facts about `edgemeter.agent.power.battery`."""

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.battery import Battery
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.machine_trees import write
from tests.fixtures.recordings import read_recording
from tests.fixtures.rows import in_folders, table_row

BASE = "sys/class/power_supply"


def _supply(root, name="BAT0", **files):
    values = {"type": "Battery", "status": "Discharging", "power_now": 6123000} | files
    return write(root, {f"{BASE}/{name}/{key}": f"{value}\n" for key, value in values.items() if value is not None})


def _sensor(root):
    return Battery(SensorWorld(root))


def test_a_discharging_battery_gives_the_boards_power(tmp_path):
    """Microwatts of the kernel become watts; the scope is the input of the board."""
    sensor = _sensor(_supply(tmp_path))
    description = sensor.describe()
    assert description.id == "battery:BAT0"
    assert description.scope == "board-input"
    assert description.kind == "power"
    assert description.period_ms == 1000
    assert sensor.read().power_w == pytest.approx(6.123)


def test_a_ups_that_the_kernel_calls_one_is_read_too(tmp_path):
    """It feeds the board as a battery does."""
    assert _sensor(_supply(tmp_path, name="ups0", type="UPS")).read().power_w == pytest.approx(6.123)


def test_a_gauge_whose_power_stays_zero_is_read_by_its_current(tmp_path):
    """Nothing discharges with 0 W: 1.1 A x 11 V where the gauge has them, else no number."""
    root = _supply(tmp_path, power_now=0, current_now=-1100000, voltage_now=11000000)
    assert _sensor(root).read().power_w == pytest.approx(12.1)
    with pytest.raises(TransientError, match="shows no power"):
        _sensor(_supply(tmp_path, power_now=0, current_now=0, voltage_now=11000000)).read()


@pytest.mark.parametrize("sign", [1, -1])
def test_current_times_voltage_whatever_the_drivers_sign(tmp_path, sign):
    """0.54 A x 11.4 V; some drivers make a current that flows out negative, some positive."""
    root = _supply(tmp_path, power_now=None, current_now=sign * 540000, voltage_now=11400000)
    assert _sensor(root).read().power_w == pytest.approx(6.156)


def test_a_battery_that_does_not_feed_the_machine_is_no_number(tmp_path):
    """Its power is then what the charger gives."""
    for folder, status in in_folders(tmp_path, ["Charging", "Full", "Not charging", "Unknown", "garbage", None]):
        with table_row(status), pytest.raises(UnavailableError, match="unplug") as refusal:
            _sensor(_supply(folder, status=status)).describe()
        assert not isinstance(refusal.value, AbsentError), f"{status!r}"


def test_an_adapter_beside_the_battery_is_refused(tmp_path):
    """A weak one feeds a part of what is drawn; one that is not plugged in feeds nothing."""
    for folder, kind in in_folders(tmp_path, ["Mains", "USB", "Wireless"]):
        with table_row(kind):
            root = _supply(folder)
            _supply(folder, "AC", type=kind, status=None, power_now=None, online=0)
            sensor = _sensor(root)
            assert sensor.read().power_w == pytest.approx(6.123)
            (root / BASE / "AC/online").write_text("1\n")
            with pytest.raises(UnavailableError, match="AC feeds the machine in addition"):
                sensor.read()


def test_a_charger_that_comes_while_measuring_ends_it(tmp_path):
    """The next reading would be the charger's."""
    root = _supply(tmp_path)
    sensor = _sensor(root)
    sensor.describe()
    _supply(tmp_path, status="Charging")
    with pytest.raises(UnavailableError, match="Charging"):
        sensor.read()


def test_two_batteries_add_up_and_a_resting_one_is_left_out(tmp_path):
    """As laptops with two have it."""
    _supply(tmp_path)
    _supply(tmp_path, "BAT1", power_now=2000000)
    assert _sensor(tmp_path).read().power_w == pytest.approx(8.123)
    _supply(tmp_path, "BAT1", status="Not charging", power_now=0)
    reading = _sensor(tmp_path).read()
    assert reading.power_w == pytest.approx(6.123)
    assert [rail.name for rail in reading.rails] == ["BAT0"]
    _supply(tmp_path, "BAT1", status="Charging")
    with pytest.raises(UnavailableError, match="BAT1 is Charging"):
        _sensor(tmp_path).describe()


def test_what_is_no_battery_of_the_machine_is_absent(tmp_path):
    """A mouse's, an empty bay, an adapter, a port."""
    for folder, name, files in in_folders(
        tmp_path,
        [
            ("hidpp_battery_0", {"scope": "Device"}),
            ("BAT0", {"present": 0}),
            ("AC", {"type": "Mains", "status": None}),
            ("ucsi-source-psy-USBC000:001", {"type": "USB"}),
            ("ucsi-source-psy-1-0008", {}),
        ],
    ):
        with table_row(name), pytest.raises(AbsentError):
            _sensor(_supply(folder, name, **files)).describe()


def test_a_gauge_without_current_has_no_power(tmp_path):
    """A MAX17040 knows voltage and charge."""
    with pytest.raises(UnavailableError, match="cannot measure power"):
        _sensor(_supply(tmp_path, power_now=None, voltage_now=3900000, capacity=80)).describe()


def test_what_no_battery_can_be_is_no_number(tmp_path):
    """More digits than the kernel has, and a voltage below zero."""
    for folder, files in in_folders(
        tmp_path,
        [
            {"power_now": "9" * 400},
            {"power_now": "9223372036854775807"},
            {"power_now": "1_000"},
            {"current_now": "1000000", "voltage_now": "-7600000"},
        ],
    ):
        write(
            folder,
            {f"sys/class/power_supply/BAT0/{name}": text for name, text in {"type": "Battery", "status": "Discharging", **files}.items()},
        )
        with table_row(files), pytest.raises(UnavailableError):
            Battery(SensorWorld(folder)).describe()


def test_a_gauge_that_garbles_is_no_number(tmp_path):
    """Once while reading, for good when describing."""
    root = _supply(tmp_path)
    sensor = _sensor(root)
    sensor.describe()
    _supply(tmp_path, power_now="6.1 W")
    with pytest.raises(TransientError, match=r"6\.1 W"):
        sensor.read()
    with pytest.raises(UnavailableError):
        _sensor(root).describe()


UEVENT = (
    "POWER_SUPPLY_NAME=BAT0\nPOWER_SUPPLY_TYPE=Battery\nPOWER_SUPPLY_STATUS=Discharging\nPOWER_SUPPLY_PRESENT=1\n"
    "POWER_SUPPLY_VOLTAGE_NOW=7600000\nPOWER_SUPPLY_CURRENT_NOW=800000\n"
)


def test_transcripts_of_a_shell_are_read(tmp_path):
    """The whole uevent, alone or shown, single files, and an excerpt without the type: 7.6 V x 0.8 A."""
    for text in [
        UEVENT,
        "$ cat /sys/class/power_supply/BAT0/uevent\n" + UEVENT + "user@box:~$ \n",
        "$ cat /sys/class/power_supply/BAT0/{type,status,voltage_now,current_now}\nBattery\nDischarging\n7600000\n800000\n",
        (
            "/sys/class/power_supply/BAT0/status:Discharging\n/sys/class/power_supply/BAT0/voltage_now:7600000\n"
            "/sys/class/power_supply/BAT0/current_now:800000\n"
        ),
    ]:
        path = tmp_path / "report.txt"
        path.write_text(text)
        recording = read_recording(path)
        assert (recording.name, recording.reading.power_w) == ("battery", pytest.approx(6.08)), f"{text!r}"


def test_a_folder_of_supplies_or_one_battery_is_put_in_its_place(tmp_path):
    """As copied from /sys/class/power_supply."""
    _supply(tmp_path)
    for folder in (tmp_path / BASE, tmp_path / BASE / "BAT0"):
        assert read_recording(folder).reading.power_w == pytest.approx(6.123)
