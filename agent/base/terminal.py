"""Text and tables on a terminal, and waiting for the end of a service."""

import signal
import textwrap
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from edgemeter.agent.base.figures import ABSENT, printable
from edgemeter.agent.base.threads import ended_by_dead_threads

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

BETWEEN_COLUMNS = 2
TABLE_WIDTH = 100  # Wider tables of figures are hard to read.
MARKDOWN_WIDTH = 400  # Markdown tables have no width: do not wrap.
NARROWEST_NAME = 16
NARROWEST_TEXT = 8  # Names too, if nothing else can shrink.
DOTS = "..."
REDUNDANT = 9  # The rank of a column that is equal in all rows, or repeats another.
ENTRY_WIDTH = 100  # Longer lines of text are hard to read.
PIPED_WIDTH = 1000  # Output to a pipe has no width: rows are not wrapped.


def wide_console() -> "Console":
    """Return the console of standard output; a file or another program gets plain tables, one line per row, of any width."""
    from rich.console import Console  # noqa: PLC0415 - rich takes long to import
    from rich.table import Table  # noqa: PLC0415

    class PipedConsole(Console):
        """Prints tables without rules and without trailing spaces, for grep and awk."""

        def print(self, *objects: Any, **how: Any) -> None:
            for table in objects:
                if isinstance(table, Table):
                    table.box, table.padding, table.pad_edge, table.title_justify = None, (0, 2, 0, 0), False, "left"
            with self.capture() as captured:
                super().print(*objects, **how)
            lines = captured.get().split("\n")
            click.echo("\n".join(line.rstrip(" ") for line in lines), nl=False)

    console = Console()
    return console if console.is_terminal else PipedConsole(width=PIPED_WIDTH)


def plain_table(*headings: str, right: Collection[str] = (), overflow: Literal["fold", "ellipsis"] = "fold") -> "Table":
    """Return a table with a header line and rows, without frames; columns under `right` are right-aligned.

    The first column, which names the row, is folded last.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, overflow=overflow, no_wrap=heading == headings[0])
    return table


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column with all its cells. Without any figure it is dropped unless `always`; a narrow terminal drops the highest rank first.

    Within one rank the last is dropped first, and rank `REDUNDANT` before anything is narrowed. A column that is `narrowed` folds its
    texts, or shortens its names.
    """

    heading: str
    cells: Sequence[str]
    justify: Literal["left", "right"] = "right"
    rank: int = 0
    always: bool = False
    narrowed: Literal["", "folds", "shortens"] = ""

    @property
    def full_width(self) -> int:
        from rich.cells import cell_len  # noqa: PLC0415 - rich takes long to import

        return max(map(cell_len, (self.heading, *self.cells)))

    @property
    def width(self) -> int:
        """The least width of the column before another one is dropped; names must stay different."""
        if self.narrowed == "shortens":
            narrower = range(NARROWEST_NAME, self.full_width)
            return next((width for width in narrower if max(map(len, shortened(self.cells, width))) <= width), self.full_width)
        return min(NARROWEST_TEXT, self.full_width) if self.narrowed else self.full_width


def table_width(console: "Console") -> int:
    """Return the width of a table of figures: that of the console, at most `TABLE_WIDTH`; Markdown has all columns."""
    return console.width if console.width == MARKDOWN_WIDTH else min(console.width, TABLE_WIDTH)


def fitted_table(
    columns: Iterable[TableColumn], width: int, styles: Mapping[str, str] | None = None, remedy: str = "--format csv shows them"
) -> "Table":
    """Return a table of the columns that have content and fit; a note names the dropped ones with the remedy.

    `styles` are those of cells, by their text.
    """
    from rich.text import Text  # noqa: PLC0415

    showing = [column for column in columns if column.always or any(cell.strip() not in ("", ABSENT) for cell in column.cells)]
    fitting = showing
    if sum(column.full_width + BETWEEN_COLUMNS for column in fitting) > width:
        fitting = [column for column in fitting if column.rank < REDUNDANT]
    while sum(column.width + BETWEEN_COLUMNS for column in fitting) > width and any(column.rank for column in fitting):
        last = max(reversed(fitting), key=lambda column: column.rank)
        fitting = [column for column in fitting if column is not last]
    table = plain_table()
    if missing := [column.heading.strip() for column in showing if column not in fitting and column.rank < REDUNDANT]:
        table.caption, table.caption_justify = f"left out: {', '.join(missing)} ({remedy})", "left"
    widths = _widths(fitting, width)
    rows = []
    for column, least in zip(fitting, widths, strict=True):
        cells = shortened(column.cells, least) if column.narrowed == "shortens" else column.cells
        is_whole = column.narrowed != "folds" and max(map(len, cells)) <= least
        # As text: searching for markup and emoji needs a slow import.
        table.add_column(Text(column.heading), justify=column.justify, min_width=least, no_wrap=is_whole, overflow="fold")
        rows.append(cells)
    for row in zip(*rows, strict=True):
        table.add_row(*(Text(cell, (styles or {}).get(cell, "")) for cell in row))
    return table


def _widths(columns: Sequence[TableColumn], width: int) -> list[int]:
    """Return the widths of columns: the widest names are narrowed until all columns fit, or no name can be shorter."""
    room, least = width - BETWEEN_COLUMNS * len(columns), [column.width for column in columns]
    widths = [column.full_width if column.narrowed == "shortens" else column.width for column in columns]
    shortest = least if sum(least) <= room else [min(NARROWEST_TEXT, each) for each in least]
    names = [index for index, column in enumerate(columns) if column.narrowed == "shortens"]
    while sum(widths) > room and (longer := [index for index in names if widths[index] > shortest[index]]):
        widths[max(longer, key=widths.__getitem__)] -= 1
    return widths


def shortened(names: Sequence[str], width: int) -> Sequence[str]:
    """Return names with dots in the middle of the long ones, or all in full if two would look the same."""
    letters = width - len(DOTS)
    for begin in sorted(range(letters + 1), key=lambda begin: abs(2 * begin - letters)):
        short = [name if len(name) <= width else f"{name[:begin]}{DOTS}{name[len(name) - letters + begin :]}" for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return names


def safe_text(text: str, console: "Console", style: str = "") -> "Text":
    """Return text that this console can write, without interpreting markup: a device's text cannot colour the terminal."""
    from rich.text import Text  # noqa: PLC0415

    return Text(writable(text, console), style)


def writable(text: str, console: "Console") -> str:
    """Return text without characters that this console cannot write or would interpret."""
    plain = printable(text)
    if plain.isascii():
        return plain
    encoding = console.encoding
    # rich decides in the same way whether a console is ASCII only.
    return (plain if encoding.startswith("utf") else plain.replace("±", "+-")).encode(encoding, "replace").decode(encoding)


def print_text(console: "Console", text: str, style: str = "") -> None:
    """Print a line, which the terminal may fold."""
    console.print(safe_text(text, console, style), soft_wrap=True)


def entry_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """Return a table of long texts: a terminal shows the first cell on a line and the others folded below it, as columns would cut them."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class EntryTable(Table):
        """A table printed as a list; in Markdown it has its columns."""

        def __rich_console__(self, _console: "Console", options: "ConsoleOptions") -> "RenderResult":
            lines = [f"{title}:"] if title else []
            width = min(options.max_width, ENTRY_WIDTH)
            for name, *texts in zip(*(column.cells for column in self.columns), strict=True):
                lines += textwrap.wrap(str(name), width, subsequent_indent=" " * 4, break_on_hyphens=False)
                for heading, text in zip(headings[1:], texts, strict=True):
                    words = f"{heading}: {text}" if text else ""
                    lines += textwrap.wrap(words, width, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)
            yield Text("\n".join(lines))

    table = EntryTable(*headings, title=title or None)
    for row in rows:
        table.add_row(*row)
    return table


def print_lines(console: "Console", lines: Iterable[str]) -> None:
    """Print lines, each as by `print_text`, at once."""
    from rich.text import Text  # noqa: PLC0415

    console.print(Text("\n".join(writable(line, console) for line in lines)), soft_wrap=True)


def print_notes(console: "Console", notes: list[str]) -> None:
    """Print the notes that a table cites by number."""
    for number, text in enumerate(notes, start=1):
        print_text(console, f"[{number}] {text}", "dim")


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """Yield an event that SIGINT, SIGTERM and a dying thread set; the former signal handlers are restored.

    Raises:
        UnavailableError: at the end, if a thread died of an error.
    """
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with ended_by_dead_threads(stopped.set):
            yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
