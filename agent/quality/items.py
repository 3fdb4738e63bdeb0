"""Reads the items that a language model is scored on: JSON Lines, one object a line."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from edgemeter.agent.base.errors import ConfigError

Item = TypeVar("Item", bound=msgspec.Struct)


def read_items(path: Path, kind: type[Item]) -> list[Item]:
    """Return the items in the file; empty lines are skipped.

    Raises:
        ConfigError: it cannot be read, holds no item, or a line is none (named).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the items in {str(path)!r}: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConfigError(f"{str(path)!r}, line {number}: {error}") from error
    if not found:
        raise ConfigError(f"{str(path)!r} holds no item: write one JSON object a line")
    return found


def items_sha256(items: Sequence[msgspec.Struct]) -> str:
    """Return the SHA-256 of the items themselves, whatever the file's spacing and order of keys."""
    return hashlib.sha256(msgspec.json.encode(items)).hexdigest()
