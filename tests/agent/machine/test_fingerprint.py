"""Facts about `edgemeter.agent.machine.fingerprint` and the modules that it asks."""

import dataclasses
import platform

import msgspec
import pytest

from edgemeter.agent.contract.record_conditions import Environment
from edgemeter.agent.machine import board, clock, fingerprint
from edgemeter.agent.machine.machine import Machine, recorded
from tests.fixtures import machine_trees

VCGENCMD_VERSION = (
    "2024/09/23 14:02:56 \nCopyright (c) 2012 Broadcom\nversion 26826259 (release) (embedded)\n"
)


def _answering(machine, answers):
    return dataclasses.replace(machine, output=lambda arguments: answers.get(" ".join(arguments)))


def test_a_raspberry_pi_5_is_known_by_its_device_tree(tmp_path):
    """Board, chip, core design and firmware are known although cpuinfo has no model name."""
    machine = recorded(machine_trees.raspberry_pi_5(tmp_path), arch="aarch64")
    machine = _answering(machine, {"vcgencmd version": VCGENCMD_VERSION})
    environment = fingerprint.read(machine)
    assert environment.board == "Raspberry Pi 5 Model B Rev 1.0"
    assert environment.arch == "aarch64"
    assert environment.cpu == "brcm,bcm2712 Cortex-A76"
    assert environment.cores == 4
    assert environment.firmware == "26826259 of 2024/09/23 14:02:56"
    assert (environment.os, environment.kernel) == (
        "Debian GNU/Linux 12 (bookworm)",
        "6.6.51+rpt-rpi-2712",
    )
    assert (environment.governor, environment.power_mode) == ("ondemand", None)
    assert environment.boot_id == "0b9f5a7e-0000-4000-8000-1234567890ab"
    assert environment.attached == (
        "Coral USB (1a6e:089a, not used since it was plugged in) at 5000 Mbit/s",
    )
    assert environment.virtualisation is None


def test_a_jetson_names_its_release_and_power_mode(tmp_path):
    """Its L4T release comes from a file, the mode's id and name from nvpmodel."""
    machine = recorded(machine_trees.jetson_orin_nano(tmp_path), arch="aarch64")
    machine = _answering(machine, {"nvpmodel -q": "NV Power Mode: MAXN_SUPER\n2\n"})
    environment = fingerprint.read(machine)
    assert (environment.firmware, environment.power_mode) == ("L4T 36.4.3", "2 MAXN_SUPER")
    assert (environment.cpu, environment.cores, environment.governor) == (
        "nvidia,tegra234 Cortex-A78AE",
        6,
        "schedutil",
    )
    # Xavier NX prints the fan's mode between the lines; an answer without an id is no answer.
    verbose = (
        "NVPM VERB: Config file: /etc/nvpmodel.conf\nNV Power Mode: MODE_15W_6CORE\n2\nNV Fan "
        "Mode:quiet\n"
    )
    assert board.power_mode(_answering(machine, {"nvpmodel -q": verbose})) == "2 MODE_15W_6CORE"
    assert board.power_mode(_answering(machine, {"nvpmodel -q": "NV Power Mode: MAXN\n"})) is None


def test_a_pc_is_known_by_its_dmi_table(tmp_path):
    """DMI gives maker, product and BIOS; ACPI's profile is the power mode."""
    environment = fingerprint.read(recorded(machine_trees.intel_pc(tmp_path), arch="x86_64"))
    assert environment.board == "LENOVO 20L7S00000"
    assert environment.cpu == "Intel(R) Core(TM) i5-8350U CPU @ 1.70GHz"
    assert environment.firmware == "LENOVO N22ET75W (1.52 ) 11/18/2022"
    assert environment.power_mode == "balanced"
    assert (environment.attached, environment.virtualisation) == ((), None)


def test_clusters_of_different_cores_are_counted(tmp_path):
    """An Odroid N2 has two A53 and four A73 cores, and an unknown part keeps its numbers."""
    cores = "".join(
        f"processor : {n}\nCPU implementer : 0x41\nCPU part : {part}\n"
        for n, part in enumerate(["0xd03"] * 2 + ["0xd09"] * 4)
    )
    assert (
        board.cpu(recorded(machine_trees.write(tmp_path, {"proc/cpuinfo": cores})))
        == "2x Cortex-A53 + 4x Cortex-A73"
    )
    unknown = "processor : 0\nCPU implementer : 0x61\nCPU part : 0x023\n"
    assert (
        board.cpu(recorded(machine_trees.write(tmp_path, {"proc/cpuinfo": unknown})))
        == "ARM implementer 0x61 part 0x023"
    )


def test_garbled_files_raise_nothing(tmp_path):
    """Every file that is read is filled with meaningless bytes."""
    machine_trees.jetson_orin_nano(tmp_path)
    machine_trees.intel_pc(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\xfe:\x00= \n\t-\n99999999999999999999 \xf0")
    environment = fingerprint.read(recorded(tmp_path))
    assert environment.power_mode is None
    assert environment.board.isprintable()


def test_this_machine_fits_the_record():
    """The fingerprint of this machine can be encoded and decoded."""
    environment = fingerprint.read()
    assert msgspec.json.decode(msgspec.json.encode(environment), type=Environment) == environment
    assert environment.arch == platform.machine()
    assert environment.libraries["python"].startswith(platform.python_version())
    assert "numpy" in environment.libraries


def test_the_kernels_own_error_bound_decides_about_the_clock(tmp_path):
    """The clock is synchronised if the kernel's error bound is below its limit of 16 s.

    Without the kernel's word only timesyncd's mark counts.
    """
    machine = recorded(tmp_path)
    assert clock.synchronised(machine, lambda _: clock.KernelClock(0.0, 250.0)) is True
    assert (
        clock.synchronised(machine, lambda _: clock.KernelClock(0.0, clock.UNSYNCHRONISED_MS))
        is False
    )
    assert clock.synchronised(machine, lambda _: None) is None
    machine_trees.write(tmp_path, {"run/systemd/timesync/synchronized": ""})
    assert clock.synchronised(machine, lambda _: None) is True


@pytest.mark.captures
def test_captured_identities_are_read(tmp_path, captures):
    """The output of real boards gives their names, and a Jetson's release and power mode."""
    ids = captures / "ids"
    for file, named in (
        ("devicetree_model_coral_dev_board_mainline.bin", "Google i.MX8MQ Phanbell"),
        (
            "devicetree_model_jetson_orin_nano_super.bin",
            "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        ),
        ("devicetree_model_pi5_r10.bin", "Raspberry Pi 5 Model B Rev 1.0"),
    ):
        machine_trees.write(tmp_path, {"proc/device-tree/model": (ids / file).read_bytes()})
        assert board.model(recorded(tmp_path)) == named
    for file, design, cores in (
        ("cpuinfo_pi5_rev1_0_8gb.txt", "Cortex-A76", 4),
        ("cpuinfo_pi4_armv7l_trailing_space_in_features.txt", "Cortex-A72", 3),
    ):
        machine_trees.write(tmp_path, {"proc/cpuinfo": (ids / file).read_bytes()})
        assert (board.cpu(recorded(tmp_path)), board.cores(recorded(tmp_path))) == (design, cores)
    jetson = captures / "jetson"
    machine_trees.write(
        tmp_path, {"etc/nv_tegra_release": (jetson / "nv_tegra_release_r36_4_3.txt").read_bytes()}
    )
    output = (jetson / "nvpmodel_q_orin_nano_super.txt").read_text()
    machine = Machine(tmp_path, lambda arguments: output if arguments[0] == "nvpmodel" else None)
    assert (board.firmware(machine), board.power_mode(machine)) == ("L4T 36.4.3", "2 MAXN_SUPER")
