"""Facts about `edgemeter.agent.energy.per_inference`."""

import pytest

from edgemeter.agent.energy.per_inference import is_blind_to_usb, runs_on_usb
from edgemeter.agent.power import USB_DEVICES
from tests.fixtures.power_traces import make_description
from tests.fixtures.record_factory import make_runtime

USB = ("Coral USB (18d1:9302) at 5000 Mbit/s",)
PCIE = ("Coral PCIe (apex_0)",)


def test_the_runtime_of_the_edge_tpu_names_its_device_in_the_back_end():
    """`usb:0,std` is on USB, `pci:0,max` is not; without a bus what is plugged in decides."""
    assert runs_on_usb(make_runtime(name="edgetpu", backend="usb:0,std"), PCIE)
    assert not runs_on_usb(make_runtime(name="edgetpu", backend="pci:0,max"), USB)
    assert runs_on_usb(make_runtime(name="edgetpu", backend=":0,std"), USB)
    assert not runs_on_usb(make_runtime(name="edgetpu", backend="any"), PCIE)


@pytest.mark.parametrize(
    ("backend", "attached", "is_on_usb"),
    [
        ("usb", (), True),
        ("usb:0", PCIE, True),
        ("edgetpu", USB, True),
        ("edgetpu", (), True),
        ("edgetpu", PCIE, False),
        ("edgetpu", (*USB, *PCIE), True),
        ("edgetpu:usb:1", PCIE, True),
        ("edgetpu:pci:0", USB, False),
        ("pci:0", USB, False),
        ("xnnpack", USB, False),
        ("builtin", USB, False),
        ("CPUExecutionProvider", (), False),
        ("tpux", USB, False),
    ],
)
def test_a_back_end_on_usb_is_distinguished_from_one_that_is_not(backend, attached, is_on_usb):
    """By its name, and by the attached devices where it only names the Edge TPU."""
    assert runs_on_usb(make_runtime(backend=backend, options={}), attached) == is_on_usb


def test_only_what_measures_the_board_s_supply_sees_usb():
    """Rails and processors lie behind the branch to the USB ports; a meter may leave them out too."""
    blind = {scope for scope in ("soc-rails", "module", "cpu-package", "gpu-board") if is_blind_to_usb(make_description(scope=scope))}
    assert blind == {"soc-rails", "module", "cpu-package", "gpu-board"}
    assert not is_blind_to_usb(make_description(scope="board-input"))
    assert not is_blind_to_usb(make_description(scope="wall-ac"))
    assert is_blind_to_usb(make_description(scope="board-input", excludes=(USB_DEVICES,)))
    assert is_blind_to_usb(make_description(scope="board-input", is_modelled=True))
