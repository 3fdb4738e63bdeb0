"""The output of `--format`: the document as JSON, its rows as CSV, its tables as Markdown.

JSON and CSV have every figure with all its digits, under names that end in their unit. Markdown has
what a terminal shows: a console writes the tables and lines of a command in Markdown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import click

from edgemeter.agent.base.console import Console, Table, Text
from edgemeter.agent.base.terminal import (
    MARKDOWN_WIDTH,
    EntryTable,
    TableColumn,
    fitted_table,
    wide_console,
    writable,
)

Format = Literal["table", "json", "csv", "markdown"]
_MARKDOWN = {"<": "&lt;", "&": "&amp;", "]": "]\\"}


def print_data(form: Format, document: Any, rows: str | None = None) -> bool:
    """Print a document as JSON, or its rows as CSV, and return True.

    Returns False for a format for people.

    Args:
        form: the format.
        document: structs, dataclasses, builtins, or JSON as text.
        rows: the key of the rows; empty: the document is one row. Default: the first list of
            objects in the document.
    """
    if form == "json":
        click.echo(
            document if isinstance(document, str | bytes) else _documents().json_document(document)
        )
    elif form == "csv":
        import msgspec

        plain = msgspec.json.decode(
            document if isinstance(document, str | bytes) else msgspec.json.encode(document)
        )
        flat = [dict(_flat(row)) for row in _rows(plain, rows)]
        # A column for each name in any row, in order of first appearance.
        header = list(dict.fromkeys(name for row in flat for name in row))
        click.echo(
            _documents().csv_document(header, ([row.get(name) for name in header] for row in flat)),
            nl=False,
        )
    return form in ("json", "csv")


def print_table(
    form: Format, name: str, rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]
) -> None:
    """Print the document `{name: rows}` in full, or for people a table of the columns.

    The table has a heading, and is printed if there is any row.
    """
    if print_data(form, {name: rows}) or not rows:
        return
    console = console_for(form)
    columns = [
        TableColumn(
            heading,
            [writable("" if row[key] is None else str(row[key]), console) for row in rows],
            "left",
        )
        for key, heading in headings.items()
    ]
    console.print(fitted_table(columns, console.width))


def console_for(form: Format) -> Console:
    """Return the console of a command's tables and lines.

    Lines to a file or another program are not cut at 80 columns.
    """
    return MarkdownConsole(width=MARKDOWN_WIDTH) if form == "markdown" else wide_console()


def markdown(
    title: str | None,
    headings: Sequence[str],
    is_right: Sequence[bool],
    rows: Sequence[Sequence[str]],
) -> str:

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(markdown_text(cell).replace("|", r"\|") for cell in cells) + " |"

    rule = "|" + "|".join("---:" if right else "---" for right in is_right) + "|"
    return "\n".join(
        [
            *([f"**{markdown_text(title)}**", ""] if title else []),
            line(headings),
            rule,
            *map(line, rows),
            "",
        ]
    )


def markdown_text(text: str) -> str:
    """Return text that a Markdown page shows unchanged: without HTML tags and links."""
    return re.sub(
        r"<|&(?=#?\w+;)|\](?=\()", lambda matched: _MARKDOWN[matched[0]], " ".join(text.split())
    )


class MarkdownConsole(Console):
    """Writes tables and paragraphs in Markdown."""

    def lines(self, printed: str | Text | Table, _style: str = "") -> Iterator[str]:
        if isinstance(printed, Table) and printed.columns:
            columns = printed.columns
            title = printed.title if isinstance(printed, EntryTable) else None
            rows = zip(*([cell.plain for cell in column.cells] for column in columns), strict=True)
            yield markdown(
                title,
                [column.heading for column in columns],
                [column.justify == "right" for column in columns],
                list(rows),
            )
        caption = printed.caption if isinstance(printed, Table) else printed
        for line in str(caption.plain if isinstance(caption, Text) else caption or "").splitlines():
            if line.strip():
                yield f"{markdown_text(line)}\n"


def _rows(document: Any, key: str | None) -> list[Mapping[str, Any]]:
    if isinstance(document, list):
        return document
    lists = [
        value
        for value in document.values()
        if isinstance(value, list) and all(isinstance(item, dict) for item in value)
    ]
    rows: list[Mapping[str, Any]] = (
        document[key] if key else lists[0] if lists and key is None else [document]
    )
    return rows


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}_")
        elif isinstance(value, list):
            # JSON contains lists of objects.
            if not any(isinstance(item, dict | list) for item in value):
                yield f"{before}{name}", [str(item) for item in value]
        else:
            yield f"{before}{name}", value


def _documents() -> Any:
    from edgemeter.agent.base import documents

    return documents
