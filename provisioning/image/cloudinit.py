"""cloud-init's NoCloud: `user-data`, `meta-data` and `network-config`.

They are on the boot partition, or on a stick labelled CIDATA. The installation never runs inside
cloud-init, which marks a once-per-instance step as done before it is done: a power cut would lose
it. `bootcmd` runs at every boot and only starts our unit.
Source: cloud-init's documentation, "NoCloud", and its helpers.py.
"""

import json
import re

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.image.adapter_text import (
    BEGIN,
    END,
    KERNEL_LINE,
    START,
    text_of,
    without_ours,
)
from edgemeter.provisioning.image.boot_partition import BootPartition
from edgemeter.provisioning.image.wifi import Wifi

USER_DATA, META_DATA, NETWORK = "user-data", "meta-data", "network-config"
HEADER = "#cloud-config"
ITEM = f"- [sh, -c, {json.dumps(START)}]"


def adapter_files(boot: BootPartition, wifi: Wifi | None, instance: str) -> dict[str, str]:
    """Return the files by which cloud-init starts our unit, the last to write at the end.

    It raises ConfigError as `user_data`.
    """
    files = {NETWORK: network(wifi)} if wifi is not None else {}
    lines = [
        line
        for line in (boot.text(META_DATA) or "").splitlines()
        if not re.match(r"instance[-_]id[ \t]*:", line)
    ]
    # For a new instance, cloud-init sets the board up again.
    files[META_DATA] = text_of([*lines, f"instance-id: {instance}"])
    kernel_line = boot.text(KERNEL_LINE)
    if kernel_line is not None:
        # A setting that also names a source of the files (`s=`, `seedfrom=`) is the user's own.
        words = [
            word
            for word in kernel_line.replace("\0", " ").split()
            if not word.startswith("ds=nocloud")
            or "s=" in word.removeprefix("ds=")
            or "seedfrom=" in word
        ]
        # Otherwise every boot searches for a data source.
        files[KERNEL_LINE] = " ".join([*words, f"ds=nocloud;i={instance}"]) + "\n"
    return {
        **files,
        USER_DATA: user_data(boot.text(USER_DATA) or "", f"{USER_DATA} on {str(boot.path)!r}"),
    }


def user_data(text: str, where: str) -> str:
    """Return the user-data `text` with our start in it.

    Raises:
        ConfigError: it is not a cloud-config with one command per line.
    """
    lines = without_ours(text) if text.strip() else [HEADER]
    if lines[0].strip() != HEADER:
        raise ConfigError(
            f"{where} is not a cloud-config (it begins with {text[:20]!r}): remove it from the "
            "card, or convert it"
        )
    at = next(
        (number for number, line in enumerate(lines) if re.match(r"bootcmd[ \t]*:", line)), None
    )
    if at is None:
        return text_of([*lines, BEGIN, "bootcmd:", f"  {ITEM}", END])
    if lines[at].split("#", 1)[0].split(":", 1)[1].strip():
        raise ConfigError(
            f"{where} has {lines[at].strip()!r}: write that list with one item a line, so that "
            "ours can be added"
        )
    first = next(
        (line for line in lines[at + 1 :] if line.strip() and not line.lstrip().startswith("#")), ""
    )
    indent = first[: len(first) - len(first.lstrip())] if first.lstrip().startswith("-") else "  "
    return text_of([*lines[: at + 1], BEGIN, f"{indent}{ITEM}", END, *lines[at + 1 :]])


def network(wifi: Wifi) -> str:
    """Return a network-config: this Wi-Fi and wired networks; none of them delays the boot."""
    lines = [
        "version: 2",
        "ethernets:",
        "  wired:",
        '    match: {name: "e*"}',
        "    dhcp4: true",
        "    optional: true",
    ]
    lines += ["wifis:", "  wlan0:", "    dhcp4: true", "    optional: true"]
    if wifi.country:
        lines.append(f'    regulatory-domain: "{wifi.country}"')
    access_point = f"      {json.dumps(wifi.ssid, ensure_ascii=False)}:"
    # The key has a line of its own: firstboot.sh overwrites it there.
    access = (
        [access_point, f'        password: "{wifi.psk_hex}"']
        if wifi.psk_hex
        else [f"{access_point} {{}}"]
    )
    return text_of([*lines, "    access-points:", *access])
