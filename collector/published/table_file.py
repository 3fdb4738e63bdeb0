"""Files of published figures: our own TOML (`[[row]]`) and CSV, and any other format that a reader recognises."""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line, os_error_as
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.collector.published import PublishedReader, ReadTable, create, reader_names
from edgemeter.collector.published.row import PublishedRow, fault, not_sourced, plain_blanks


def read(path: Path) -> list[PublishedRow]:
    """Return the rows of a TOML file (`[[row]]`) or CSV file; raises ConfigError if it cannot be read, or a row is wrong, and names it."""
    with os_error_as(ConfigError, f"cannot read {str(path)!r}"):
        content = path.read_bytes()
    return _checked(path, _text(path, content), {}, not_sourced)


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8 text (byte {error.start}): give the file as it was published") from error


def _checked(
    path: Path, text: str, defaults: Mapping[str, Any], also: Callable[[PublishedRow], str | None] = lambda _: None
) -> list[PublishedRow]:
    rows = _from_csv(path, text, defaults) if path.suffix.lower() == ".csv" else _from_toml(path, text, defaults)
    ids: set[str] = set()
    for position, row in rows:
        why = fault(row) or also(row) or (f"{row.model} on {row.device} of {row.key} appears twice" if row.id in ids else None)
        if why:
            raise ConfigError(f"{str(path)!r}, {position}: {why}")
        ids.add(row.id)
    return [row for _, row in rows]


def read_any(path: Path, reader: str | None, defaults: Mapping[str, Any]) -> ReadTable:
    """Return the figures of a file of any known format: of the named `reader`, else of the first that recognises it, else our own.

    `defaults` are fields of `PublishedRow` that hold for the whole file where it does not state them.

    Raises:
        ConfigError: the file cannot be read, is damaged, or no reader recognises it.
        UnavailableError: none does, and another package's reader cannot be imported.
    """
    with os_error_as(ConfigError, f"cannot read {str(path)!r}"):
        content = path.read_bytes()
    text = _text(path, content)
    names, broken = [reader] if reader else reader_names(), None
    for name in names:
        try:
            candidate = create(name)
        except UnavailableError as error:
            if reader:
                raise
            broken = error
            continue
        try:
            if reader or _recognises(candidate, path.name, text):
                return candidate.read(text, defaults)
        except ConfigError as error:
            raise ConfigError(f"{str(path)!r}, as {name}: {error}") from error
        except (ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"{str(path)!r}, as {name}: it is damaged ({one_line(error)}): give the file as it was published") from error
    if path.suffix.lower() in (".toml", ".csv"):
        return ReadTable(tuple(_checked(path, text, defaults)))
    if broken:
        raise broken
    raise ConfigError(
        f'no reader recognises {str(path)!r}: state the columns of a table (--column "Model=model" --column "FPS=throughput"), '
        f"or name a reader with --reader ({', '.join(names)})"
    )


def _recognises(reader: PublishedReader, name: str, text: str) -> bool:
    try:
        return reader.recognises(name, text)
    except (ValueError, OverflowError, RecursionError):
        # Against its protocol, which says that it raises nothing.
        return False


def to_toml(row: PublishedRow) -> str:
    """Return a row as a table of the TOML file."""
    fields = {name: value for name, value in msgspec.to_builtins(row).items() if value is not None}
    # A JSON string is a TOML string as long as it holds no control character, which `fault` refuses.
    return "[[row]]\n" + "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in fields.items())


def _row(fields: Mapping[str, Any], defaults: Mapping[str, Any], *, strict: bool) -> PublishedRow:
    named = {**defaults, **fields}
    return msgspec.convert(plain_blanks(named), PublishedRow, strict=strict)


class _PublishedFile(msgspec.Struct, forbid_unknown_fields=True):
    row: list[dict[str, Any]]


def _from_toml(path: Path, text: str, defaults: Mapping[str, Any]) -> list[tuple[str, PublishedRow]]:
    try:
        tables = decode_toml(text, _PublishedFile).row
        return [(f"row {number}", _row(fields, defaults, strict=True)) for number, fields in enumerate(tables, start=1)]
    except (ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{str(path)!r}: {one_line(error)}: each figure is a table [[row]]: source, version, date, address, model, device, figure, ..."
        ) from error


def _from_csv(path: Path, text: str, defaults: Mapping[str, Any]) -> list[tuple[str, PublishedRow]]:
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        table = [(reader.line_num, {name: value for name, value in row.items() if value not in (None, "")}) for row in reader]
        header = reader.fieldnames or []
    except csv.Error as error:
        raise ConfigError(f"{str(path)!r} is not a CSV file: {error}") from error
    if len(header) == 1 and (separator := next((mark for mark in (";", "\t") if mark in header[0]), None)):
        raise ConfigError(f"{str(path)!r} is separated by {separator!r}: separate its columns by commas, or map them with --column")
    if repeated := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise ConfigError(f"{str(path)!r} has two columns {repeated[0]!r}: name each column once")
    if not table:
        raise ConfigError(
            f"{str(path)!r} holds no figure: a header with source, version, date, address, model, device, figure, ... and a line each"
        )
    rows = []
    for line, row in table:
        try:
            if None in row:
                raise ConfigError(f"{str(path)!r}, line {line}: more cells than the header has names (a comma within a text needs quotes)")
            rows.append((f"line {line}", _row(row, defaults, strict=False)))
        except (ValueError, OverflowError, TypeError) as error:
            raise ConfigError(f"{str(path)!r}, line {line}: {error}") from error
    return rows
