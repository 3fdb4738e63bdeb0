"""The texts that a model file holds as a zip: labels and settings, which it states about itself."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from edgemeter.agent.contract.model_file import BROKEN_ZIP

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Labels and settings are no longer than this, and a zip can claim any size.
_TEXT_BYTES = 1 << 20
_TEXTS = 32


def texts(archive: Path | IO[bytes], below: str = "") -> Mapping[str, str]:
    """Return the UTF-8 members of a zip (also one appended to another file) by name, those under a folder `below` only.

    What is not a zip or text, or larger than a label file can be is left out: this is what a file states about itself, not what it needs.
    """
    text_by_name: dict[str, str] = {}
    try:
        with zipfile.ZipFile(archive) as members:
            for info in members.infolist():
                name = _name_below(info.filename, below)
                is_small = info.file_size <= _TEXT_BYTES and info.compress_type in COMPRESSIONS
                if name is not None and is_small and len(text_by_name) < _TEXTS:
                    text_by_name.update(_text(members, info, name))
    except BROKEN_ZIP:
        return text_by_name
    return text_by_name


def _name_below(filename: str, below: str) -> str | None:
    """Return the member's name as it is to be called; None for a folder and for what lies elsewhere."""
    if filename.endswith("/"):
        return None
    if not below:
        return filename
    _, separator, name = f"/{filename}".partition(f"/{below}/")
    return name if separator and name else None


def _text(members: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Mapping[str, str]:
    """Return the member's text under its name, nothing when it is not text."""
    try:
        with members.open(info) as member:
            content = member.read(_TEXT_BYTES + 1)
        return {name: content.decode("utf-8")} if len(content) <= _TEXT_BYTES else {}
    except BROKEN_ZIP:
        return {}
