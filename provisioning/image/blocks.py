"""Text edited by blocks, so that what people wrote into a file stays: keys of YAML at the left edge, sections of TOML.

Only the lines of our own are replaced. There is no need to understand the rest, and no library for it on a plain installation.
"""

import re
from collections.abc import Sequence

from edgemeter.agent.errors import ConfigError

KEY = re.compile(r"^([A-Za-z_][A-Za-z0-9_-]*)[ \t]*:(.*)$")
SECTION = re.compile(r"^\s*\[\s*([A-Za-z0-9_.-]+)\s*\]\s*(#.*)?$")
BEGIN = "# edgemeter: begin"
END = "# edgemeter: end"
# In a file that was not there before: without people's lines in it, it can go as it came.
MADE = "# edgemeter: `edgemeter fleet image` made this file"


def has_ours(text: str) -> bool:
    """Whether an earlier call put something between our marks."""
    return any(line.strip() == BEGIN for line in text.splitlines())


def without_ours(text: str) -> str:
    """Return `text` without what an earlier call put between our marks."""
    kept: list[str] = []
    ours = False
    for line in text.splitlines():
        if line.strip() == BEGIN:
            ours = True
        elif line.strip() == END:
            ours = False
        elif not ours:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def yaml_keys(text: str) -> set[str]:
    """Return the keys at the left edge."""
    return {found[1] for line in text.splitlines() if (found := KEY.match(line))}


def without_keys(text: str, keys: Sequence[str]) -> str:
    """Return YAML without these keys and what belongs to them: the lines up to the next key or the end of a document."""
    kept: list[str] = []
    dropping = False
    for line in text.splitlines():
        found = KEY.match(line)
        if found or line.startswith(("---", "...")):
            dropping = found is not None and found[1] in keys
        if not dropping or line.startswith("#"):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def with_item(text: str, key: str, item: str, where: str) -> str:
    """Return YAML whose list `key` has `item` first, between our marks; the list is added where there is none.

    Raises:
        ConfigError: the list is written within one line.
    """
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = KEY.match(line)
        if not found or found[1] != key:
            continue
        if found[2].split("#", 1)[0].strip():
            message = f"{where} has {line.strip()!r}: write that list with one item a line, or take it out, so that ours can join it"
            raise ConfigError(message)
        first = next((after for after in lines[at + 1 :] if after.strip() and not after.lstrip().startswith("#")), "")
        indent = first[: len(first) - len(first.lstrip())] if first.lstrip().startswith("-") else "  "
        return "".join(f"{part}\n" for part in [*lines[: at + 1], BEGIN, f"{indent}- {item}", END, *lines[at + 1 :]])
    return f"{text}{BEGIN}\n{key}:\n  - {item}\n{END}\n"


def sections(text: str) -> set[str]:
    """Return the sections of a TOML file."""
    return {found[1] for line in text.splitlines() if (found := SECTION.match(line))}


def without_sections(text: str, names: Sequence[str]) -> str:
    """Return TOML without these sections."""
    kept: list[str] = []
    dropping = False
    for line in text.splitlines():
        found = SECTION.match(line)
        if found:
            dropping = found[1] in names
        if not dropping:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)
