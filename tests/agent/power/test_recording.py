"""Recordings: trees, outputs and transcripts, and the sensors that read them."""

import tempfile
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.power import recording
from edgemeter.agent.power.recording import PowerRecording, files_shown
from tests.fixtures.machine_trees import intel_pc, rapl_zone, write
from tests.fixtures.ordinary_user import closed_mode, ordinary_user
from tests.fixtures.power.make_usb_meters import fnirsi_packet
from tests.fixtures.recordings import read_recording
from tests.fixtures.rows import table_row


def test_a_folder_lies_where_its_name_points():
    """As the kernel lays it out."""
    for name, folder in [
        ("hwmon12", "sys/class/hwmon"),
        ("intel-rapl:0:2", "sys/class/powercap"),
        ("BAT1", "sys/class/power_supply"),
        ("7-0040", "sys/bus/i2c/devices"),
        ("class", "sys"),
        ("hwmon", None),
        ("", None),
    ]:
        assert recording.place_of_folder(name) == folder, f"{name!r}"


def test_files_lie_in_the_device_that_has_such():
    """A name that any device has proves nothing."""
    for names, folder in [
        (["name", "in1_input"], "sys/class/hwmon/hwmon0"),
        (["name", "energy_uj"], "sys/class/powercap/intel-rapl:0"),
        (["status", "power_now"], "sys/class/power_supply/recorded"),
        (["rail_name_0", "in_power0_input"], "sys/bus/i2c/drivers/ina3221x/0-0040/iio:device0"),
        (["name", "status"], None),
    ]:
        assert recording.place_of_files(names) == folder, f"{names!r}"


def test_a_transcript_of_files_becomes_a_tree():
    """`cat` with braces or several files, `grep .`, `head`/`tail` with headings; nothing outside, and nothing that is none."""
    for text, files in [
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
    ]:  # fmt: skip
        assert files_shown(text) == files, f"{text!r}"


def test_values_that_do_not_fit_their_files_are_refused():
    """A line that is lost or doubled would give each value to the next file."""
    for text, count in [
        ("$ cat /sys/a/{x,y,z}\n1\n2\n", "fewer"),
        ("$ cat /sys/a/{x,y,z}\n1\n2\n$ cat /sys/a/w\n4\n", "fewer"),
        ("$ cat /sys/a/{x,y}\n1\n1\n2\n", "more"),
        ("pi@pi:/sys/a$ cat x y z\n1\n2\n", "fewer"),
    ]:
        with table_row(text), pytest.raises(ConfigError, match=f"{count} values: which is whose is not known"):
            files_shown(text)


def test_a_file_that_was_refused_has_no_value_to_come():
    """The others keep theirs; with the error's own path or, within a folder, its name."""
    text = "pi@pi:/sys/a$ cat x y z\n1\ncat: y: No data available\n3\n$ ls\n"
    assert files_shown(text) == {"/sys/a/x": "1", "/sys/a/y": "cat: y: No data available", "/sys/a/z": "3"}
    assert files_shown("$ cat /sys/a/{x,y}\ncat: /sys/a/y: No such file or directory\n1\n") == {"/sys/a/x": "1"}


TRACE = '{"scope": "module", "t_s": [0, 1], "power_w": [2.5, 2.5]}'


def test_a_tree_is_read_by_the_sensor_that_is_in_it(tmp_path):
    """Laid out as /: the real driver finds its files."""
    recording = read_recording(intel_pc(tmp_path))
    assert (recording.name, recording.description.scope, recording.reading.energy_mj) == ("rapl", "cpu-package", 0.0)


@pytest.mark.parametrize("below", ["sys/class/powercap", "sys/class/powercap/intel-rapl:0"])
def test_a_part_of_a_tree_is_put_in_its_place(tmp_path, below):
    """The class folder alone, and one device alone, as people record them."""
    write(tmp_path, rapl_zone("intel-rapl:0", "package-0", 5_000))
    assert read_recording(tmp_path / below, "rapl").description.id == "rapl:package-0"


def test_a_tree_may_lie_in_a_folder_of_its_own(tmp_path):
    """As an archive is unpacked."""
    write(tmp_path / "board-17", rapl_zone("intel-rapl:0", "package-0", 5_000))
    assert read_recording(tmp_path).description.id == "rapl:package-0"


def test_a_file_is_read_by_the_sensor_that_knows_its_form(tmp_path):
    """Without the option that names it, and with it."""
    path = tmp_path / "a file"
    path.write_text(TRACE)
    for name in (None, "replay"):
        recording = read_recording(path, name)
        assert (recording.name, recording.reading.power_w) == ("replay", 2.5)


def test_an_empty_file_is_reported(tmp_path):
    """Whoever recorded it does not need to know the names of sensors."""
    (tmp_path / "capture").write_text(" \n")
    with pytest.raises(UnavailableError, match="is empty"):
        read_recording(tmp_path / "capture")


def test_a_file_that_no_sensor_knows_names_those_there_are(tmp_path):
    """Rather than a number from the wrong reader."""
    path = tmp_path / "notes.txt"
    path.write_text("the board drew 5 W\n")
    with pytest.raises(ConfigError, match=r"--as .*rapl"):
        read_recording(path)


def test_a_tree_without_a_sensor_shows_how_one_is_laid_out(tmp_path):
    """An empty folder is no recording."""
    with pytest.raises(UnavailableError, match="laid out as /"):
        read_recording(tmp_path)


def test_an_error_names_the_place_on_the_recorded_machine(tmp_path):
    """Not where our links lie."""
    (tmp_path / "name").write_text("package-0\n")
    (tmp_path / "max_energy_range_uj").write_text("1000\n")
    with pytest.raises(UnavailableError, match="'/sys/class/powercap/intel-rapl:0/energy_uj'"):
        read_recording(tmp_path, "rapl")


def test_a_recording_that_may_not_be_read_is_reported():
    """A file and a folder, as an ordinary user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "file").write_text(TRACE)
        (Path(folder) / "tree").mkdir()
        for name in ("file", "tree"):
            path = Path(folder) / name
            path.chmod(closed_mode())
            with ordinary_user(), pytest.raises(ConfigError, match=f"{name}': Permission denied"):
                PowerRecording(path)
            path.chmod(0o700)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    """It would only fill the memory."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        PowerRecording(path)


def test_a_transcript_of_what_cannot_be_is_refused(tmp_path):
    """One path as a file and as a folder: two machines in one text."""
    path = tmp_path / "transcript"
    path.write_text("/sys/a/b:1\n/sys/a/b/c:2\n")
    with pytest.raises(ConfigError, match="as a file and as a folder"):
        PowerRecording(path)


def test_a_warning_names_the_place_on_the_recorded_machine_too(tmp_path):
    """Not where our tree lies that was built out of a transcript."""
    path = tmp_path / "transcript"
    path.write_text(
        "$ cat /sys/class/hwmon/hwmon1/{in1_label,in1_input,curr1_input}\nVDD_IN\n5000\n1000\n"
        "$ cat /sys/class/hwmon/hwmon1/{in2_label,in2_input,curr2_input}\nVDD_SOC\n"
        "cat: /sys/class/hwmon/hwmon1/in2_input: No data available\n0\n"
    )
    (warning,) = read_recording(path).description.warnings
    assert "cannot read '/sys/class/hwmon/hwmon1/in2_input': No data available" in warning


def test_a_text_that_a_windows_shell_wrote_is_read(tmp_path):
    """It puts a mark before it, and may write each letter as two bytes."""
    for encoding in ["utf-8-sig", "utf-16", "utf-16-be"]:
        path = tmp_path / "tegrastats.txt"
        text = "RAM 2310/7620MB (lfb 24x4MB) VDD_IN 7160mW/6740mW VDD_CPU_GPU_CV 1760mW/1440mW VDD_SOC 2088mW/2068mW\r\n"
        path.write_bytes(("\ufeff" if encoding == "utf-16-be" else "").encode(encoding) + text.encode(encoding))
        recording = read_recording(path)
        assert (recording.name, recording.reading.power_w) == ("tegrastats", 7.16), f"{encoding!r}"


def test_bytes_may_be_written_as_hexadecimal_digits(tmp_path):
    """As people put them into a text."""
    path = tmp_path / "packet.txt"
    path.write_text("\n".join(fnirsi_packet([(5.0, 2.0)] * 4).hex(" ")[at : at + 48] for at in range(0, 192, 48)))
    recording = read_recording(path)
    assert (recording.name, recording.reading.power_w) == ("fnirsi", 10.0)
