"""Tables in Markdown and reStructuredText, with the headings above them, and the numbers in their cells: strict, nothing is guessed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from edgemeter.collector.published import RowCollector
from edgemeter.collector.published.numbers import number

_DELIMITER = re.compile(r":?-+:?")
_TAB = re.compile(r'(\s*)=== "(.+)"\s*')
_UNDERLINE = re.compile(r"([=\-^~\"'`#*+.:_])\1{2,}\s*")
_LIST_ROW = re.compile(r"(\s*)\* -(?: (.*)|\s*)")


@dataclass(frozen=True, slots=True)
class MarkupTable:
    """A table: its header's line, the names of its columns, rows with their lines, the sections it is in (outermost first), its tab."""

    line: int
    names: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    sections: tuple[str, ...] = ()
    tab: str | None = None

    def has(self, *names: str) -> bool:
        """Return whether the table has these columns, in any case."""
        return {name.casefold() for name in names} <= {name.casefold() for name in self.names}

    def records(self, collector: RowCollector) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield each row as cells by the name of their column, in lower case, with its line; rows with more or fewer cells are left out."""
        names = [name.casefold() for name in self.names]
        if len(set(names)) < len(names):
            collector.leave_out(f"table at line {self.line}", "two columns have one name")
            return
        for line, cells in self.rows:
            if len(cells) == len(names):
                yield line, dict(zip(names, cells, strict=True))
            else:
                collector.leave_out(f"line {line}", f"{len(cells)} cells under {len(names)} column names")


def number_or_none(cell: str | None) -> float | None:
    """Return the number in a cell, None if it holds another thing or nothing: a fact that is not stated."""
    try:
        return None if cell is None else number(cell)
    except ValueError:
        return None


def add_cell(collector: RowCollector, where: str, cell: str, **facts: Any) -> None:
    """Take the figure in a cell; one that is not a number is left out and named."""
    try:
        collector.add(where, value=number(cell), **facts)
    except ValueError as error:
        collector.leave_out(where, str(error))


@dataclass(slots=True)
class _Sections:
    titles: dict[int, str] = field(default_factory=dict)

    def enter(self, level: int, title: str) -> None:
        self.titles = {depth: above for depth, above in self.titles.items() if depth < level} | {level: title}

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(self.titles.values())


def markdown_tables(text: str, *, is_output: bool = False) -> list[MarkupTable]:
    """Return the tables of a Markdown page, those in the tabs of MkDocs (`=== "name"`) included, those in blocks of code if `is_output`."""
    lines = text.splitlines()
    sections = _Sections()
    tables: list[MarkupTable] = []
    tab: tuple[int, str] | None = None
    is_code = False
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        if (is_code and not is_output) or not line.strip():
            continue
        if tab and len(line) - len(line.lstrip()) <= tab[0]:
            tab = None
        if matched := _TAB.fullmatch(line):
            tab = len(matched[1]), matched[2]
        elif matched := re.match(r"(#{1,6})\s+(?=\S)", line):
            sections.enter(len(matched[1]), _plain(line[matched.end() :].rstrip().rstrip("#")))
        elif "|" in line and position < len(lines) and _is_delimiter(lines[position].strip()):
            end = position + 1
            while end < len(lines) and "|" in lines[end]:
                end += 1
            rows = tuple((index + 1, _cells(lines[index])) for index in range(position + 1, end))
            tables.append(MarkupTable(position, _cells(line), rows, sections.path, tab[1] if tab else None))
            position = end
    return tables


def _is_delimiter(line: str) -> bool:
    return "|" in line and all(_DELIMITER.fullmatch(cell.strip()) for cell in line.removeprefix("|").removesuffix("|").split("|"))


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|")
    inner = inner if inner.endswith("\\|") else inner.removesuffix("|")
    return tuple(_plain(cell.replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", inner))


def _plain(text: str) -> str:
    """Return the text of a cell without links, emphasis and HTML's breaks."""
    # Neither part holds another bracket, so that no text takes the square of its length.
    text = re.sub(r"!?\[([^\[\]]*)\]\([^)\[]*\)", r"\1", text)
    text = re.sub(r"<br\s*/?>|&nbsp;", " ", text, flags=re.IGNORECASE)
    text = re.sub(r"\*\*(.+?)\*\*|`(.+?)`", lambda matched: matched[1] or matched[2], text)
    return " ".join(text.split())


def list_tables(text: str) -> list[MarkupTable]:
    """Return the list-tables of a reStructuredText page that have a header row."""
    lines = text.splitlines()
    sections = _Sections()
    underlines: list[str] = []
    tables: list[MarkupTable] = []
    for position, line in enumerate(lines):
        if _UNDERLINE.fullmatch(line) and position and lines[position - 1].strip() and not lines[position - 1][0].isspace():
            if line[0] not in underlines:
                underlines.append(line[0])
            sections.enter(underlines.index(line[0]), lines[position - 1].strip())
        elif line.strip().startswith(".. list-table::"):
            rows = _list_rows(lines, position)
            if rows:
                tables.append(MarkupTable(rows[0][0], rows[0][1], tuple(rows[1:]), sections.path))
    return tables


def _list_rows(lines: list[str], start: int) -> list[tuple[int, tuple[str, ...]]]:
    indent = len(lines[start]) - len(lines[start].lstrip())
    has_header = False
    rows: list[tuple[int, list[str]]] = []
    cell_indent = None
    for position in range(start + 1, len(lines)):
        line = lines[position]
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth <= indent:
            break
        if matched := _LIST_ROW.fullmatch(line):
            if cell_indent in (None, depth + 2):
                cell_indent = depth + 2
                rows.append((position + 1, [matched[2] or ""]))
        elif depth == cell_indent and re.match(r"- |-$", line.lstrip()):
            rows[-1][1].append(line.lstrip()[2:])
        elif rows and line.strip():
            rows[-1][1][-1] += " " + line.strip()
        else:
            has_header = has_header or line.strip() == ":header-rows: 1"
    return [(line, tuple(map(_plain, cells))) for line, cells in rows] if has_header else []
