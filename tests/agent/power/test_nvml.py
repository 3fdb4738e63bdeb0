"""Facts about `edgemeter.agent.power.nvml`; the library is played, and the real one is asked where it is installed."""

import importlib.util
import sys
from contextlib import closing
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.detect import detect_sensors
from edgemeter.agent.power.nvml import Nvml
from tests.fixtures.rows import table_row

PLAYED = Path(__file__).resolve().parents[2] / "fixtures/power/nvml/pynvml.py"


@pytest.fixture
def library(monkeypatch):
    """Put the played library in place of NVML's."""
    spec = importlib.util.spec_from_file_location("pynvml", PLAYED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_a_gpu_is_read_by_the_best_that_it_has(library):
    """The counter, else the instant power, else the mean of a second, which is noted."""
    for gpu, kind, period_ms, power_w in [
        ({"counter", "instant", "averaged"}, "energy", 100.0, None),
        ({"instant", "averaged"}, "power", 100.0, 61.5),
        ({"averaged"}, "power", 1000.0, 58.25),
    ]:
        with table_row(kind):
            library.GPU = gpu
            with closing(Nvml()) as sensor:
                description, reading = sensor.describe(), sensor.read()
            assert description.id == "nvml:Played GPU:GPU-0"
            assert description.scope == "gpu-board"
            assert description.kind == kind
            assert description.period_ms == period_ms
            assert reading.power_w == power_w
            assert (reading.energy_mj is not None) == (kind == "energy")
            assert any("mean of a second" in warning for warning in description.warnings) == (period_ms == 1000.0)


def test_a_gpu_without_power_is_no_sensor(library):
    """As on a Jetson, where NVML answers and knows no power."""
    library.GPU = set()
    with closing(Nvml()) as sensor, pytest.raises(AbsentError, match="Jetson"):
        sensor.describe()


@pytest.mark.usefixtures("library")
def test_a_gpu_is_chosen_by_number_or_uuid():
    """And a wrong one is a mistake in the configuration."""
    with closing(Nvml("GPU-1")) as sensor:
        assert sensor.describe().id.endswith(":GPU-1")
    for gpu in ("7", "GPU-7"):
        with closing(Nvml(gpu)) as sensor, pytest.raises(ConfigError, match="nvidia-smi -L"):
            sensor.describe()


def test_without_driver_or_library_there_is_no_sensor(library, monkeypatch, tmp_path):
    """Nor below another root."""
    library.FAIL = library.NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    with pytest.raises(AbsentError, match="no NVIDIA driver answers"):
        Nvml().describe()
    with pytest.raises(AbsentError, match="this machine only"):
        Nvml(root=tmp_path).describe()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(AbsentError, match=r"edgemeter\[nvidia\]"):
        Nvml().describe()


def test_a_lost_gpu_is_distinguished_from_a_reading_that_failed(library):
    """The one ends the sensor, the other does not."""
    with closing(Nvml()) as sensor:
        sensor.describe()
        library.FAIL = library.NVMLError("Timeout")
        with pytest.raises(TransientError):
            sensor.read()
        library.FAIL = library.NVMLError_GpuIsLost("GPU is lost")
        with pytest.raises(UnavailableError, match="kernel log"):
            sensor.read()


def test_the_real_library_is_asked():
    """Where there is no GPU it says so; where there is one it gives a reading."""
    pytest.importorskip("pynvml")
    (sensor_found,) = detect_sensors(names=["nvml"])
    if sensor_found.description is None:
        assert sensor_found.is_absent
        assert "NVIDIA" in sensor_found.reason or "no power" in sensor_found.reason
        return
    with closing(Nvml()) as sensor:
        reading = sensor.read()
    assert sensor_found.description.scope == "gpu-board"
    assert (reading.energy_mj or reading.power_w) > 0


def test_what_is_published_of_a_gpus_power_is_described(library, monkeypatch):
    """The mean of a second, or how often it looks and for which share of the time; each with its source."""
    for gpu, name, averaging in [
        ({"averaged"}, "Played GPU", (1.0, None, None)),
        ({"instant"}, "NVIDIA A100-SXM4-40GB", (None, 0.1, 0.25)),
    ]:
        with table_row(name):
            library.GPU = gpu
            monkeypatch.setattr(library, "nvmlDeviceGetName", lambda _, name=name: name)
            with closing(Nvml()) as sensor:
                published = sensor.describe().averaging
            assert (published.window_s, published.update_interval_s, published.seen_ratio) == averaging
            assert set(published.sources.values()) == {"published"}
