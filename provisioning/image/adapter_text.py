"""Shared code of the first-boot adapters: the command that starts our script, the kernel's line, and text edited by blocks.

Text is edited by blocks (top-level keys of YAML, sections of TOML): the user's lines stay, only our own are replaced. The rest need not be
parsed, and a plain installation has no YAML library.
The kernel line is `cmdline.txt`, which the firmware of a Pi passes to the kernel: one line, of which only the first counts.
At every boot each format starts the script in the payload, which copies itself and its unit to the disk.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from edgemeter.agent.base.errors import ConfigError

KEY = re.compile(r"^([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(.*)$")
SECTION = re.compile(r"^\s*\[\s*([A-Za-z0-9_.-]+)\s*\]\s*(#.*)?$")
BEGIN = "# edgemeter: begin"
END = "# edgemeter: end"

# In a file that did not exist before: as long as it holds no lines of the user, it can be removed again.
MADE = "# edgemeter: `edgemeter fleet card` made this file"


def text_of(lines: Iterable[str]) -> str:
    """Return lines as text, each with its newline."""
    return "".join(f"{line}\n" for line in lines)


def marked(lines: Iterable[str]) -> str:
    """Return lines of ours as text, between our marks."""
    return text_of([BEGIN, *lines, END])


def has_ours(text: str) -> bool:
    """Return whether an earlier call put something between our marks."""
    return any(line.strip() == BEGIN for line in text.splitlines())


def without_ours(text: str) -> str:
    """Return `text` without what an earlier call put between our marks."""
    lines: list[str] = []
    is_ours = False
    for line in text.splitlines():
        if line.strip() == BEGIN:
            is_ours = True
        elif line.strip() == END:
            is_ours = False
        elif not is_ours:
            lines.append(line)
    return text_of(lines)


def without_keys(text: str, keys: Sequence[str]) -> str:
    """Return YAML without these keys and their values: the lines up to the next key or the end of a document."""
    lines: list[str] = []
    dropping = False
    for line in text.splitlines():
        match = KEY.match(line)
        if match or line.startswith(("---", "...")):
            dropping = match is not None and match[1] in keys
        if not dropping or line.startswith("#"):
            lines.append(line)
    return text_of(lines)


def with_item(text: str, key: str, item: str, where: str) -> str:
    """Return YAML whose list `key`, added if absent, begins with `item`, marked as ours; raises ConfigError if it is on one line."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        match = KEY.match(line)
        if not match or match[1] != key:
            continue
        if match[2].split("#", 1)[0].strip():
            raise ConfigError(
                f"{where} has {line.strip()!r}: write that list with one item a line, or remove it, so that ours can be added"
            )
        first = next((after for after in lines[at + 1 :] if after.strip() and not after.lstrip().startswith("#")), "")
        indent = first[: len(first) - len(first.lstrip())] if first.lstrip().startswith("-") else "  "
        return text_of([*lines[: at + 1], BEGIN, f"{indent}- {item}", END, *lines[at + 1 :]])
    return f"{text}{BEGIN}\n{key}:\n  - {item}\n{END}\n"


def sections(text: str) -> set[str]:
    """Return the sections of a TOML file."""
    return {match[1] for line in text.splitlines() if (match := SECTION.match(line))}


def without_sections(text: str, names: Sequence[str]) -> str:
    """Return TOML without these sections."""
    lines: list[str] = []
    dropping = False
    for line in text.splitlines():
        match = SECTION.match(line)
        if match:
            dropping = match[1] in names
        if not dropping:
            lines.append(line)
    return text_of(lines)


KERNEL_LINE = "cmdline.txt"


def edit_kernel_line(text: str, drop: Callable[[str], bool], add: Sequence[str]) -> str:
    """Return the kernel line, one line, without the words that `drop` selects and with those of `add` at its end."""
    words = [word for word in text.replace("\0", " ").split() if not drop(word) and word not in add]
    return " ".join([*words, *add]) + "\n"


PAYLOAD_FOLDER = "edgemeter"
LAUNCH_SCRIPT = f"{PAYLOAD_FOLDER}/firstboot.sh"
WIFI_CONNECTION = f"{PAYLOAD_FOLDER}/wifi.nmconnection"
DONE_FILE = "/var/lib/edgemeter/firstboot.done"

# Where systems for boards mount their boot partition.
PLACES = "/boot/firmware /boot /boot/efi"
SEED = "/run/edgemeter/seed"

# No quotation marks, brackets or commas in these: they are part of strings in YAML and TOML, which small parsers read too.
FROM_BOOT = (
    f"test -e {DONE_FILE} || for d in {PLACES}; do if test -f $d/{LAUNCH_SCRIPT}; then sh $d/{LAUNCH_SCRIPT} install; break; fi; done"
)
FROM_STICK = (
    f"test -e {DONE_FILE} || {{ mkdir -p {SEED}; test -f {SEED}/{LAUNCH_SCRIPT} || mount LABEL=CIDATA {SEED} || mount LABEL=cidata {SEED}; "
    f"sh {SEED}/{LAUNCH_SCRIPT} install; }}"
)
