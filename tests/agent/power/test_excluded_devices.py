"""Facts about `edgemeter.agent.power.excluded_devices`, over self-described sensors."""

from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.per_inference import EnergyRun
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import PCIE_DEVICES, USB_DEVICES
from edgemeter.agent.power.excluded_devices import accelerator_link, excluded, is_blind_to
from tests.fixtures.power_traces import S, make_description, make_trace
from tests.fixtures.record_factory import make_runtime
from tests.fixtures.rows import table_row

USB = ("Coral USB (18d1:9302) at 5000 Mbit/s",)
PCIE = ("Coral PCIe (apex_0)",)
HAILO = ("Hailo-8 PCIe (0000:01:00.0)",)
STORAGE = ("NVMe (nvme0: KIOXIA)", "HAT (Raspberry Pi Ltd M.2 HAT+)")


def test_how_the_accelerator_of_a_back_end_is_attached_is_known():
    """The backend's name tells, and if it only says Edge TPU, the attached devices tell."""
    for backend, attached, link in [
        ("usb", (), "USB"),
        ("edgetpu", USB, "USB"),
        ("edgetpu", (), "USB"),
        ("edgetpu", PCIE, "PCIe"),
        ("edgetpu", (*USB, *PCIE), "USB"),
        ("edgetpu:pci:0", USB, "PCIe"),
        ("pci:0", USB, "PCIe"),
        ("HailoExecutionProvider", (), "PCIe"),
        ("hailo8l", HAILO, "PCIe"),
        ("xnnpack", (*USB, *PCIE, *HAILO), None),
        ("tpux", USB, None),
    ]:
        assert accelerator_link(make_runtime(backend=backend, options={}), attached) == link, (
            f"{backend!r}, {attached!r}"
        )
    # The runtime of the Edge TPU names its device in the back end; without a bus what is plugged in
    # decides.
    for backend, attached, link in [
        ("usb:0,std", PCIE, "USB"),
        ("pci:0,max", USB, "PCIe"),
        (":0,std", USB, "USB"),
        ("any", PCIE, "PCIe"),
    ]:
        assert accelerator_link(make_runtime(name="edgetpu", backend=backend), attached) == link, (
            backend
        )


def test_only_what_measures_the_board_s_supply_sees_accelerators():
    """Rails and processors lie behind the branch to ports and slots.

    A meter may leave accelerators out too.
    """
    for link, excluded_as in [
        ("USB", USB_DEVICES),
        ("PCIe", PCIE_DEVICES),
        ("PCIe", "HATs"),
        ("PCIe", "carrier board"),
    ]:
        with table_row(link, excluded_as):
            scopes = ("soc-rails", "module", "cpu-package", "gpu-board", "board-input", "wall-ac")
            assert [
                scope for scope in scopes if not is_blind_to(make_description(scope=scope), link)
            ] == ["board-input", "wall-ac"]
            assert is_blind_to(make_description(scope="board-input", excludes=(excluded_as,)), link)


def test_a_board_s_own_sensor_gives_no_energy_of_a_run_on_an_accelerator_beside_it():
    """A Coral or Hailo on USB, PCIe or M.2 is not seen by the board's own sensor.

    A run on the same board's processor has its energy.
    """
    for link, attached, devices in [
        ("USB", USB, "USB devices"),
        ("PCIe", HAILO, "PCIe and M.2 devices"),
        (None, (*PCIE, *HAILO, *STORAGE), None),
    ]:
        with table_row(link):
            run = EnergyRun(
                Window(20 * S, 50 * S), None, None, 1000, accelerator=link, attached=attached
            )
            energy, reason = per_inference.assess(
                make_trace(lambda _: 5.0, 70, scope="module"), run
            )
            assert (energy is None) == (devices is not None)
            assert devices is None or (
                f"it does not measure {devices}" in reason
                and "use a meter in the board's supply" in reason
            )


def test_a_drive_or_hat_that_merely_sits_there_is_left_out_by_name():
    """If the sensor already names the part that holds the device, its list stays as it is.

    A series therefore keeps its kind. A meter in the supply sees all.
    """
    shunt = make_description(scope="module", excludes=("power-supply loss",))
    assert excluded(shunt, STORAGE) == ("power-supply loss", "NVMe drives", "HATs")
    assert excluded(shunt, (*USB, *PCIE, *HAILO)) == (
        "power-supply loss",
        USB_DEVICES,
        PCIE_DEVICES,
    )
    assert excluded(shunt, ()) == ("power-supply loss",)
    whole_carrier = make_description(scope="module", excludes=("carrier board", USB_DEVICES))
    assert excluded(whole_carrier, (*USB, *PCIE, *STORAGE)) == whole_carrier.excludes
    assert excluded(make_description(scope="board-input"), STORAGE) == ()
