"""The published figures that ship: single figures, one file a source, each with its licence and what the source does not state."""

from functools import cache
from pathlib import Path

from edgemeter.collector.published import table_file
from edgemeter.collector.published.row import PublishedRow

FOLDER = Path(__file__).with_name("shipped")


@cache
def shipped_rows() -> tuple[PublishedRow, ...]:
    """Return them, source by source in the order of the files' names."""
    return tuple(row for path in sorted(FOLDER.glob("*.toml")) for row in table_file.read(path))
