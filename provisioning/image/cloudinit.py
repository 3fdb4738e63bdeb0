"""cloud-init's NoCloud: `user-data`, `meta-data`, `network-config` on the boot partition, or on a stick labelled CIDATA.

The installation never runs inside cloud-init: what it does once per instance is marked as done before it is done, so a power cut would
lose it. `bootcmd` runs at every boot and only starts our unit. Source: cloud-init's documentation, "NoCloud", and its helpers.py.
"""

import json
import re

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.image import blocks, boot_partition, kernel_line, launch
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.changes import Change, Put, Remove, of_bytes
from edgemeter.provisioning.image.settings import Settings, Wifi

USER_DATA, META_DATA, NETWORK = "user-data", "meta-data", "network-config"
HEADER = "#cloud-config"
OWN_NETWORK = "# edgemeter: the Wi-Fi named to `edgemeter fleet image`"
# Pi OS ships the SSH server switched off.
SSH_ON = '[sh, -c, "systemctl enable ssh && systemctl start --no-block ssh"]'
INSTANCE = re.compile(r"^instance[-_]id[ \t]*:.*$")
OWN_INSTANCE = re.compile(r"instance-id: edgemeter-[0-9a-f]{16}")
OWN_WORD = re.compile(r"ds=nocloud;i=edgemeter-[0-9a-f]{16}")
NEW_USER_DATA, NEW_META_DATA = f"{HEADER}\n{blocks.MADE}\n", f"{blocks.MADE}\n"


def changes(boot: Readable, settings: Settings, instance: str, start: str = launch.FROM_BOOT) -> list[Change]:
    """Return what makes cloud-init start our unit; what people wrote into the files stays but where `settings` say otherwise.

    Raises:
        ConfigError: there is user-data that is no cloud-config.
    """
    found: list[Change] = []
    if settings.wifi is not None:
        found.append(_put(NETWORK, network(settings.wifi)))
    elif (boot_partition.text(boot, NETWORK) or "").startswith(OWN_NETWORK):
        # That of an earlier preparation, with its key: this time none was named.
        found.append(_put(NETWORK, network(None)))
    text = boot_partition.text(boot, USER_DATA)
    text = user_data(NEW_USER_DATA if text is None else text, settings, start, f"{USER_DATA} on {boot.where}")
    found.append(_put(USER_DATA, text))
    line = boot_partition.text(boot, kernel_line.NAME)
    if line is not None:
        # Without it every boot looks for a data source anew.
        added = [f"ds=nocloud;i={instance}"]
        found.append(_put(kernel_line.NAME, kernel_line.edited(line, _is_instance, added)))
    text = boot_partition.text(boot, META_DATA)
    found.append(_put(META_DATA, meta_data(NEW_META_DATA if text is None else text, instance)))
    return found


def withdrawal(boot: Readable) -> list[Change]:
    """Return what takes away all that `changes` wrote earlier; what people wrote stays."""
    found: list[Change] = []
    line = boot_partition.text_if_any(boot, kernel_line.NAME)
    if any(OWN_WORD.fullmatch(word) for word in line.split()):
        found.append(_put(kernel_line.NAME, kernel_line.edited(line, lambda word: OWN_WORD.fullmatch(word) is not None, [])))
    text = boot_partition.text_if_any(boot, USER_DATA)
    if blocks.has_ours(text):
        found.append(_kept(USER_DATA, blocks.without_ours(text), NEW_USER_DATA))
    lines = boot_partition.text_if_any(boot, META_DATA).splitlines()
    kept = [line for line in lines if not OWN_INSTANCE.fullmatch(line)]
    if kept != lines:
        found.append(_kept(META_DATA, "".join(f"{line}\n" for line in kept), NEW_META_DATA))
    if boot_partition.text_if_any(boot, NETWORK).startswith(OWN_NETWORK):
        found.append(Remove(NETWORK))
    return found


def user_data(text: str, settings: Settings, start: str, where: str) -> str:
    """Return the user-data `text` with our start and settings in it.

    Raises:
        ConfigError: it is no cloud-config.
    """
    text = blocks.without_ours(text)
    if not text.strip():
        text = f"{HEADER}\n"
    if text.split("\n", 1)[0].strip() != HEADER:
        message = f"{where} is no cloud-config (it begins with {text[:20]!r}): take it off the card, or make it one"
        raise ConfigError(message)
    ours = _settings(settings)
    text = blocks.without_keys(text, [line.split(":", 1)[0] for line in ours if not line.startswith(" ")])
    text = blocks.with_item(text, "bootcmd", f"[sh, -c, {json.dumps(start)}]", where)
    if settings.ssh_keys:
        text = blocks.with_item(text, "runcmd", SSH_ON, where)
    if ours:
        text += "".join(f"{line}\n" for line in [blocks.BEGIN, *ours, blocks.END])
    return text


def _settings(settings: Settings) -> list[str]:
    lines = []
    if settings.hostname:
        lines.append(f"hostname: {json.dumps(settings.hostname)}")
    keys = [f"- {json.dumps(key, ensure_ascii=False)}" for key in settings.ssh_keys]
    if settings.user:
        # `user` changes the system's own first account, so that its groups stay; without a password sudo could ask for none.
        lines += ["user:", f"  name: {json.dumps(settings.user)}", "  lock_passwd: true", '  sudo: "ALL=(ALL) NOPASSWD:ALL"']
        lines += ["  ssh_authorized_keys:", *(f"    {key}" for key in keys)]
    elif keys:
        lines += ["ssh_authorized_keys:", *(f"  {key}" for key in keys)]
    return lines


def meta_data(text: str, instance: str) -> str:
    """Return the meta-data `text` with a new instance: to cloud-init this is a board that it has not set up yet."""
    kept = [line for line in text.splitlines() if not INSTANCE.match(line)]
    return "".join(f"{line}\n" for line in [*kept, f"instance-id: {instance}"])


def network(wifi: Wifi | None) -> str:
    """Return a network-config: the Wi-Fi, if any, and whatever is plugged in; none of them holds up the boot."""
    lines = [OWN_NETWORK, "version: 2", "ethernets:", "  wired:", '    match: {name: "e*"}', "    dhcp4: true", "    optional: true"]
    if wifi is not None:
        lines += _access(wifi)
    return "".join(f"{line}\n" for line in lines)


def _access(wifi: Wifi) -> list[str]:
    lines = ["wifis:", "  wlan0:", "    dhcp4: true", "    optional: true"]
    if wifi.country:
        lines.append(f'    regulatory-domain: "{wifi.country}"')
    lines += ["    access-points:", f"      {json.dumps(wifi.ssid, ensure_ascii=False)}:"]
    lines[-1:] = [lines[-1], f'        password: "{wifi.psk_hex}"'] if wifi.psk_hex else [f"{lines[-1]} {{}}"]
    return lines


def _is_instance(word: str) -> bool:
    """Whether a word of the kernel's line names an instance, and not also where the files come from, which is somebody's own seed."""
    return word.startswith("ds=nocloud") and "s=" not in word.removeprefix("ds=") and "seedfrom=" not in word


def _kept(path: str, text: str, new: str) -> Change:
    return Remove(path) if text == new else _put(path, text)


def _put(path: str, text: str) -> Put:
    return Put(path, of_bytes(text.encode()))
