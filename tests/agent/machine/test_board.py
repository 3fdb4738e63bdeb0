"""Facts about `edgemeter.agent.machine.board`: whether a board is a guest."""

from edgemeter.agent.machine import board
from edgemeter.agent.machine.machine import recorded
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders

GUEST_CPU = {"proc/cpuinfo": "processor : 0\nflags\t\t: fpu hypervisor sse2\n"}
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"


def _detect(root, files, arch="x86_64"):
    return board.detect_virtualisation(recorded(write(root, files), arch))


def test_a_virtual_machine_is_distinguished_from_a_bare_one(tmp_path):
    """The processor's flag, the maker's name and the clocks identify a virtual machine.

    Bare metal of a cloud or of Microsoft is none.
    """
    for folder, files, expected in in_folders(
        tmp_path,
        [
            (GUEST_CPU, "vm"),
            (GUEST_CPU | {CLOCKS: "tsc kvm-clock \n"}, "kvm"),
            (GUEST_CPU | {"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "qemu"),
            (GUEST_CPU | {"sys/class/dmi/id/sys_vendor": "VMware, Inc.\n"}, "vmware"),
            (
                GUEST_CPU
                | {
                    "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                    "sys/class/dmi/id/product_name": "Virtual Machine\n",
                },
                "hyper-v",
            ),
            (
                GUEST_CPU
                | {
                    "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                    "sys/class/dmi/id/product_name": "c5.large\n",
                },
                "amazon",
            ),
            (
                {
                    "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                    "sys/class/dmi/id/product_name": "c5.metal\n",
                },
                None,
            ),
            (
                {
                    "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                    "sys/class/dmi/id/product_name": "Surface Laptop\n",
                },
                None,
            ),
            (
                GUEST_CPU
                | {"sys/hypervisor/type": "xen\n", "proc/xen/capabilities": "control_d\n"},
                None,
            ),
            ({"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}, "wsl"),
        ],
    ):
        assert _detect(folder, files) == expected, f"{files!r}"


def test_an_arm_guest_shows_in_its_device_tree_or_dmi(tmp_path):
    """ARM processors have no flag for virtual machines."""
    assert (
        _detect(
            tmp_path / "a", {"proc/device-tree/hypervisor/compatible": b"linux,kvm\0"}, "aarch64"
        )
        == "kvm"
    )
    assert (
        _detect(tmp_path / "b", {"proc/device-tree/compatible": b"linux,dummy-virt\0"}, "aarch64")
        == "qemu"
    )
    assert (
        _detect(tmp_path / "c", {"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "aarch64")
        == "amazon"
    )


def test_a_container_is_distinguished_from_a_host(tmp_path):
    """Marks that container engines leave, and the control group, identify a container."""
    for folder, files, expected in in_folders(
        tmp_path,
        [
            ({".dockerenv": ""}, "docker"),
            ({"run/.containerenv": ""}, "podman"),
            ({"run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn"),
            (
                {"proc/self/cgroup": "0::/kubepods.slice/kubepods-burstable.slice/x.scope\n"},
                "kubernetes",
            ),
            ({"proc/1/cgroup": "1:name=systemd:/lxc/box\n"}, "lxc"),
            (
                {
                    "proc/1/cgroup": "0::/init.scope\n",
                    "proc/self/cgroup": "0::/user.slice/user-1000.slice/session-1.scope\n",
                },
                None,
            ),
        ],
    ):
        assert _detect(folder, files) == expected, f"{files!r}"


def test_the_last_level_of_caches_counts_each_of_its_parts_once(tmp_path):
    """Two clusters of two cores have 4 MiB of last-level cache each.

    Instruction caches, lower levels and unreadable sizes do not count.
    """
    files = {}
    for core, cluster in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, (level, kind, size, shared) in enumerate(
            [
                ("1", "Data", "32K", str(core)),
                ("1", "Instruction", "64K", str(core)),
                ("3", "Unified", "4096K", cluster),
            ]
        ):
            folder = f"sys/devices/system/cpu/cpu{core}/cache/index{index}"
            files |= {
                f"{folder}/level": level,
                f"{folder}/type": kind,
                f"{folder}/size": size,
                f"{folder}/shared_cpu_list": shared,
            }
    assert board.cache_mb(recorded(write(tmp_path / "clusters", files))) == 2 * 4096 * 1024 / 1e6
    assert board.cache_mb(recorded(write(tmp_path / "none", {"etc/machine-id": "1"}))) is None
    garbled = {
        "sys/devices/system/cpu/cpu0/cache/index0/" + name: text
        for name, text in [("level", "3"), ("size", "?K"), ("shared_cpu_list", "0")]
    }
    assert board.cache_mb(recorded(write(tmp_path / "garbled", garbled))) is None
