"""rpi-preseed, which Raspberry Pi OS reads since July 2026 in place of cloud-init: one file, `rpi-preseed.toml`.

Source: rpi-preseed's README, rpi-preseed(5) and example. Its `early` commands have 5 s each and run once, its `late` ones are retried:
ours copies a script and starts a unit, and is in both.
"""

import json

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.fat.volume import Change, RemovePath, put_text
from edgemeter.provisioning.image import boot_partition
from edgemeter.provisioning.image.adapter_text import FROM_BOOT, MADE, has_ours, marked, sections, without_ours, without_sections
from edgemeter.provisioning.image.boot_partition import Readable
from edgemeter.provisioning.image.settings import FirstBootSettings

NAME = "rpi-preseed.toml"
VERSION = 'config_version = "1.1"'
NEW = f"{VERSION}\n{MADE}\n"


def changes(boot: Readable, settings: FirstBootSettings) -> list[Change]:
    """Return the changes by which rpi-preseed starts our unit; the user's lines stay but for `settings`. Raises as `preseed`."""
    text = boot_partition.read_text(boot, NAME)
    text = preseed(NEW if text is None else text, settings, f"{NAME} on {boot.where}")
    return [put_text(NAME, text)]


def withdrawal(boot: Readable) -> list[Change]:
    """Return the changes that remove what `changes` wrote earlier; the user's lines stay."""
    text = boot_partition.read_text_if_any(boot, NAME)
    if not has_ours(text):
        return []
    users_text = without_ours(text)
    return [RemovePath(NAME) if users_text == NEW else put_text(NAME, users_text)]


def preseed(text: str, settings: FirstBootSettings, where: str) -> str:
    """Return the file `text` with our start and settings in it; raises ConfigError if it has a section [runcmd] of its own."""
    text = without_ours(text)
    start = f'"{FROM_BOOT}"'
    if "runcmd" in sections(text):
        raise ConfigError(f"{where} has a section [runcmd]: add {start} to its lists `early` and `late` by hand, or remove the section")
    own_sections = _settings(settings)
    own_sections["runcmd"] = [f"early = [{start}]", f"late = [{start}]"]
    text = without_sections(text, list(own_sections))
    if "config_version" not in text:
        text = f"{VERSION}\n{text}"
    return text + marked(line for section, keys in own_sections.items() for line in (f"[{section}]", *keys))


def _settings(settings: FirstBootSettings) -> dict[str, list[str]]:
    sections_by_name: dict[str, list[str]] = {}
    if settings.hostname:
        sections_by_name["system"] = [f'hostname = "{settings.hostname}"']
    if settings.user:
        sections_by_name["user"] = [f'name = "{settings.user}"', "passwordless_sudo = true"]
    if settings.ssh_keys:
        keys = ", ".join(json.dumps(key, ensure_ascii=False) for key in settings.ssh_keys)
        sections_by_name["ssh"] = ["enabled = true", "password_authentication = false", f"authorized_keys = [{keys}]"]
    if settings.wifi:
        wifi = settings.wifi
        sections_by_name["wlan"] = [f"ssid = {json.dumps(wifi.ssid, ensure_ascii=False)}"]
        if wifi.psk_hex:
            sections_by_name["wlan"] += [f'password = "{wifi.psk_hex}"', "password_encrypted = true"]
        if wifi.country:
            sections_by_name["wlan"].append(f'country = "{wifi.country}"')
    return sections_by_name
