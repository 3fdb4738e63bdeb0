"""Why the board last started, where its hardware keeps that: a Raspberry Pi's bootloader, a Tegra's power management, a watchdog.

Source: bit names of the BCM2835 power manager's PM_RSTS as in U-Boot and the firmware's device tree (`chosen/bootloader/rsts`); Linux
drivers/soc/tegra/pmc.c (`reset_reason`); Linux include/uapi/linux/watchdog.h (`bootstatus`).
"""

from edgemeter.agent.machine.machine import Machine

RSTS = ("proc/device-tree/chosen/bootloader/rsts", "proc/device-tree/chosen/bootloader/pm_rsts")
POWER_ON, WATCHDOG, SOFTWARE = 0x1000, 0x0070, 0x0700
OVERHEATED, POWER_FAULT, CARD_RESET = 0x0001, 0x0010, 0x0020
PANIC = "the kernel crashed (a record of it lies in /sys/fs/pstore)"


def read(machine: Machine) -> str | None:
    """Return the reason in words, None where nothing tells."""
    # What the kernel wrote while it died is more than what the hardware saw.
    if any(path.name.startswith("dmesg-") for path in machine.find("sys/fs/pstore/*")):
        return PANIC
    return _raspberry_pi(machine) or _tegra(machine) or _watchdog(machine)


def _raspberry_pi(machine: Machine) -> str | None:
    for path in RSTS:
        try:
            value = int.from_bytes((machine.root / path).read_bytes()[:4], "big")
        except OSError:
            continue
        if value & POWER_ON:
            return "power on"
        # A Raspberry Pi restarts itself through its watchdog: told to, or because it hung.
        if value & (WATCHDOG | SOFTWARE):
            return "restart or watchdog"
    return None


def _tegra(machine: Machine) -> str | None:
    for path in (*machine.find("sys/devices/platform/*pmc*/reset_reason"), *machine.find("sys/devices/platform/*/*pmc*/reset_reason")):
        if reason := machine.line(path):
            return reason
    return None


def _watchdog(machine: Machine) -> str | None:
    for path in machine.find("sys/class/watchdog/watchdog*/bootstatus"):
        status = machine.number(path) or 0
        if status & CARD_RESET:
            return "watchdog"
        if status & OVERHEATED:
            return "overheated"
        if status & POWER_FAULT:
            return "power fault"
    return None
