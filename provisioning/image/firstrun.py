"""`firstrun.sh`, which Raspberry Pi OS Bookworm and the first Trixie run once from the kernel's command line.

There is no network yet when it runs: it installs our unit, applies the settings, and reboots the board.
Source: rpi-imager doc/os_customisation_formats.md; raspberrypi-sys-mods firstboot, imager_custom and imager_fixup, which rewrites the
paths below /boot and the end of the script from its `rm` on.
"""

import shlex

from edgemeter.provisioning.fat.volume import Change, RemovePath, put_text
from edgemeter.provisioning.image import boot_partition
from edgemeter.provisioning.image.adapter_text import (
    FROM_BOOT,
    KERNEL_LINE,
    PLACES,
    WIFI_CONNECTION,
    edit_kernel_line,
    has_ours,
    marked,
    text_of,
    without_ours,
)
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.settings import FirstBootSettings, Wifi

NAME = "firstrun.sh"
WORDS = ("systemd.run=/boot/firstrun.sh", "systemd.run_success_action=reboot", "systemd.unit=kernel-command-line.target")
HEAD = "#!/bin/bash\nset +e\n"
# The kernel line first: with the line but without the script, the board would stop at every boot.
CLEANED = r"s| systemd\.run[^ ]*||g; s| systemd\.unit=kernel-command-line\.target||g"
TAIL = f"""for d in {PLACES}; do
    test ! -f $d/{KERNEL_LINE} || sed -i '{CLEANED}' $d/{KERNEL_LINE}
done
sync
rm -f /boot/{NAME}
exit 0
"""
CUSTOM = "/usr/lib/raspberrypi-sys-mods/imager_custom"
USERCONF = "/usr/lib/userconf-pi/userconf"
CONNECTION = "/etc/NetworkManager/system-connections/edgemeter.nmconnection"


def changes(boot: Readable, settings: FirstBootSettings) -> list[Change]:
    """Return the changes that make the board run our part once; the user's own script stays."""
    planned: list[Change] = []
    if settings.wifi is not None:
        planned.append(put_text(WIFI_CONNECTION, connection(settings.wifi)))
    planned.append(put_text(NAME, script(boot_partition.read_text(boot, NAME) or "", settings)))
    line = boot_partition.read_text(boot, KERNEL_LINE) or ""
    kernel_line = edit_kernel_line(line, lambda word: word.startswith(("systemd.run", "systemd.unit=kernel-command-line")), WORDS)
    # Last: without the line, nothing runs the script.
    planned.append(put_text(KERNEL_LINE, kernel_line))
    return planned


def withdrawal(boot: Readable) -> list[Change]:
    """Return the changes that remove what `changes` wrote earlier; the user's own script stays, and what runs it."""
    text = boot_partition.read_text_if_any(boot, NAME)
    if not has_ours(text):
        return []
    users_text = without_ours(text)
    if users_text != HEAD + TAIL:
        return [put_text(NAME, users_text)]
    line = boot_partition.read_text_if_any(boot, KERNEL_LINE)
    planned: list[Change] = []
    if any(word in WORDS for word in line.split()):
        # First: with the line but without the script, the board would stop at every boot.
        planned.append(put_text(KERNEL_LINE, edit_kernel_line(line, lambda word: word in WORDS, [])))
    return [*planned, RemovePath(NAME)]


def script(text: str, settings: FirstBootSettings) -> str:
    """Return the script `text` with our part at its beginning, or a script of our part alone."""
    text = without_ours(text) or HEAD + TAIL
    first, _, remainder = text.partition("\n")
    # The first line names the interpreter; an error in our part must not keep the rest from running.
    return f"{first}\n{marked(_part(settings))}{remainder}"


def _part(settings: FirstBootSettings) -> list[str]:
    lines = [FROM_BOOT]
    if settings.hostname:
        lines.append(
            f"if [ -x {CUSTOM} ]; then {CUSTOM} set_hostname {settings.hostname}; else echo {settings.hostname} >/etc/hostname; fi"
        )
    if settings.user:
        # An account without a password: it logs in by key, and sudo must not ask for a password.
        user, rules = settings.user, f"/etc/sudoers.d/020-{settings.user}"
        lines += [
            f"if [ -x {USERCONF} ]; then {USERCONF} {user} '*'; fi",
            f"id {user} >/dev/null 2>&1 || useradd -m -s /bin/bash -G sudo {user}",
            f"echo '{user} ALL=(ALL) NOPASSWD:ALL' >{rules}; chmod 440 {rules}",
        ]
    if settings.ssh_keys:
        lines += _keys(settings)
    if settings.wifi:
        lines += _wifi(settings.wifi)
    return lines


def _keys(settings: FirstBootSettings) -> list[str]:
    keys = " ".join(shlex.quote(key) for key in settings.ssh_keys)
    return [
        # Without a name it is the system's own first account.
        f"account={settings.user or '$(getent passwd 1000 | cut -d: -f1)'}",
        'home=$(getent passwd "$account" | cut -d: -f6)',
        'install -d -m 700 -o "$account" -g "$account" "$home/.ssh"; touch "$home/.ssh/authorized_keys"',
        f'for key in {keys}; do grep -qxF "$key" "$home/.ssh/authorized_keys" || echo "$key" >>"$home/.ssh/authorized_keys"; done',
        'chmod 600 "$home/.ssh/authorized_keys"; chown "$account:$account" "$home/.ssh/authorized_keys"',
        "systemctl enable ssh",
    ]


def _wifi(wifi: Wifi) -> list[str]:
    """Return the lines that install the connection; its key is in a file of its own, which the first boot overwrites."""
    lines = [
        f"for d in {PLACES}; do if [ -f $d/{WIFI_CONNECTION} ]; then install -m 600 $d/{WIFI_CONNECTION} {CONNECTION}; break; fi; done",
        "rfkill unblock wifi",
    ]
    if wifi.country:
        lines.append(f"raspi-config nonint do_wifi_country {wifi.country}")
    return lines


def connection(wifi: Wifi) -> str:
    """Return a NetworkManager connection; the network's name is in bytes, so that no character needs quoting."""
    ssid = "".join(f"{byte};" for byte in wifi.ssid.encode())
    lines = ["[connection]", "id=edgemeter", "type=wifi", "", "[wifi]", "mode=infrastructure", f"ssid={ssid}", ""]
    if wifi.psk_hex:
        lines += ["[wifi-security]", "key-mgmt=wpa-psk", f"psk={wifi.psk_hex}", ""]
    lines += ["[ipv4]", "method=auto", "", "[ipv6]", "method=auto"]
    return text_of(lines)
