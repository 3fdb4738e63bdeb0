"""Facts about `edgemeter.agent.power.nvml`, mostly with a played library.

The real library is asked where it is installed.
"""

import importlib.util
import sys
from contextlib import closing
from pathlib import Path

import pytest

from edgemeter.agent import power
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


def _sensor(library, **settings):
    def sleep(seconds):
        library.NOW_S += seconds

    return Nvml(**settings, clock=lambda: round(1e9 * library.NOW_S), sleep=sleep)


def test_a_counter_that_contradicts_the_power_is_named_and_not_believed(library):
    """A counter that shows 37 W of 182 W is not used, and the power is read instead.

    A counter is believed if it is within 5%, or if the power changes during the comparison.
    """
    library.GPU = {"counter", "instant", "averaged"}
    for counted_w, shown_w, kind in [
        (37.0, 182.0, "power"),
        (182.0, 37.0, "power"),
        (0.0, 75.0, "power"),
        (171.0, 182.0, "energy"),
        (0.0, 0.0, "energy"),
    ]:
        with table_row(counted_w, shown_w), closing(_sensor(library)) as sensor:
            library.COUNTED_W, library.SHOWN_W = counted_w, shown_w
            description = sensor.describe()
            named = [warning for warning in description.warnings if "not believed" in warning]
            assert description.kind == kind
            assert [
                f"{counted_w:.3g} W and its power {shown_w:.3g} W" in warning for warning in named
            ] == [True] * (kind == "power")
            reading = sensor.read()
            assert (reading.power_w is None) == (kind == "energy")
            assert reading.power_w in (None, pytest.approx(shown_w))


def test_a_load_that_ends_while_counter_and_power_are_compared_is_no_contradiction(library):
    """Only the counter has seen the load of the first tenths of a second."""
    library.GPU = {"counter", "instant"}

    def counter(_):
        return int(1000 * (400 * min(library.NOW_S, 0.5) + 60 * max(library.NOW_S - 0.5, 0)))

    library.nvmlDeviceGetTotalEnergyConsumption, library.SHOWN_W = counter, 60.0
    with closing(_sensor(library)) as sensor:
        assert sensor.describe().kind == "energy"


def test_a_gpu_is_read_by_the_best_that_it_has(library):
    """The counter is preferred to the instant power, and that to the mean of a second."""
    for gpu, kind, period_ms, power_w in [
        ({"counter", "instant", "averaged"}, "energy", 100.0, None),
        ({"instant", "averaged"}, "power", 100.0, 61.5),
        ({"averaged"}, "power", 1000.0, 58.25),
    ]:
        with table_row(kind):
            library.GPU = gpu
            with closing(_sensor(library)) as sensor:
                description, reading = sensor.describe(), sensor.read()
            assert description.id == "nvml:Played GPU:GPU-0"
            assert description.scope == "gpu-board"
            assert description.kind == kind
            assert description.period_ms == period_ms
            assert reading.power_w == power_w
            assert (reading.energy_mj is not None) == (kind == "energy")


def test_a_gpu_without_power_is_no_sensor(library):
    """On a Jetson NVML answers but has no power."""
    library.GPU = set()
    with closing(Nvml()) as sensor, pytest.raises(AbsentError, match="Jetson"):
        sensor.describe()


@pytest.mark.usefixtures("library")
def test_a_gpu_is_chosen_by_number_or_uuid():
    """A number or UUID that does not exist is an error in the configuration."""
    with closing(Nvml("GPU-1")) as sensor:
        assert sensor.describe().id.endswith(":GPU-1")
    for gpu in ("7", "GPU-7"):
        with closing(Nvml(gpu)) as sensor, pytest.raises(ConfigError, match="nvidia-smi -L"):
            sensor.describe()


def test_without_driver_or_library_there_is_no_sensor(library, monkeypatch, tmp_path):
    """Nor is there a sensor below another root."""
    library.FAIL = library.NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    with pytest.raises(AbsentError, match="no NVIDIA driver answers"):
        Nvml().describe()
    with pytest.raises(AbsentError, match="this machine only"):
        Nvml(root=tmp_path).describe()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(AbsentError, match=r"edgemeter\[nvidia\]"):
        Nvml().describe()


def test_a_lost_gpu_is_distinguished_from_a_reading_that_failed(library):
    """A lost GPU ends the sensor, and a failed reading does not."""
    with closing(Nvml()) as sensor:
        sensor.describe()
        library.FAIL = library.NVMLError("Timeout")
        with pytest.raises(TransientError):
            sensor.read()
        library.FAIL = library.NVMLError_GpuIsLost("GPU is lost")
        with pytest.raises(UnavailableError, match="kernel log"):
            sensor.read()


def test_the_real_library_is_asked(monkeypatch):
    """It reports that there is no GPU, or it gives a reading."""
    pytest.importorskip("pynvml")
    monkeypatch.setattr(power, "names", lambda: ["nvml"])
    (sensor_found,) = detect_sensors()
    if sensor_found.description is None:
        assert sensor_found.is_absent
        assert "NVIDIA" in sensor_found.reason or "no power" in sensor_found.reason
        return
    with closing(Nvml()) as sensor:
        reading = sensor.read()
    assert sensor_found.description.scope == "gpu-board"
    assert (reading.energy_mj or reading.power_w) > 0


def test_how_late_a_gpus_power_is_at_most_is_described(library):
    """A mean over a second is up to a second late, and an instant value 100 ms."""
    for gpu, delay_ms in (({"averaged"}, 1000.0), ({"instant"}, 100.0)):
        library.GPU = gpu
        with closing(Nvml()) as sensor:
            assert sensor.describe().delay_ms == delay_ms
