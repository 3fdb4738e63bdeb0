"""Facts about `edgemeter.agent.power.recording`."""

import pytest

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.agent.power.recording import Recording, files_shown
from tests.fixtures.machine_trees import intel_pc, rapl_zone, write

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


def test_a_file_that_is_too_large_is_refused(tmp_path):
    """It would only fill the memory."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        Recording(path)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("$ cat /sys/a/{name,in0_input}\nina226\n12\n", {"/sys/a/name": "ina226", "/sys/a/in0_input": "12"}),
        ("root@pi:~# cat /sys/a/x /sys/b/y\n1\n2\n", {"/sys/a/x": "1", "/sys/b/y": "2"}),
        ("/sys/class/hwmon/hwmon2/name:ina219\n/sys/class/hwmon/hwmon2/in1_input:5000\n", {
            "/sys/class/hwmon/hwmon2/name": "ina219", "/sys/class/hwmon/hwmon2/in1_input": "5000"}),
        ("/sys/class/powercap/intel-rapl:0/name:package-0\n", {"/sys/class/powercap/intel-rapl:0/name": "package-0"}),
        ("==> /sys/a/name <==\nina3221\n\n==> /sys/a/in1_input <==\n19200\n", {"/sys/a/name": "ina3221", "/sys/a/in1_input": "19200"}),
        ("RAM 534/3964MB CPU [1%@204] POM_5V_IN 1022/1022\n", {}),
        ('{"apower": 25.7}', {}),
        ("$ cat /sys/../etc/shadow\nroot\n", {}),
    ],
)  # fmt: skip
def test_a_transcript_of_files_becomes_a_tree(text, files):
    """`cat` with braces or several files, `grep .`, `head`/`tail` with headings; nothing outside, and nothing that is none."""
    assert files_shown(text) == files


def test_a_transcript_of_what_cannot_be_is_refused(tmp_path):
    """One path as a file and as a folder: two machines in one text."""
    path = tmp_path / "transcript"
    path.write_text("/sys/a/b:1\n/sys/a/b/c:2\n")
    with pytest.raises(ConfigError, match="as a file and as a folder"):
        Recording(path)
