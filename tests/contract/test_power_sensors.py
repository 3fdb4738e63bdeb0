"""The contract of `edgemeter.agent.power.PowerSensor`, over every name in the table."""

import importlib.util
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

from edgemeter.agent import power
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.conformance.sensors import CHECKS, SensorCase
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.recording import PowerRecording
from tests.fixtures.machine_trees import write
from tests.fixtures.ordinary_user import closed_mode, ordinary_user
from tests.fixtures.recordings import read_recording

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "power"


def _counted(name, moved):
    """Return what adds `moved` to a number of the recording, and that a second passed meanwhile."""

    def later(folder):
        (path,) = [path for path in folder.rglob(name) if path.is_file()]
        before, after = moved
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))
        return 1.0

    return later


def _passed(_folder):
    """Let the counter of the played GPU go on, which needs no file."""
    begin = time.monotonic()
    time.sleep(0.1)
    return time.monotonic() - begin


# What each counter showed a second later: 30 W of a processor, 4.6 W of a board.
LATER = {
    "rapl": _counted("intel-rapl:0/energy_uj", ("183204412871", "183234412871")),
    "joulescope": _counted("value.json", ("22.95", "27.54")),
    "nvml": _passed,
}
every_sensor = pytest.mark.parametrize("name", sorted(power.SENSORS))
# A sensor that is read by a library has one in its fixture that plays the real one's part, and no recordings.
RECORDED = [name for name in sorted(power.SENSORS) if not list((FIXTURES / name).glob("*.py"))]
every_recorded_sensor = pytest.mark.parametrize("name", RECORDED)


@pytest.fixture
def recording(name, tmp_path):
    """Return a copy of the sensor's fixture that a test may spoil; a recorded tree is kept as one file, paths and contents."""
    copy = Path(shutil.copytree(FIXTURES / name, tmp_path / name))
    tree = copy / "tree.json"
    if tree.exists():
        write(copy, json.loads(tree.read_text()))
        tree.unlink()
    return copy


@pytest.fixture
def case(name, recording, monkeypatch):
    """Return what the contract is checked with; a sensor that is read by a library gets the one in its fixture."""

    def open_by_library(folder):
        for library in folder.glob("*.py"):
            spec = importlib.util.spec_from_file_location(library.stem, library)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            monkeypatch.setitem(sys.modules, library.stem, module)
        return power.create(name)

    opens = None if name in RECORDED else open_by_library
    absent = ConfigError if name == "replay" else AbsentError
    return SensorCase(name, recording, opens=opens, absent_error=absent, later=LATER.get(name))


def _files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_every_sensor_has_a_fixture_and_a_case_here():
    """A sensor that nobody can try is none."""
    assert set(power.SENSORS) == {path.name for path in FIXTURES.iterdir() if path.is_dir() and path.name != "__pycache__"}


@every_sensor
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_sensor_keeps_the_contract(check, case, tmp_path):
    """The checks that ship, over every sensor and its recording."""
    (tmp_path / "empty").mkdir()
    check(case, tmp_path / "empty")


def test_an_unknown_sensor_is_refused_with_those_there_are():
    """The message lists the table."""
    with pytest.raises(ConfigError, match="rapl"):
        power.create("wattmeter")


@every_recorded_sensor
def test_a_source_that_we_may_not_read_is_an_error_of_ours(name, recording):
    """As an ordinary user before files of somebody else's."""
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(shutil.copytree(recording, Path(folder) / "recording"))
        for path in _files(closed):
            path.chmod(closed_mode())
        with ordinary_user(), pytest.raises((UnavailableError, ConfigError), match=re.escape(folder)):
            power.create(name, world=PowerRecording(closed if (closed / "sys").exists() else _files(closed)[0]).world).describe()


@every_recorded_sensor
def test_a_recording_finds_its_own_reader(name, recording):
    """Without being told which: a tree by what is in it, a file by its form."""
    path = recording if (recording / "sys").exists() else _files(recording)[0]
    assert read_recording(path).name == name


def test_the_replay_fixture_is_valid_json():
    """It is also the example that the documentation shows."""
    document = json.loads((FIXTURES / "replay" / "trace.json").read_text())
    assert len(document["t_s"]) == len(document["power_w"])
