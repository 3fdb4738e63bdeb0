"""rpi-preseed, which Raspberry Pi OS reads since July 2026 in place of cloud-init: one file, `rpi-preseed.toml`.

Source: rpi-preseed's README, rpi-preseed(5) and example. Its `early` commands have 5 s each and run once, its `late` ones are tried again:
ours copies a script and starts a unit, and is given to both.
"""

import json

from edgemeter.agent.errors import ConfigError
from edgemeter.provisioning.image import blocks, boot_partition, launch
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.changes import Change, Put, Remove, of_bytes
from edgemeter.provisioning.image.settings import Settings

NAME = "rpi-preseed.toml"
VERSION = 'config_version = "1.1"'
NEW = f"{VERSION}\n{blocks.MADE}\n"


def changes(boot: Readable, settings: Settings) -> list[Change]:
    """Return what makes rpi-preseed start our unit; what people wrote stays but where `settings` say otherwise.

    Raises:
        ConfigError: the file has commands of its own.
    """
    text = boot_partition.text(boot, NAME)
    text = preseed(NEW if text is None else text, settings, f"{NAME} on {boot.where}")
    return [Put(NAME, of_bytes(text.encode()))]


def withdrawal(boot: Readable) -> list[Change]:
    """Return what takes away all that `changes` wrote earlier; what people wrote stays."""
    text = boot_partition.text_if_any(boot, NAME)
    if not blocks.has_ours(text):
        return []
    kept = blocks.without_ours(text)
    return [Remove(NAME) if kept == NEW else Put(NAME, of_bytes(kept.encode()))]


def preseed(text: str, settings: Settings, where: str) -> str:
    """Return the file `text` with our start and settings in it.

    Raises:
        ConfigError: it has a section [runcmd] of its own.
    """
    text = blocks.without_ours(text)
    start = f'"{launch.FROM_BOOT}"'
    if "runcmd" in blocks.sections(text):
        message = f"{where} has a section [runcmd]: add {start} to its lists `early` and `late` by hand, or take the section out"
        raise ConfigError(message)
    ours = _settings(settings)
    ours["runcmd"] = [f"early = [{start}]", f"late = [{start}]"]
    text = blocks.without_sections(text, list(ours))
    if "config_version" not in text:
        text = f"{VERSION}\n{text}"
    lines = [blocks.BEGIN]
    for section, keys in ours.items():
        lines += [f"[{section}]", *keys]
    return text + "".join(f"{line}\n" for line in [*lines, blocks.END])


def _settings(settings: Settings) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if settings.hostname:
        found["system"] = [f'hostname = "{settings.hostname}"']
    if settings.user:
        found["user"] = [f'name = "{settings.user}"', "passwordless_sudo = true"]
    if settings.ssh_keys:
        keys = ", ".join(json.dumps(key, ensure_ascii=False) for key in settings.ssh_keys)
        found["ssh"] = ["enabled = true", "password_authentication = false", f"authorized_keys = [{keys}]"]
    if settings.wifi:
        wifi = settings.wifi
        found["wlan"] = [f"ssid = {json.dumps(wifi.ssid, ensure_ascii=False)}"]
        if wifi.psk_hex:
            found["wlan"] += [f'password = "{wifi.psk_hex}"', "password_encrypted = true"]
        if wifi.country:
            found["wlan"].append(f'country = "{wifi.country}"')
    return found
