"""Facts about `edgemeter.agent.power.jetson`."""

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import USB_DEVICES, AbsentError
from edgemeter.agent.power.jetson import JetsonThor
from edgemeter.agent.power.recording import PowerRecording
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.jetson_trees import ORIN_NANO, THOR, device_tree, ina3221
from tests.fixtures.machine_trees import write

HWMON = "sys/class/hwmon"
INPUT = {f"{HWMON}/hwmon3/name": "ina238\n", f"{HWMON}/hwmon3/in1_input": "19912\n", f"{HWMON}/hwmon3/curr1_input": "1290\n"}
POWER = {f"{HWMON}/hwmon3/power1_input": "25686000\n"}


@pytest.fixture
def thor(tmp_path):
    """Return a Thor whose INA238 has no label."""
    return write(tmp_path, INPUT | POWER | ina3221(f"{HWMON}/hwmon5", THOR, 2000))


def test_the_input_is_the_total_and_its_rails_lie_inside(thor):
    """25.686 W out of microwatts; a GPU at -392 mW is shown as it is, and nothing is added."""
    with PowerRecording(thor) as recording:
        found = recording.read()
    assert (found.name, found.description.scope, found.description.excludes) == ("jetson_thor", "board-input", ("power-supply loss",))
    assert USB_DEVICES not in found.description.excludes
    assert found.reading.power_w == pytest.approx(25.686)
    rails = {rail.name: rail.power_w for rail in found.reading.rails}
    assert rails["VDD_GPU"] == pytest.approx(-0.39232)
    assert list(rails) == ["VIN", "VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"]
    assert (found.description.resolution_w, found.description.gain_u_ratio, found.description.warnings) == (None, None, ())


def test_a_labelled_input_needs_no_other_evidence(tmp_path):
    """By a label of the channel or of the chip; one with another label is somebody's own."""
    for name in ("in1_label", "power1_label", "label"):
        root = write(tmp_path / name, INPUT | POWER | {f"{HWMON}/hwmon3/{name}": "VIN\n"})
        assert JetsonThor(SensorWorld(root)).read().power_w == pytest.approx(25.686)
    root = write(tmp_path / "other", INPUT | POWER | {f"{HWMON}/hwmon3/label": "12V_AUX\n"} | ina3221(f"{HWMON}/hwmon5", THOR))
    with pytest.raises(AbsentError):
        JetsonThor(SensorWorld(root)).describe()


def test_an_ina238_without_a_label_is_a_thor_s_only_on_a_thor(tmp_path):
    """By the device tree, or the rail that only Thor has; not beside an Orin Nano's, not alone, not one of two."""
    with pytest.raises(AbsentError):
        JetsonThor(SensorWorld(write(tmp_path / "alone", INPUT | POWER))).describe()
    with pytest.raises(AbsentError):
        JetsonThor(SensorWorld(write(tmp_path / "nano", INPUT | POWER | ina3221(f"{HWMON}/hwmon5", ORIN_NANO)))).describe()
    root = write(
        tmp_path / "tree", INPUT | POWER | device_tree("NVIDIA Jetson AGX Thor Developer Kit", "nvidia,p3834-0008", "nvidia,tegra264")
    )
    assert JetsonThor(SensorWorld(root)).read().power_w == pytest.approx(25.686)
    write(root, {path.replace("hwmon3", "hwmon7"): text for path, text in (INPUT | POWER).items()})
    with pytest.raises(AbsentError):
        JetsonThor(SensorWorld(root)).describe()


def test_without_a_power_file_it_is_voltage_times_current(tmp_path):
    """19.912 V x 1.29 A."""
    root = write(tmp_path, INPUT | ina3221(f"{HWMON}/hwmon5", THOR))
    assert JetsonThor(SensorWorld(root)).read().power_w == pytest.approx(19.912 * 1.29)


def test_rails_that_cannot_be_read_leave_the_input(thor):
    """They are not needed for it: a warning."""
    (thor / f"{HWMON}/hwmon5/curr2_input").write_text("")
    sensor = JetsonThor(SensorWorld(thor))
    assert "VDD_CPU_SOC_MSS" in sensor.describe().warnings[0]
    assert sensor.read().power_w == pytest.approx(25.686)


def test_an_input_that_cannot_be_read_is_not_replaced_by_rails(thor):
    """They are less than it."""
    sensor = JetsonThor(SensorWorld(thor))
    sensor.describe()
    (thor / f"{HWMON}/hwmon3/power1_input").write_text("\n")
    with pytest.raises(TransientError, match="power1_input"):
        sensor.read()
    with PowerRecording(thor) as recording, pytest.raises(UnavailableError, match="VIN"):
        recording.read("jetson_thor")
