"""rpi-preseed, which Raspberry Pi OS is to read in place of cloud-init: one file, `rpi-preseed.toml`.

Source: rpi-preseed's README, rpi-preseed(5) and example. Its `early` commands have 5 s each and run once, its `late` ones are retried:
ours copies a script and starts a unit, and is in both.
"""

import json

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.image.adapter_text import BEGIN, END, START, text_of, without_ours
from edgemeter.provisioning.image.boot_partition import BootPartition
from edgemeter.provisioning.image.wifi import Wifi

NAME = "rpi-preseed.toml"


def adapter_files(boot: BootPartition, wifi: Wifi | None) -> dict[str, str]:
    """Return the file with our start in it; raises ConfigError if it has a section that ours would repeat."""
    lines = without_ours(boot.text(NAME) or 'config_version = "1.1"\n')
    part = ["[runcmd]", f'early = ["{START}"]', f'late = ["{START}"]']
    if wifi is not None:
        part += ["[wlan]", f"ssid = {json.dumps(wifi.ssid, ensure_ascii=False)}"]
        part += [f'password = "{wifi.psk_hex}"', "password_encrypted = true"] if wifi.psk_hex else []
        part += [f'country = "{wifi.country}"'] if wifi.country else []
    repeated = [line.strip() for line in lines if line.strip() in part]
    if repeated:
        raise ConfigError(f"{NAME} on {str(boot.path)!r} has a section {repeated[0]} of its own: remove it from the card")
    return {NAME: text_of([*lines, BEGIN, *part, END])}
