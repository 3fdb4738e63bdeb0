"""The language model that ships: its folder and its index."""

from pathlib import Path

import msgspec

SHIPPED = Path(__file__).resolve().parents[2] / "models" / "language"


def shipped_index():
    """Return the index of the shipped files."""
    return msgspec.toml.decode((SHIPPED / "language.toml").read_bytes())
