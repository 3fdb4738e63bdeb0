"""Times, device text and tables as people read them on a terminal."""

from collections.abc import Collection, Iterable
from datetime import datetime, timezone

from rich.table import Table
from rich.text import Text

from edgemeter.agent.base.nanoseconds import NS_PER_S
from edgemeter.agent.base.terminal import plain_table

ABSENT = "-"


def stamp(taken_ns: int | None) -> str | None:
    """Return a time as ISO 8601, UTC."""
    if taken_ns is None:
        return None
    return datetime.fromtimestamp(taken_ns / NS_PER_S, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def plain(text: str) -> str:
    """Return text of a device fit for a terminal: on one line, without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def narrow_table(headings: Iterable[str], rows: Iterable[Iterable[str]], *, folded: Collection[str], right: Collection[str] = ()) -> Table:
    """Return a table of which only the columns in `folded` take more than one line where the terminal is narrow."""
    table = plain_table()
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold", no_wrap=heading not in folded)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
