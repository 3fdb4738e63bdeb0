"""cloud-init's NoCloud: `user-data`, `meta-data`, `network-config` on the boot partition, or on a stick labelled CIDATA.

The installation never runs inside cloud-init, which marks what it does once per instance as done before it is done: a power cut would
lose it. `bootcmd` runs at every boot and only starts our unit. Source: cloud-init's documentation, "NoCloud", and its helpers.py.
"""

import json
import re

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.fat.volume import Change, RemovePath, put_text
from edgemeter.provisioning.image import boot_partition
from edgemeter.provisioning.image.adapter_text import (
    FROM_BOOT,
    KERNEL_LINE,
    MADE,
    edit_kernel_line,
    has_ours,
    marked,
    text_of,
    with_item,
    without_keys,
    without_ours,
)
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.settings import FirstBootSettings, Wifi

USER_DATA, META_DATA, NETWORK = "user-data", "meta-data", "network-config"
HEADER = "#cloud-config"
OWN_NETWORK = "# edgemeter: the Wi-Fi named to `edgemeter fleet card`"
# Pi OS ships the SSH server switched off.
SSH_ON = '[sh, -c, "systemctl enable ssh && systemctl start --no-block ssh"]'
INSTANCE = re.compile(r"^instance[-_]id[ \t]*:.*$")
OWN_INSTANCE = re.compile(r"instance-id: edgemeter-[0-9a-f]{16}")
OWN_WORD = re.compile(r"ds=nocloud;i=edgemeter-[0-9a-f]{16}")
NEW_USER_DATA, NEW_META_DATA = f"{HEADER}\n{MADE}\n", f"{MADE}\n"


def changes(boot: Readable, settings: FirstBootSettings, instance: str, start: str = FROM_BOOT) -> list[Change]:
    """Return the changes by which cloud-init starts our unit; the user's lines stay but for `settings`. Raises as `user_data`."""
    planned: list[Change] = []
    if settings.wifi is not None:
        planned.append(put_text(NETWORK, network(settings.wifi)))
    elif (boot_partition.read_text(boot, NETWORK) or "").startswith(OWN_NETWORK):
        # That of an earlier preparation, with its key: this time no Wi-Fi is set.
        planned.append(put_text(NETWORK, network(None)))
    text = boot_partition.read_text(boot, USER_DATA)
    text = user_data(NEW_USER_DATA if text is None else text, settings, start, f"{USER_DATA} on {boot.where}")
    planned.append(put_text(USER_DATA, text))
    line = boot_partition.read_text(boot, KERNEL_LINE)
    if line is not None:
        # Without it every boot searches for a data source.
        added = [f"ds=nocloud;i={instance}"]
        planned.append(put_text(KERNEL_LINE, edit_kernel_line(line, _is_instance, added)))
    text = boot_partition.read_text(boot, META_DATA)
    meta_lines = [line for line in (NEW_META_DATA if text is None else text).splitlines() if not INSTANCE.match(line)]
    # For a new instance, cloud-init sets the board up again.
    planned.append(put_text(META_DATA, text_of([*meta_lines, f"instance-id: {instance}"])))
    return planned


def withdrawal(boot: Readable) -> list[Change]:
    """Return the changes that remove what `changes` wrote earlier; the user's lines stay."""
    planned: list[Change] = []
    line = boot_partition.read_text_if_any(boot, KERNEL_LINE)
    if any(OWN_WORD.fullmatch(word) for word in line.split()):
        planned.append(put_text(KERNEL_LINE, edit_kernel_line(line, lambda word: OWN_WORD.fullmatch(word) is not None, [])))
    text = boot_partition.read_text_if_any(boot, USER_DATA)
    if has_ours(text):
        planned.append(_kept(USER_DATA, without_ours(text), NEW_USER_DATA))
    lines = boot_partition.read_text_if_any(boot, META_DATA).splitlines()
    user_lines = [line for line in lines if not OWN_INSTANCE.fullmatch(line)]
    if user_lines != lines:
        planned.append(_kept(META_DATA, text_of(user_lines), NEW_META_DATA))
    if boot_partition.read_text_if_any(boot, NETWORK).startswith(OWN_NETWORK):
        planned.append(RemovePath(NETWORK))
    return planned


def user_data(text: str, settings: FirstBootSettings, start: str, where: str) -> str:
    """Return the user-data `text` with our start and settings in it; raises ConfigError if it is not a cloud-config."""
    text = without_ours(text)
    if not text.strip():
        text = f"{HEADER}\n"
    if text.split("\n", 1)[0].strip() != HEADER:
        raise ConfigError(f"{where} is not a cloud-config (it begins with {text[:20]!r}): remove it from the card, or convert it")
    own_lines = _settings(settings)
    text = without_keys(text, [line.split(":", 1)[0] for line in own_lines if not line.startswith(" ")])
    text = with_item(text, "bootcmd", f"[sh, -c, {json.dumps(start)}]", where)
    if settings.ssh_keys:
        text = with_item(text, "runcmd", SSH_ON, where)
    if own_lines:
        text += marked(own_lines)
    return text


def _settings(settings: FirstBootSettings) -> list[str]:
    lines = []
    if settings.hostname:
        lines.append(f"hostname: {json.dumps(settings.hostname)}")
    keys = [f"- {json.dumps(key, ensure_ascii=False)}" for key in settings.ssh_keys]
    if settings.user:
        # `user` changes the system's own first account, so that its groups stay; without a password sudo must not ask for one.
        lines += ["user:", f"  name: {json.dumps(settings.user)}", "  lock_passwd: true", '  sudo: "ALL=(ALL) NOPASSWD:ALL"']
        lines += ["  ssh_authorized_keys:", *(f"    {key}" for key in keys)]
    elif keys:
        lines += ["ssh_authorized_keys:", *(f"  {key}" for key in keys)]
    return lines


def network(wifi: Wifi | None) -> str:
    """Return a network-config: the Wi-Fi, if any, and wired networks; none of them delays the boot."""
    lines = [OWN_NETWORK, "version: 2", "ethernets:", "  wired:", '    match: {name: "e*"}', "    dhcp4: true", "    optional: true"]
    if wifi is not None:
        lines += ["wifis:", "  wlan0:", "    dhcp4: true", "    optional: true"]
        if wifi.country:
            lines.append(f'    regulatory-domain: "{wifi.country}"')
        network_name = f"      {json.dumps(wifi.ssid, ensure_ascii=False)}:"
        access = [network_name, f'        password: "{wifi.psk_hex}"'] if wifi.psk_hex else [f"{network_name} {{}}"]
        lines += ["    access-points:", *access]
    return text_of(lines)


def _is_instance(word: str) -> bool:
    """Return whether a word of the kernel line names an instance, and not also a source of the files, which is the user's own."""
    return word.startswith("ds=nocloud") and "s=" not in word.removeprefix("ds=") and "seedfrom=" not in word


def _kept(path: str, text: str, new: str) -> Change:
    return RemovePath(path) if text == new else put_text(path, text)
