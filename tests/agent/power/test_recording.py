"""Facts about `edgemeter.agent.power.recording`."""

import tempfile
from pathlib import Path

import pytest

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.power.recording import Recording
from tests.fixtures.machine_trees import intel_pc, rapl_zone, write
from tests.fixtures.ordinary_user import closed_mode, ordinary_user
from tests.fixtures.power.make_usb_meters import fnirsi_packet

TRACE = '{"scope": "module", "t_s": [0, 1], "power_w": [2.5, 2.5]}'


def test_a_tree_is_read_by_the_sensor_that_is_in_it(tmp_path):
    """Laid out as /: the real driver finds its files."""
    with Recording(intel_pc(tmp_path)) as recording:
        found = recording.read()
    assert (found.name, found.description.scope, found.reading.energy_mj) == ("rapl", "cpu-package", 0.0)


@pytest.mark.parametrize("below", ["sys/class/powercap", "sys/class/powercap/intel-rapl:0"])
def test_a_part_of_a_tree_is_put_in_its_place(tmp_path, below):
    """The class folder alone, and one device alone, as people record them."""
    write(tmp_path, rapl_zone("intel-rapl:0", "package-0", 5_000))
    with Recording(tmp_path / below) as recording:
        assert recording.read("rapl").description.id == "rapl:package-0"


def test_a_tree_may_lie_in_a_folder_of_its_own(tmp_path):
    """As an archive is unpacked."""
    write(tmp_path / "board-17", rapl_zone("intel-rapl:0", "package-0", 5_000))
    with Recording(tmp_path) as recording:
        assert recording.read().description.id == "rapl:package-0"


def test_a_file_is_read_by_the_sensor_that_knows_its_form(tmp_path):
    """Without being told which; and with it."""
    path = tmp_path / "a file"
    path.write_text(TRACE)
    for name in (None, "replay"):
        with Recording(path) as recording:
            found = recording.read(name)
        assert (found.name, found.reading.power_w) == ("replay", 2.5)


def test_an_empty_file_says_so(tmp_path):
    """Whoever recorded it does not need to know the names of sensors."""
    (tmp_path / "capture").write_text(" \n")
    with Recording(tmp_path / "capture") as recording, pytest.raises(UnavailableError, match="is empty"):
        recording.read()


def test_a_file_that_no_sensor_knows_names_those_there_are(tmp_path):
    """Rather than a number from the wrong reader."""
    path = tmp_path / "notes.txt"
    path.write_text("the board drew 5 W\n")
    with Recording(path) as recording, pytest.raises(ConfigError, match=r"--as .*rapl"):
        recording.read()


def test_a_tree_without_a_sensor_says_how_one_is_laid_out(tmp_path):
    """An empty folder is no recording."""
    with Recording(tmp_path) as recording, pytest.raises(UnavailableError, match="laid out as /"):
        recording.read()


def test_an_error_names_the_place_on_the_recorded_machine(tmp_path):
    """Not where our links lie."""
    (tmp_path / "name").write_text("package-0\n")
    (tmp_path / "max_energy_range_uj").write_text("1000\n")
    with Recording(tmp_path) as recording, pytest.raises(UnavailableError, match="'/sys/class/powercap/intel-rapl:0/energy_uj'"):
        recording.read("rapl")


def test_a_recording_that_may_not_be_read_says_so():
    """A file and a folder, as an ordinary user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "file").write_text(TRACE)
        (Path(folder) / "tree").mkdir()
        for name in ("file", "tree"):
            path = Path(folder) / name
            path.chmod(closed_mode())
            with ordinary_user(), pytest.raises(ConfigError, match=f"{name}': Permission denied"):
                Recording(path)
            path.chmod(0o700)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    """It would only fill the memory."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        Recording(path)


def test_a_transcript_of_what_cannot_be_is_refused(tmp_path):
    """One path as a file and as a folder: two machines in one text."""
    path = tmp_path / "transcript"
    path.write_text("/sys/a/b:1\n/sys/a/b/c:2\n")
    with pytest.raises(ConfigError, match="as a file and as a folder"):
        Recording(path)


def test_a_warning_names_the_place_on_the_recorded_machine_too(tmp_path):
    """Not where our tree lies that was built out of a transcript."""
    path = tmp_path / "transcript"
    path.write_text(
        "$ cat /sys/class/hwmon/hwmon1/{in1_label,in1_input,curr1_input}\nVDD_IN\n5000\n1000\n"
        "$ cat /sys/class/hwmon/hwmon1/{in2_label,in2_input,curr2_input}\nVDD_SOC\n"
        "cat: /sys/class/hwmon/hwmon1/in2_input: No data available\n0\n"
    )
    with Recording(path) as recording:
        (warning,) = recording.read().description.warnings
    assert "cannot read '/sys/class/hwmon/hwmon1/in2_input': No data available" in warning


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_text_that_a_windows_shell_wrote_is_read(tmp_path, encoding):
    """It puts a mark before it, and may write each letter as two bytes."""
    path = tmp_path / "tegrastats.txt"
    text = "RAM 2310/7620MB (lfb 24x4MB) VDD_IN 7160mW/6740mW VDD_CPU_GPU_CV 1760mW/1440mW VDD_SOC 2088mW/2068mW\r\n"
    path.write_bytes(("\ufeff" if encoding == "utf-16-be" else "").encode(encoding) + text.encode(encoding))
    with Recording(path) as recording:
        found = recording.read()
    assert (found.name, found.reading.power_w) == ("tegrastats", 7.16)


def test_bytes_may_be_written_as_hexadecimal_digits(tmp_path):
    """As people put them into a text."""
    path = tmp_path / "packet.txt"
    path.write_text("\n".join(fnirsi_packet([(5.0, 2.0)] * 4).hex(" ")[at : at + 48] for at in range(0, 192, 48)))
    with Recording(path) as recording:
        found = recording.read()
    assert (found.name, found.reading.power_w) == ("fnirsi", 10.0)
