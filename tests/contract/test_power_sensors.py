"""The contract of `edgemeter.agent.power.PowerSensor`, over every name in the table."""

import importlib.util
import json
import math
import re
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import pytest

from edgemeter.agent import power
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.recording import Recording
from tests.fixtures.machine_trees import write
from tests.fixtures.ordinary_user import closed_mode, ordinary_user

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "power"

# Settings without which a sensor is not read: everything else about one lies in its fixture.
SETTINGS: dict[str, dict[str, str]] = {}
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
def opened(name, monkeypatch):
    """Return what opens a sensor on a recording: a tree, or the one file of its folder; or by the library in it."""
    with ExitStack() as stack:

        def open_sensor(folder):
            for library in folder.glob("*.py"):
                spec = importlib.util.spec_from_file_location(library.stem, library)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                monkeypatch.setitem(sys.modules, library.stem, module)
                return power.create(name, **SETTINGS.get(name, {}))
            path = folder if (folder / "sys").exists() or not _files(folder) else _files(folder)[0]
            world = stack.enter_context(Recording(path)).world
            return power.create(name, world=world, **SETTINGS.get(name, {}))

        yield open_sensor


def _files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_every_sensor_has_a_fixture_and_a_case_here():
    """A sensor that nobody can try is none."""
    assert set(power.SENSORS) == {path.name for path in FIXTURES.iterdir() if path.is_dir() and path.name != "__pycache__"}


@every_sensor
def test_a_present_sensor_says_what_it_is_and_reads(opened, recording):
    """Scope, kind, period; a reading of that kind, finite, stamped by the monotonic clock in order."""
    sensor = opened(recording)
    found = sensor.describe()
    assert found.scope in get_args(Scope)
    assert found.period_ms > 0
    assert found.id
    first, second = sensor.read(), sensor.read()
    values = [reading.power_w if found.kind == "power" else reading.energy_mj for reading in (first, second)]
    assert all(value is not None and math.isfinite(value) for value in values)
    assert found.kind == "energy" or first.energy_mj is None
    assert second.taken_ns >= first.taken_ns > 0
    sensor.close()


@every_sensor
def test_constructing_a_sensor_touches_nothing(opened, tmp_path):
    """An absent sensor can be constructed and closed."""
    opened(tmp_path).close()


@every_sensor
def test_an_absent_sensor_says_so_in_one_line(name, opened, tmp_path):
    """By describe and by read: absent, or a setting is missing; which is no fault of the machine."""
    for method in ("describe", "read"):
        sensor = opened(tmp_path)
        with pytest.raises(ConfigError if name == "replay" else AbsentError) as caught:
            getattr(sensor, method)()
        assert len(str(caught.value)) > 20
        assert "\n" not in str(caught.value)
        sensor.close()


@every_recorded_sensor
@pytest.mark.parametrize("spoil", ["empty", "garbled", "cut", "folder"])
def test_a_spoiled_source_ends_in_one_of_our_errors(opened, recording, spoil):
    """Every file empty, garbage, cut in half, or a folder: an error of ours, and never a made-up number."""
    for path in _files(recording):
        content = path.read_bytes()
        path.unlink()
        if spoil == "folder":
            path.mkdir()
        else:
            path.write_bytes({"empty": b"", "garbled": b"\xff\xfe\x00garbage\n", "cut": content[: len(content) // 2]}[spoil])
    sensor = opened(recording)
    caught = None
    try:
        sensor.describe()
        reading = sensor.read()
        assert spoil == "cut"
        assert math.isfinite(reading.power_w if reading.power_w is not None else reading.energy_mj)
    except (UnavailableError, ConfigError) as error:
        caught = error
    assert caught is None or "\n" not in str(caught)
    sensor.close()


@every_recorded_sensor
def test_a_source_that_breaks_while_reading_is_an_error_of_ours(opened, recording):
    """The files go between two reads: transient, unavailable, or the sensor had all it needs; never a foreign exception."""
    sensor = opened(recording)
    sensor.describe()
    before = sensor.read()
    shutil.rmtree(recording)
    try:
        after = sensor.read()
    except (TransientError, UnavailableError):
        after = None
    assert after is None or after.taken_ns >= before.taken_ns
    sensor.close()


@every_sensor
def test_closing_twice_does_no_harm(opened, recording):
    """After use, and without any."""
    sensor = opened(recording)
    sensor.close()
    sensor.close()
    sensor = opened(recording)
    sensor.describe()
    sensor.read()
    sensor.close()
    sensor.close()


@every_sensor
def test_an_unknown_setting_is_refused_by_its_name(name):
    """A typing error in the configuration must not be ignored."""
    with pytest.raises(ConfigError, match="wattage"):
        power.create(name, wattage="9")


def test_an_unknown_sensor_is_refused_with_those_there_are():
    """The message lists the table."""
    with pytest.raises(ConfigError, match="rapl"):
        power.create("wattmeter")


@every_recorded_sensor
def test_a_source_that_we_may_not_read_is_an_error_of_ours(opened, recording):
    """As an ordinary user before files of somebody else's."""
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(shutil.copytree(recording, Path(folder) / "recording"))
        for path in _files(closed):
            path.chmod(closed_mode())
        with ordinary_user(), pytest.raises((UnavailableError, ConfigError), match=re.escape(folder)):
            opened(closed).describe()


@every_recorded_sensor
def test_a_recording_finds_its_own_reader(name, recording):
    """Without being told which: a tree by what is in it, a file by its form."""
    path = recording if (recording / "sys").exists() else _files(recording)[0]
    with Recording(path) as source:
        assert source.read().name == name


def test_the_replay_fixture_is_valid_json():
    """It is also the example that the documentation shows."""
    document = json.loads((FIXTURES / "replay" / "trace.json").read_text())
    assert len(document["t_s"]) == len(document["power_w"])
