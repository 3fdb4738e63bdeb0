"""`firstrun.sh`, which Raspberry Pi OS Bookworm and the first Trixie run once from the kernel's command line.

The network is not there yet when it runs: it installs our unit, sets up what was asked for, and lets the board start again.
Source: rpi-imager doc/os_customisation_formats.md; raspberrypi-sys-mods firstboot, imager_custom and imager_fixup, which rewrites the
paths below /boot and the end of the script from its `rm` on.
"""

import shlex

from edgemeter.provisioning.image import blocks, boot_partition, kernel_line, launch
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.changes import Change, Put, Remove, of_bytes
from edgemeter.provisioning.image.settings import Settings, Wifi

NAME = "firstrun.sh"
WORDS = ("systemd.run=/boot/firstrun.sh", "systemd.run_success_action=reboot", "systemd.unit=kernel-command-line.target")
HEAD = "#!/bin/bash\nset +e\n"
# The kernel's line first: were the script gone and the line still there, the board would stop at every boot.
CLEANED = r"s| systemd\.run[^ ]*||g; s| systemd\.unit=kernel-command-line\.target||g"
TAIL = f"""for d in {launch.PLACES}; do
    test ! -f $d/{kernel_line.NAME} || sed -i '{CLEANED}' $d/{kernel_line.NAME}
done
sync
rm -f /boot/{NAME}
exit 0
"""
CUSTOM = "/usr/lib/raspberrypi-sys-mods/imager_custom"
USERCONF = "/usr/lib/userconf-pi/userconf"
CONNECTION = "/etc/NetworkManager/system-connections/edgemeter.nmconnection"


def changes(boot: Readable, settings: Settings) -> list[Change]:
    """Return what makes the board run our part once; a script that is there already keeps its own."""
    found: list[Change] = []
    if settings.wifi is not None:
        found.append(Put(launch.WIFI, of_bytes(connection(settings.wifi).encode())))
    found.append(Put(NAME, of_bytes(script(boot_partition.text(boot, NAME) or "", settings).encode())))
    line = boot_partition.text(boot, kernel_line.NAME) or ""
    ours = kernel_line.edited(line, lambda word: word.startswith(("systemd.run", "systemd.unit=kernel-command-line")), WORDS)
    # Last: before the line is there, nothing runs the script.
    found.append(Put(kernel_line.NAME, of_bytes(ours.encode())))
    return found


def withdrawal(boot: Readable) -> list[Change]:
    """Return what takes away all that `changes` wrote earlier; a script of people's own stays, and what runs it."""
    text = boot_partition.text_if_any(boot, NAME)
    if not blocks.has_ours(text):
        return []
    kept = blocks.without_ours(text)
    if kept != HEAD + TAIL:
        return [Put(NAME, of_bytes(kept.encode()))]
    line = boot_partition.text_if_any(boot, kernel_line.NAME)
    found: list[Change] = []
    if any(word in WORDS for word in line.split()):
        # First: were the script gone and the line still there, the board would stop at every boot.
        found.append(Put(kernel_line.NAME, of_bytes(kernel_line.edited(line, lambda word: word in WORDS, []).encode())))
    return [*found, Remove(NAME)]


def script(text: str, settings: Settings) -> str:
    """Return the script `text` with our part at its beginning, or one of ours alone."""
    text = blocks.without_ours(text) or HEAD + TAIL
    first, _, rest = text.partition("\n")
    # Its first line says what runs it; an error of ours must not keep the rest from running.
    part = "".join(f"{line}\n" for line in [blocks.BEGIN, *_part(settings), blocks.END])
    return f"{first}\n{part}{rest}"


def _part(settings: Settings) -> list[str]:
    lines = [launch.FROM_BOOT]
    if settings.hostname:
        lines.append(
            f"if [ -x {CUSTOM} ]; then {CUSTOM} set_hostname {settings.hostname}; else echo {settings.hostname} >/etc/hostname; fi"
        )
    if settings.user:
        # An account without a password: its key is the way in, and sudo could ask for none.
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


def _keys(settings: Settings) -> list[str]:
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
    """Return how the connection gets to NetworkManager; its key lies in a file of its own, which the first boot overwrites."""
    lines = [
        f"for d in {launch.PLACES}; do if [ -f $d/{launch.WIFI} ]; then install -m 600 $d/{launch.WIFI} {CONNECTION}; break; fi; done",
        "rfkill unblock wifi",
    ]
    if wifi.country:
        lines.append(f"raspi-config nonint do_wifi_country {wifi.country}")
    return lines


def connection(wifi: Wifi) -> str:
    """Return a connection as NetworkManager keeps it; the name of the network in bytes, so that no character needs care."""
    ssid = "".join(f"{byte};" for byte in wifi.ssid.encode())
    lines = ["[connection]", "id=edgemeter", "type=wifi", "", "[wifi]", "mode=infrastructure", f"ssid={ssid}", ""]
    if wifi.psk_hex:
        lines += ["[wifi-security]", "key-mgmt=wpa-psk", f"psk={wifi.psk_hex}", ""]
    lines += ["[ipv4]", "method=auto", "", "[ipv6]", "method=auto"]
    return "".join(f"{line}\n" for line in lines)
