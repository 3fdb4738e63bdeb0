"""Text and tables on a terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.console import BETWEEN_COLUMNS, Console, Justify, Table, Text, cell_width
from edgemeter.agent.base.number_text import ABSENT, printable

TABLE_WIDTH = 100  # Wider tables of figures are hard to read.
MARKDOWN_WIDTH = 400  # Markdown tables have no width: do not wrap.
NARROWEST_NAME = 16
NARROWEST_TEXT = 8  # Names too, if nothing else can shrink.
DOTS = "..."
REDUNDANT = 9  # The rank of a column that is equal in all rows, or repeats another.
ENTRY_WIDTH = 100  # Longer lines of text are hard to read.
PIPED_WIDTH = 1000  # Output to a pipe has no width: rows are not wrapped.


def wide_console() -> Console:
    """Return the console of standard output.

    A file or another program gets plain tables, one line per row, of any width.
    """
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH, has_rules=False)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column with all its cells.

    Without any figure it is dropped unless `always`; a narrow terminal drops the highest rank
    first.

    Within one rank the last is dropped first, and rank `REDUNDANT` before anything is narrowed. A
    column that is `narrowed` folds its texts, or shortens its names.
    """

    heading: str
    cells: Sequence[str]
    justify: Justify = "right"
    rank: int = 0
    always: bool = False
    narrowed: Literal["", "folds", "shortens"] = ""

    @property
    def full_width(self) -> int:
        return max(map(cell_width, (self.heading, *self.cells)))

    @property
    def width(self) -> int:
        """The least width of the column before another one is dropped.

        Names must stay different.
        """
        if self.narrowed == "shortens":
            return next(
                (
                    width
                    for width in range(NARROWEST_NAME, self.full_width)
                    if max(map(len, shortened(self.cells, width))) <= width
                ),
                self.full_width,
            )
        return min(NARROWEST_TEXT, self.full_width) if self.narrowed else self.full_width


def table_width(console: Console) -> int:
    """Return the width of a table of figures.

    It is that of the console, at most `TABLE_WIDTH`. Markdown has all columns.
    """
    return console.width if console.width == MARKDOWN_WIDTH else min(console.width, TABLE_WIDTH)


def fitted_table(
    columns: Iterable[TableColumn],
    width: int,
    styles: Mapping[str, str] | None = None,
    remedy: str = "--format csv shows them",
) -> Table:
    """Return a table of the columns that have content and fit.

    A note names the dropped ones with the remedy. `styles` are those of cells, by their text.
    """
    showing = [
        column
        for column in columns
        if column.always or any(cell.strip() not in ("", ABSENT) for cell in column.cells)
    ]
    fitting = showing
    if sum(column.full_width + BETWEEN_COLUMNS for column in fitting) > width:
        fitting = [column for column in fitting if column.rank < REDUNDANT]
    while sum(column.width + BETWEEN_COLUMNS for column in fitting) > width and any(
        column.rank for column in fitting
    ):
        last = max(reversed(fitting), key=lambda column: column.rank)
        fitting = [column for column in fitting if column is not last]
    table = Table()
    table.max_width = width
    if missing := [
        column.heading.strip()
        for column in showing
        if column not in fitting and column.rank < REDUNDANT
    ]:
        table.caption = Text(f"left out: {', '.join(missing)} ({remedy})", "dim")
    widths = _widths(fitting, width)
    rows = []
    for column, least in zip(fitting, widths, strict=True):
        cells = shortened(column.cells, least) if column.narrowed == "shortens" else column.cells
        is_whole = column.narrowed != "folds" and max(map(len, cells)) <= least
        table.add_column(column.heading, column.justify, is_whole=is_whole, min_width=least)
        rows.append(cells)
    for row in zip(*rows, strict=True):
        table.add_row(*(Text(cell, (styles or {}).get(cell, "")) for cell in row))
    return table


def _widths(columns: Sequence[TableColumn], width: int) -> list[int]:
    """Return the widths of columns.

    The widest names are narrowed until all columns fit, or no name can be shorter.
    """
    room, least = width - BETWEEN_COLUMNS * len(columns), [column.width for column in columns]
    widths = [
        column.full_width if column.narrowed == "shortens" else column.width for column in columns
    ]
    shortest = least if sum(least) <= room else [min(NARROWEST_TEXT, each) for each in least]
    names = [index for index, column in enumerate(columns) if column.narrowed == "shortens"]
    while sum(widths) > room and (
        longer := [index for index in names if widths[index] > shortest[index]]
    ):
        widths[max(longer, key=widths.__getitem__)] -= 1
    return widths


def shortened(names: Sequence[str], width: int) -> Sequence[str]:
    """Return names with dots in the middle of the long ones.

    They are all in full if two would look the same.
    """
    letters = width - len(DOTS)
    for begin in sorted(range(letters + 1), key=lambda begin: abs(2 * begin - letters)):
        short = [
            name
            if len(name) <= width
            else f"{name[:begin]}{DOTS}{name[len(name) - letters + begin :]}"
            for name in names
        ]
        if len(set(short)) == len(set(names)):
            return short
    return names


def safe_text(text: str, console: Console, style: str = "") -> Text:
    """Return text that this console can write, without interpreting markup.

    So a device's text cannot colour the terminal.
    """
    return Text(writable(text, console), style)


def writable(text: str, console: Console) -> str:
    """Return text without characters that this console cannot write or would interpret."""
    plain = printable(text)
    if plain.isascii():
        return plain
    encoding = console.encoding
    return (
        (plain if encoding.startswith("utf") else plain.replace("±", "+-"))
        .encode(encoding, "replace")
        .decode(encoding)
    )


def print_text(console: Console, text: str, style: str = "") -> None:
    """Print a line, which the terminal may fold."""
    console.print(safe_text(text, console, style))


class EntryTable(Table):
    """A table of long texts, which columns would cut.

    A terminal shows the first cell on a line and the others folded below it.
    """

    def __init__(self, title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        super().__init__(*headings)
        self.title = title
        for row in rows:
            self.add_row(*row)

    def lines(self, width: int, _rule: str) -> Iterator[list[Text]]:
        """Yield the title and the entries."""
        if self.title:
            yield [Text(f"{self.title}:")]
        for name, *cells in zip(*(column.cells for column in self.columns), strict=True):
            yield from self._entry(name.plain, 0, min(width, ENTRY_WIDTH))
            for column, cell in zip(self.columns[1:], cells, strict=True):
                if cell.plain:
                    yield from self._entry(
                        f"{column.heading}: {cell.plain}", 4, min(width, ENTRY_WIDTH)
                    )

    @staticmethod
    def _entry(text: str, indent: int, width: int) -> Iterator[list[Text]]:
        for line in textwrap.wrap(
            text,
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + 4),
            break_on_hyphens=False,
        ):
            yield [Text(line)]


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines, each as by `print_text`, at once."""
    console.print("\n".join(writable(line, console) for line in lines))


def print_notes(console: Console, notes: list[str]) -> None:
    """Print the notes that a table cites by number."""
    for number, text in enumerate(notes, start=1):
        print_text(console, f"[{number}] {text}", "dim")
