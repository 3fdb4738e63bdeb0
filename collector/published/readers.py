"""Files of published figures: TOML as those that ship, and CSV tables whose headings are fields of a figure."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, one_line, os_error_as
from edgemeter.agent.base.figures import printable
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.collector.published.row import PublishedRow, row_of


@dataclass(slots=True)
class ReadRows:
    """The rows that were understood, and of the rest where it stands and why it is left out: nothing is guessed."""

    rows: list[PublishedRow] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _keys: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, where: str, facts: Mapping[str, Any]) -> None:
        """Take a figure; `where` names its place in the file (`line 7`)."""
        try:
            row = row_of(facts)
        except ConfigError as error:
            self.left_out.append(printable(f"{where}: {error}")[:1000])
            return
        if row.key in self._keys:
            self.left_out.append(printable(f"{where}: {row.figure} of {row.model} under these conditions appears before"))
        else:
            self.rows.append(row)
            self._keys.add(row.key)


def read(path: Path, facts: Mapping[str, Any]) -> ReadRows:
    """Return the figures of a file by its ending; `facts` are fields of `PublishedRow` that hold where the file states none.

    Raises:
        ConfigError: the file cannot be read, is damaged, or has a heading that is no field.
    """
    with os_error_as(ConfigError, f"cannot read {str(path)!r}"):
        content = path.read_bytes()
    try:
        return read_editions(content, facts) if path.suffix.lower() == ".toml" else _read_table(content.decode("utf-8-sig"), facts)
    except (ValueError, msgspec.MsgspecError, csv.Error) as error:
        remedy = "give TOML with a [[case]] for each measurement, or CSV with the fields of a figure as headings"
        raise ConfigError(f"cannot read {str(path)!r}: {one_line(error)}: {remedy}") from error


class _EditionFile(msgspec.Struct):
    case: list[dict[str, Any]]


def read_editions(content: bytes, facts: Mapping[str, Any]) -> ReadRows:
    """Return the figures of a TOML file: what holds for all above, a `[[case]]` for each measurement, in it `figures`."""
    document = decode_toml(content, dict[str, Any])
    result = ReadRows()
    for number, case in enumerate(msgspec.convert(document, _EditionFile).case, start=1):
        shared = {**facts, **document, **case}
        for figure in msgspec.convert(case.get("figures", []), list[dict[str, Any]]):
            fields = {**shared, **figure}
            result.add(f"case {number}", {name: value for name, value in fields.items() if name not in {"case", "figures"}})
    return result


def _read_table(text: str, facts: Mapping[str, Any]) -> ReadRows:
    """Return a row for each line of a CSV table."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    unknown = [heading for heading in reader.fieldnames or [""] if heading not in PublishedRow.__struct_fields__]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no field: {', '.join(PublishedRow.__struct_fields__)}")
    result = ReadRows()
    for cells in reader:
        # Cells beyond the headings are under None.
        result.add(f"line {reader.line_num}", {**facts, **{f"{name}": cell for name, cell in cells.items() if cell}})
    return result
