"""Output of commands for machines: indented JSON, and CSV (RFC 4180, header first)."""

import csv
import io
from collections.abc import Iterable, Sequence

import click
import msgspec

JOINT = " | "
Plain = str | int | float | bool | list[str] | None


def json_document(content: object) -> str:
    """Return `content` (structs, dataclasses, builtins) as JSON text."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def print_json(content: object) -> None:
    """Print `content` (structs, dataclasses, builtins) as JSON."""
    click.echo(json_document(content))


def csv_document(header: Sequence[str], rows: Iterable[Iterable[Plain]]) -> str:
    """Return rows as CSV: absent is empty, a boolean `true` or `false`, a list joined by ` | `."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Plain) -> Plain:
    if isinstance(value, bool):
        return str(value).lower()
    return JOINT.join(value) if isinstance(value, list) else value
