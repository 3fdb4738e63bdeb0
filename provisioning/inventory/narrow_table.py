"""A table that can be read on a terminal of 80 columns: what people copy stays on one line, what is long goes on below."""

from collections.abc import Collection, Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Where nobody looks, no row has to be folded.
PLAIN_WIDTH = 160


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], *, folded: Collection[str], right: Collection[str] = ()) -> Table:
    """Return a table of which only the columns in `folded` take more than a line where there is little room."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        is_folded = heading in folded
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold", no_wrap=not is_folded)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return made


def show(made: Table) -> None:
    """Print it, as wide as the terminal."""
    console = Console()
    (console if console.is_terminal else Console(width=PLAIN_WIDTH)).print(made)
