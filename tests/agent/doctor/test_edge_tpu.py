"""What the doctor says of a Coral: plugged in or not, with its library or without."""

import pytest

from edgemeter.agent.doctor import checks
from edgemeter.agent.machine.machine import Machine, no_command
from tests.fixtures import stand_ins

pytestmark = pytest.mark.needs("gcc")


def findings_of(root, library):
    """Return the findings on a machine below `root`."""
    return list(checks._edge_tpu(Machine(root, no_command), str(library)))


@pytest.fixture
def library(tmp_path):
    """Return the stand-in for libedgetpu."""
    return stand_ins.compiled("edgetpu_delegate.c", tmp_path / "lib/libedgetpu.so.1.0")


def plug(root):
    """Put a device node of a PCIe Coral into the tree."""
    (root / "dev").mkdir()
    (root / "dev/apex_0").touch()


def test_a_coral_with_its_library_is_fine(tmp_path, library):
    """Version and clock are reported."""
    plug(tmp_path)
    (finding,) = findings_of(tmp_path, library)
    assert (finding.state, finding.what) == ("ok", "libedgetpu, BuildLabel(N/A), RuntimeVersion(14), clock max: Coral PCIe (apex_0)")


def test_a_coral_without_its_library_names_what_to_install(tmp_path):
    """It cannot be used so."""
    plug(tmp_path)
    (finding,) = findings_of(tmp_path, "libedgetpu-nowhere.so.1")
    assert finding.state == "bad"
    assert finding.remedy == "`sudo apt install libedgetpu1-std` (or -max)"


def test_a_library_without_a_coral_is_no_failure(tmp_path, library):
    """It may be plugged in tomorrow."""
    (finding,) = findings_of(tmp_path, library)
    assert (finding.state, finding.what.rpartition(": ")[2]) == ("absent", "no Edge TPU is attached")


def test_a_machine_without_coral_and_library_has_no_finding(tmp_path):
    """Most machines have none."""
    assert findings_of(tmp_path, "libedgetpu-nowhere.so.1") == []
