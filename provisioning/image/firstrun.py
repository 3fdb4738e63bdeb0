"""`firstrun.sh`, which Raspberry Pi OS Bookworm and the first Trixie run once.

The kernel's command line starts it. It runs without a network: it installs our unit, sets the Wi-Fi
up, and reboots the board.
Source: rpi-imager doc/os_customisation_formats.md; raspberrypi-sys-mods firstboot, imager_custom
and imager_fixup, which rewrites the paths below /boot and the end of the script from its `rm` on.
"""

from edgemeter.provisioning.image.adapter_text import (
    BEGIN,
    BOOT_FOLDERS,
    END,
    KERNEL_LINE,
    START,
    WIFI_CONNECTION,
    text_of,
    without_ours,
)
from edgemeter.provisioning.image.boot_partition import BootPartition
from edgemeter.provisioning.image.wifi import Wifi

NAME = "firstrun.sh"
WORDS = (
    "systemd.run=/boot/firstrun.sh",
    "systemd.run_success_action=reboot",
    "systemd.unit=kernel-command-line.target",
)
# The kernel line is removed first: with the line but without the script, the board would stop at
# every boot.
CLEANED = r"s| systemd\.run[^ ]*||g; s| systemd\.unit=kernel-command-line\.target||g"
TAIL = f"""for d in {BOOT_FOLDERS}; do
    test ! -f $d/{KERNEL_LINE} || sed -i '{CLEANED}' $d/{KERNEL_LINE}
done
sync
rm -f /boot/{NAME}
exit 0
"""


def adapter_files(boot: BootPartition, wifi: Wifi | None) -> dict[str, str]:
    """Return the files that make the board run our part once, the last to write at the end.

    The user's own script stays.
    """
    files = {WIFI_CONNECTION: connection(wifi)} if wifi is not None else {}
    files[NAME] = script(boot.text(NAME) or "", wifi)
    line = (boot.text(KERNEL_LINE) or "").replace("\0", " ")
    words = [
        word
        for word in line.split()
        if not word.startswith(("systemd.run", "systemd.unit=kernel-command-line"))
    ]
    # Without the line, nothing runs the script.
    files[KERNEL_LINE] = " ".join([*words, *WORDS]) + "\n"
    return files


def script(text: str, wifi: Wifi | None) -> str:
    """Return the script `text` with our part at its beginning, or a script of our part alone."""
    # The first line names the interpreter; an error in our part must not keep the rest from
    # running.
    head, *lines = without_ours(text) or ["#!/bin/bash", "set +e", *TAIL.splitlines()]
    part = [START]
    if wifi is not None:
        # Its key is in a file of its own, which the first boot overwrites.
        install = (
            f"install -m 600 $d/{WIFI_CONNECTION} "
            "/etc/NetworkManager/system-connections/edgemeter.nmconnection"
        )
        part.append(
            f"for d in {BOOT_FOLDERS}; do if [ -f $d/{WIFI_CONNECTION} ]; then "
            f"{install}; break; fi; done"
        )
        part.append("rfkill unblock wifi")
        if wifi.country:
            part.append(f"raspi-config nonint do_wifi_country {wifi.country}")
    return text_of([head, BEGIN, *part, END, *lines])


def connection(wifi: Wifi) -> str:
    """Return a NetworkManager connection.

    The network's name is in bytes, so that no character needs quoting.
    """
    ssid = "".join(f"{byte};" for byte in wifi.ssid.encode())
    lines = [
        "[connection]",
        "id=edgemeter",
        "type=wifi",
        "",
        "[wifi]",
        "mode=infrastructure",
        f"ssid={ssid}",
        "",
    ]
    if wifi.psk_hex:
        lines += ["[wifi-security]", "key-mgmt=wpa-psk", f"psk={wifi.psk_hex}", ""]
    return text_of([*lines, "[ipv4]", "method=auto", "", "[ipv6]", "method=auto"])
