"""A console of lines and tables: on a terminal they have styles, and tables fit its width."""

import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple, TextIO

Justify = Literal["left", "right"]
BETWEEN_COLUMNS = 2
_USUAL_WIDTH = 80
# Source: ECMA-48, SGR.
_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
_STYLED = re.compile(r"\x1b\[[;?0-9]*[a-zA-Z]")  # Styles that a text brings along.
_WORD = re.compile(r"\s*\S+\s*")


class Text(NamedTuple):
    """A text with its styles, separated by spaces."""

    plain: str
    style: str = ""


def cell_width(text: str) -> int:
    """Return the number of columns of a terminal that a text takes.

    A wide letter takes two, a combining mark none.
    """
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - for few texts

    return sum(
        0 if combining(letter) else 1 + (east_asian_width(letter) in "WF") for letter in text
    )


def wrapped(text: str, width: int) -> list[str]:
    """Return text in lines of at most `width`; a word is cut only if it is longer."""
    return [line for paragraph in text.split("\n") for line in _wrapped(paragraph, max(1, width))]


def _wrapped(paragraph: str, width: int) -> Iterator[str]:
    line = ""
    for word in _WORD.findall(paragraph):
        if line and cell_width(line + word.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += word
        while cell_width(line.rstrip()) > width:
            fitting = max(
                1, next(end for end in range(width, -1, -1) if cell_width(line[:end]) <= width)
            )
            yield line[:fitting]
            line = line[fitting:]
    if line or not paragraph.strip():
        yield line.rstrip()


class Column:
    """A column of a table: its heading, then its cells. One that `is_whole` is narrowed last."""

    def __init__(self, heading: str, justify: Justify, *, is_whole: bool, min_width: int) -> None:
        self.heading, self.justify, self.is_whole, self.min_width = (
            heading,
            justify,
            is_whole,
            min_width,
        )
        self.cells: list[Text] = []

    def width(self) -> int:
        """Return the width of the longest line."""
        texts = [self.heading, *(cell.plain for cell in self.cells)]
        return max(
            self.min_width, *(cell_width(line) for text in texts for line in text.split("\n"))
        )


class Table:
    """A table of rows below headings, without frames, and with a caption.

    It is of any width, or of at most `max_width` if that is set.
    """

    def __init__(
        self, *headings: str, right: Collection[str] = (), caption: Text | None = None
    ) -> None:
        self.caption = caption
        self.max_width: int | None = None
        self.gap = BETWEEN_COLUMNS
        self.columns: list[Column] = []
        for heading in headings:
            # The first column names the row.
            self.add_column(
                heading, "right" if heading in right else "left", is_whole=not self.columns
            )

    def add_column(
        self,
        heading: str = "",
        justify: Justify = "left",
        *,
        is_whole: bool = False,
        min_width: int = 0,
    ) -> None:
        self.columns.append(Column(heading, justify, is_whole=is_whole, min_width=min_width))

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        for column, cell in zip(self.columns, cells, strict=True):
            column.cells.append(Text(cell, style) if isinstance(cell, str) else cell)

    def lines(self, width: int, rule: str) -> Iterator[list[Text]]:
        """Yield the lines, each in parts; a line of `rule`, if any, follows the headings."""
        widths = self._widths(min(width, self.max_width or width))
        whole_width = sum(widths) + self.gap * (len(widths) - 1)
        if any(column.heading for column in self.columns):
            yield from self._row([Text(column.heading, "bold") for column in self.columns], widths)
            if rule:
                yield [Text(rule * whole_width)]
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            yield from self._row(cells, widths)
        if self.caption:
            yield from (
                [Text(line, self.caption.style)]
                for line in wrapped(self.caption.plain, whole_width)
            )

    def _widths(self, width: int) -> list[int]:
        """Return the widths of the columns: until all fit, the widest is narrowed by one."""
        widths, room = (
            [column.width() for column in self.columns],
            width - self.gap * (len(self.columns) - 1),
        )
        folded = [
            (index, max(1, column.min_width))
            for index, column in enumerate(self.columns)
            if not column.is_whole
        ]
        for least_widths in (folded, [(index, 1) for index in range(len(widths))]):
            while sum(widths) > room and (
                wider := [index for index, least in least_widths if widths[index] > least]
            ):
                widths[max(wider, key=widths.__getitem__)] -= 1
        return widths

    def _row(self, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[list[Text]]:
        texts = [wrapped(cell.plain, width) for cell, width in zip(cells, widths, strict=True)]
        for number in range(max(map(len, texts))):
            parts = []
            for column, cell, lines, width in zip(self.columns, cells, texts, widths, strict=True):
                line = lines[number] if number < len(lines) else ""
                padding = " " * (width - cell_width(line))
                before, after = (padding, "") if column.justify == "right" else ("", padding)
                parts += [Text(before), Text(line, cell.style), Text(after + " " * self.gap)]
            yield parts


class Console:
    """A console that prints to standard output, or to a file.

    Tables fit its width; lines are printed as they are.
    """

    def __init__(
        self, file: TextIO | None = None, width: int | None = None, *, has_rules: bool = True
    ) -> None:
        self.file = file or sys.stdout
        self.is_terminal = self.file.isatty() or bool(os.environ.get("FORCE_COLOR"))
        self.width = width or _terminal_width()
        self._has_rules = has_rules
        self._has_styles = (
            self.is_terminal and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
        )

    @property
    def encoding(self) -> str:
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def print(self, printed: str | Text | Table, style: str = "") -> None:
        text = "".join(f"{line}\n" for line in self.lines(printed, style))
        self.file.write(text if self._has_styles else _STYLED.sub("", text))
        self.file.flush()

    def lines(self, printed: str | Text | Table, style: str = "") -> Iterator[str]:
        """Yield the lines of a table with their styles and without trailing spaces.

        A text is one line.
        """
        if isinstance(printed, Table):
            rule = (
                ""
                if not self._has_rules
                else "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
                if self.encoding.startswith("utf")
                else "-"
            )
            yield from map(self._line, printed.lines(self.width, rule))
        else:
            yield self._styled(printed if isinstance(printed, Text) else Text(printed, style))

    def _line(self, parts: Sequence[Text]) -> str:
        last = max(
            (number for number, part in enumerate(parts, 1) if part.plain.strip()), default=0
        )
        return "".join(map(self._styled, parts[:last])).rstrip(" ")

    def _styled(self, text: Text) -> str:
        if not (self._has_styles and text.style and text.plain.strip()):
            return text.plain
        return (
            f"\x1b[{';'.join(_STYLES[style] for style in text.style.split())}m{text.plain}\x1b[0m"
        )


def _terminal_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    for descriptor in range(3):
        try:
            return os.get_terminal_size(descriptor).columns or _USUAL_WIDTH
        except OSError:
            continue
    return _USUAL_WIDTH
