"""The parts that the first-boot formats share.

They are the command that starts our script, and text in which the user's lines stay. At every boot
each format starts the script in the payload, which copies itself and its unit to the disk.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

BootFormat: TypeAlias = Literal["cloudinit", "firstrun"]
PAYLOAD = "edgemeter"
SCRIPT = f"{PAYLOAD}/firstboot.sh"
WIFI_CONNECTION = f"{PAYLOAD}/wifi.nmconnection"
KERNEL_LINE = "cmdline.txt"
DONE_FILE = "/var/lib/edgemeter/firstboot.done"
# Where systems for boards mount their boot partition; we mount a stick of cloud-init ourselves.
BOOT_FOLDERS = "/boot/firmware /boot /boot/efi"
SEED = "/run/edgemeter/seed"
# No quotation marks, brackets or commas: it is part of a string in YAML.
START = (
    f"test -e {DONE_FILE} || for d in {BOOT_FOLDERS} {SEED}; do "
    f"test $d != {SEED} || {{ mkdir -p $d; mount LABEL=CIDATA $d || mount LABEL=cidata $d; }}; "
    f"if test -f $d/{SCRIPT}; then sh $d/{SCRIPT} install; break; fi; done"
)
BEGIN = "# edgemeter: begin"
END = "# edgemeter: end"


def text_of(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def without_ours(text: str) -> list[str]:
    """Return the lines of `text` without those between our marks from an earlier call."""
    lines: list[str] = []
    is_ours = False
    for line in text.splitlines():
        if line.strip() in (BEGIN, END):
            is_ours = line.strip() == BEGIN
        elif not is_ours:
            lines.append(line)
    return lines
