"""Facts about `edgemeter.agent.energy.accelerators`, over sensors as they describe themselves."""

from pathlib import Path
from subprocess import CompletedProcess

from edgemeter.agent.energy import per_inference
from edgemeter.agent.energy.accelerators import accelerator_link, excluded, is_blind_to
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power import PCIE_DEVICES, USB_DEVICES
from edgemeter.agent.power.jetson import Ina3221
from edgemeter.agent.power.pi5_pmic import Pi5Pmic
from tests.fixtures.jetson_trees import AGX_ORIN, ORIN_NANO, ina3221
from tests.fixtures.machine_trees import write
from tests.fixtures.power_traces import S, make_description, make_trace
from tests.fixtures.record_factory import make_runtime
from tests.fixtures.rows import table_row

USB = ("Coral USB (18d1:9302) at 5000 Mbit/s",)
PCIE = ("Coral PCIe (apex_0)",)
HAILO = ("Hailo-8 PCIe (0000:01:00.0)",)
STORAGE = ("NVMe (nvme0: KIOXIA)", "HAT (Raspberry Pi Ltd M.2 HAT+)")


def test_the_runtime_of_the_edge_tpu_names_its_device_in_the_back_end():
    """`usb:0,std` is on USB, `pci:0,max` is not; without a bus what is plugged in decides."""
    assert accelerator_link(make_runtime(name="edgetpu", backend="usb:0,std"), PCIE) == "USB"
    assert accelerator_link(make_runtime(name="edgetpu", backend="pci:0,max"), USB) == "PCIe"
    assert accelerator_link(make_runtime(name="edgetpu", backend=":0,std"), USB) == "USB"
    assert accelerator_link(make_runtime(name="edgetpu", backend="any"), PCIE) == "PCIe"


def test_how_the_accelerator_of_a_back_end_is_attached_is_known():
    """By its name, and by the attached devices where it only names the Edge TPU."""
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
        assert accelerator_link(make_runtime(backend=backend, options={}), attached) == link, f"{backend!r}, {attached!r}"


def test_only_what_measures_the_board_s_supply_sees_accelerators():
    """Rails and processors lie behind the branch to ports and slots; a meter may leave them out too."""
    for link, excluded_as in [("USB", USB_DEVICES), ("PCIe", PCIE_DEVICES), ("PCIe", "HATs"), ("PCIe", "carrier board")]:
        with table_row(link, excluded_as):
            scopes = ("soc-rails", "module", "cpu-package", "gpu-board", "board-input", "wall-ac")
            assert [scope for scope in scopes if not is_blind_to(make_description(scope=scope), link)] == ["board-input", "wall-ac"]
            assert is_blind_to(make_description(scope="board-input", excludes=(excluded_as,)), link)


def _real_sensors(root):
    """Return the board's own sensors as they describe themselves on recorded trees."""
    sweep = (Path(__file__).resolve().parents[2] / "fixtures/power/pi5_pmic/pmic_read_adc.txt").read_text()
    hwmon = "sys/class/hwmon"
    orin, agx = write(root / "orin", ina3221(f"{hwmon}/hwmon4", ORIN_NANO)), root / "agx"
    for index, channels in enumerate(AGX_ORIN):
        write(agx, ina3221(f"{hwmon}/hwmon{index}", channels, shunt_uohm=2000))
    sensors = {
        "pi 5": Pi5Pmic(root, lambda command: CompletedProcess(command, 0, sweep.encode(), b"")),
        "orin": Ina3221(orin),
        "agx": Ina3221(agx),
    }
    return {name: sensor.describe() for name, sensor in sensors.items()}


def test_a_board_s_own_sensor_gives_no_energy_of_a_run_on_an_accelerator_beside_it(tmp_path):
    """PMIC, module and rails beside a Coral or Hailo on USB, PCIe or M.2; a run on the processor of the same board has its energy."""
    sensors = _real_sensors(tmp_path)
    for backend, attached, devices in [
        ("edgetpu:usb:0", USB, "USB devices"),
        ("edgetpu:pci:0", PCIE, "PCIe and M.2 devices"),
        ("edgetpu", PCIE, "PCIe and M.2 devices"),
        ("hailo8l", HAILO, "PCIe and M.2 devices"),
        ("xnnpack", (*PCIE, *HAILO, *STORAGE), None),
    ]:
        for board in ["pi 5", "orin", "agx"]:
            with table_row(board, backend):
                sensor = sensors[board]
                link = accelerator_link(make_runtime(backend=backend, options={}), attached)
                run = EnergyRun(Window(20 * S, 50 * S), None, None, 1000, accelerator=link, attached=attached)
                described = {"id": sensor.id, "scope": sensor.scope, "excludes": sensor.excludes}
                energy, reason = per_inference.assess(make_trace(lambda _: 5.0, 70, **described), run)
                assert (energy is None) == (devices is not None)
                assert devices is None or (f"it does not measure {devices}" in reason and "use a meter in the board's supply" in reason)


def test_a_drive_or_hat_that_merely_sits_there_is_left_out_by_name(tmp_path):
    """By the part that holds it, where a sensor names that already, so that a series keeps its kind; a meter in the supply sees all."""
    for value in _real_sensors(tmp_path).values():
        assert excluded(value, (*USB, *PCIE, *HAILO, *STORAGE)) == value.excludes
        assert {"NVMe drives", "carrier board"} & set(value.excludes)
    shunt = make_description(scope="module", excludes=("power-supply loss",))
    assert excluded(shunt, STORAGE) == ("power-supply loss", "NVMe drives", "HATs")
    assert excluded(shunt, (*USB, *PCIE, *HAILO)) == ("power-supply loss", USB_DEVICES, PCIE_DEVICES)
    assert excluded(shunt, ()) == ("power-supply loss",)
    assert excluded(make_description(scope="board-input"), STORAGE) == ()
