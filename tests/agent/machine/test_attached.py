from edgemeter.agent.machine.attached import accelerators, attached, edge_tpus, is_on_usb_2
from edgemeter.agent.machine.machine import recorded
from tests.fixtures import machine_trees


def test_a_coral_on_usb_2_and_one_on_pcie_are_found(tmp_path):
    """A USB Coral changes its id when its firmware is loaded; a PCIe one is a device node."""
    device = "sys/bus/usb/devices/1-1"
    files = {
        f"{device}/idVendor": "18d1\n",
        f"{device}/idProduct": "9302\n",
        f"{device}/speed": "480\n",
        "dev/apex_0": "",
    }
    devices = edge_tpus(recorded(machine_trees.write(tmp_path, files)))
    assert devices == ("Coral USB (18d1:9302) at 480 Mbit/s", "Coral PCIe (apex_0)")
    assert [is_on_usb_2(device) for device in devices] == [True, False]


def test_a_hailo_is_found_by_its_pci_numbers(tmp_path):
    """The driver does not matter; the maker's unknown chips count, other PCI devices do not."""
    devices = {
        "0000:01:00.0": ("0x1e60", "0x2864"),
        "0001:01:00.0": ("0x1e60", "0x9999"),
        "0000:02:00.0": ("0x10ec", "0x8168"),
    }
    files = {
        f"sys/bus/pci/devices/{name}/vendor": f"{vendor}\n" for name, (vendor, _) in devices.items()
    }
    files |= {
        f"sys/bus/pci/devices/{name}/device": f"{device}\n" for name, (_, device) in devices.items()
    }
    machine = recorded(machine_trees.write(tmp_path, files))
    assert accelerators(machine) == ("Hailo-8 PCIe (0000:01:00.0)", "Hailo PCIe (0001:01:00.0)")
    assert edge_tpus(machine) == ()


def test_drives_and_hats_are_attached_and_no_accelerators(tmp_path):
    """They are listed by the names that they report, where they report one."""
    files = {
        "sys/class/nvme/nvme0/model": "KIOXIA EXCERIA   \n",
        "sys/class/nvme/nvme1/state": "live\n",
        "proc/device-tree/hat/vendor": "Raspberry Pi Ltd\0",
        "proc/device-tree/hat/product": "M.2 HAT+\0",
    }
    machine = recorded(machine_trees.write(tmp_path, files))
    assert attached(machine) == (
        "NVMe (nvme0: KIOXIA EXCERIA)",
        "NVMe (nvme1)",
        "HAT (Raspberry Pi Ltd M.2 HAT+)",
    )
    assert accelerators(machine) == ()
