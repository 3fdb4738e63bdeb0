"""Facts about `edgemeter.agent.power.transcript`."""

import pytest

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.power.transcript import files_shown


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("$ cat /sys/a/{name,in0_input}\nina226\n12\n", {"/sys/a/name": "ina226", "/sys/a/in0_input": "12"}),
        ("root@pi:~# cat /sys/a/x /sys/b/y\n1\n2\n", {"/sys/a/x": "1", "/sys/b/y": "2"}),
        ("/sys/class/hwmon/hwmon2/name:ina219\n/sys/class/hwmon/hwmon2/in1_input:5000\n", {
            "/sys/class/hwmon/hwmon2/name": "ina219", "/sys/class/hwmon/hwmon2/in1_input": "5000"}),
        ("/sys/class/powercap/intel-rapl:0/name:package-0\n", {"/sys/class/powercap/intel-rapl:0/name": "package-0"}),
        ("==> /sys/a/name <==\nina3221\n\n==> /sys/a/in1_input <==\n19200\n", {"/sys/a/name": "ina3221", "/sys/a/in1_input": "19200"}),
        ("$ cd /sys/class/hwmon/hwmon2\n$ cat name in1_input\nina219\n5040\n", {
            "/sys/class/hwmon/hwmon2/name": "ina219", "/sys/class/hwmon/hwmon2/in1_input": "5040"}),
        ("$ cd /sys/class/hwmon/hwmon2 && sudo cat {name,in1_input}\nina219\n5040\n", {
            "/sys/class/hwmon/hwmon2/name": "ina219", "/sys/class/hwmon/hwmon2/in1_input": "5040"}),
        ("pi@pi:/sys/class/hwmon/hwmon2$ cat name in1_input\nina219\n5040\npi@pi:/sys/class/hwmon/hwmon2$ ", {
            "/sys/class/hwmon/hwmon2/name": "ina219", "/sys/class/hwmon/hwmon2/in1_input": "5040"}),
        ("$ cat name in1_input\nina219\n5040\n", {}),
        ("==> in1_input <==\n5040\n\n==> name <==\nina219\n", {
            "/sys/class/hwmon/hwmon0/in1_input": "5040", "/sys/class/hwmon/hwmon0/name": "ina219"}),
        ("rail_name_0:VDD_IN\nin_power0_input:4321\n", {
            "/sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0/rail_name_0": "VDD_IN",
            "/sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0/in_power0_input": "4321"}),
        ("BAT1/status:Discharging\nBAT1/power_now:7320000\n", {
            "/sys/class/power_supply/BAT1/status": "Discharging", "/sys/class/power_supply/BAT1/power_now": "7320000"}),
        ("$ cat */uevent\nPOWER_SUPPLY_NAME=AC\nPOWER_SUPPLY_ONLINE=0\nPOWER_SUPPLY_NAME=BAT0\nPOWER_SUPPLY_TYPE=UPS\n", {
            "/sys/class/power_supply/AC/uevent": "POWER_SUPPLY_NAME=AC\nPOWER_SUPPLY_ONLINE=0",
            "/sys/class/power_supply/BAT0/uevent": "POWER_SUPPLY_NAME=BAT0\nPOWER_SUPPLY_TYPE=UPS"}),
        ("/sys/class/power_supply/B/uevent:POWER_SUPPLY_NAME=B\n/sys/class/power_supply/B/uevent:POWER_SUPPLY_TYPE=UPS\n", {
            "/sys/class/power_supply/B/uevent": "POWER_SUPPLY_NAME=B\nPOWER_SUPPLY_TYPE=UPS"}),
        ("name: my board\nstatus: fine\n", {}),
        ("/sys/a/b:" + "1" * 5000, {}),
        ("RAM 534/3964MB CPU [1%@204] POM_5V_IN 1022/1022\n", {}),
        ('{"apower": 25.7}', {}),
        ("$ cat /sys/../etc/shadow\nroot\n", {}),
    ],
)  # fmt: skip
def test_a_transcript_of_files_becomes_a_tree(text, files):
    """`cat` with braces or several files, `grep .`, `head`/`tail` with headings; nothing outside, and nothing that is none."""
    assert files_shown(text) == files


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("$ cat /sys/a/{x,y,z}\n1\n2\n", "fewer"),
        ("$ cat /sys/a/{x,y,z}\n1\n2\n$ cat /sys/a/w\n4\n", "fewer"),
        ("$ cat /sys/a/{x,y}\n1\n1\n2\n", "more"),
        ("pi@pi:/sys/a$ cat x y z\n1\n2\n", "fewer"),
    ],
)
def test_values_that_do_not_fit_their_files_are_refused(text, count):
    """A line that is lost or doubled would give each value to the next file."""
    with pytest.raises(ConfigError, match=f"{count} values: which is whose is not known"):
        files_shown(text)


def test_a_file_that_was_refused_has_no_value_to_come():
    """The others keep theirs; with the error's own path or, within a folder, its name."""
    text = "pi@pi:/sys/a$ cat x y z\n1\ncat: y: No data available\n3\n$ ls\n"
    assert files_shown(text) == {"/sys/a/x": "1", "/sys/a/y": "cat: y: No data available", "/sys/a/z": "3"}
    assert files_shown("$ cat /sys/a/{x,y}\ncat: /sys/a/y: No such file or directory\n1\n") == {"/sys/a/x": "1"}
