"""Files of published figures: our own TOML, MLPerf's `summary_results.json`, and CSV or Markdown tables by the names of their columns."""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.errors import ConfigError, one_line, os_error_as
from edgemeter.agent.base.figures import printable
from edgemeter.agent.base.foreign_text import decode_json, decode_toml
from edgemeter.agent.contract.figures import THROUGHPUT
from edgemeter.collector.published.row import KINDS, UNITS, PublishedRow, kind_called, row_of, unit_factor

_FIELDS = frozenset(PublishedRow.__struct_fields__)
# A comma before three digits is a thousand only where nothing else can be meant: 1,234 is also how half the world writes 1.234.
_NUMBER = re.compile(r"(-?(?:\d+|\d{1,3}(?:,\d{3})+(?=\.)|\d{1,3}(?:,\d{3}){2,})(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([^\W\d_][\w/ ]*)?")


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
            self.leave_out(where, str(error))
            return
        if row.key in self._keys:
            self.leave_out(where, f"{row.figure} of {row.model} under these conditions appears before")
        else:
            self.rows.append(row)
            self._keys.add(row.key)

    def leave_out(self, where: str, why: str) -> None:
        """Name what is not understood."""
        self.left_out.append(printable(f"{where}: {why}")[:1000])


def read(path: Path, columns: Sequence[str], facts: Mapping[str, Any]) -> ReadRows:
    """Return the figures of a file by its ending; `facts` are fields of `PublishedRow` that hold where the file states none.

    `columns` say what the columns of a table hold, `HEADING=FIELD` or `HEADING=FIGURE:UNIT`.

    Raises:
        ConfigError: the file cannot be read, is damaged, or no table has the columns.
    """
    with os_error_as(ConfigError, f"cannot read {str(path)!r}"):
        content = path.read_bytes()
    try:
        if path.suffix.lower() == ".toml":
            return read_editions(content, facts)
        if path.suffix.lower() == ".json":
            return _read_mlperf(content, facts)
        return _read_table(content.decode("utf-8-sig"), [_mapping(text) for text in columns], facts)
    except (ValueError, msgspec.MsgspecError, csv.Error) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {one_line(error)}: give the file as it was published") from error


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


# What the official files call their units; the factor leads to ours.
_RATES = {"samples/s": THROUGHPUT, "queries/s": THROUGHPUT, "tokens/s": "generation_output_tokens_per_s"}
_LATENCIES = {"latency (ms)": 1.0, "latency (s)": 1000.0}
_PERCENTILES = {"SingleStream": "p90", "MultiStream": "p99"}
_FIELDS_OF_MLPERF = {"model": "Model", "device": "System", "precision": "weight_data_types", "address": "Details"}
_CONDITIONS_OF_MLPERF = ("ID", "Submitter", "Suite", "Category", "Availability", "Scenario", "a#", "Accelerator", "Software", "Notes")


def _read_mlperf(content: bytes, facts: Mapping[str, Any]) -> ReadRows:
    """Return the results of a round of MLPerf Inference, and their power at the wall; accuracies lack the number of items."""
    result = ReadRows()
    for number, entry in enumerate(decode_json(content, list[dict[str, Any]]), start=1):
        where = f"result {number}, {entry.get('ID')}"
        text = {name: " ".join(str(value).split()) for name, value in entry.items() if isinstance(value, str | int | float)}
        if float(text.get("errors", 0)):
            result.leave_out(where, "the round marks it as faulty")
            continue
        round_name = re.match(r"v?(\d+\.\d+)", text.get("version") or text.get("ID", ""))
        shared = {
            **facts,
            "source": f"MLPerf Inference v{round_name[1] if round_name else 'of no round'}",
            "version": f"v{round_name[1]}" if round_name else None,
            "stated_by": "vendor",
            **{name: text[column] for name, column in _FIELDS_OF_MLPERF.items() if column in text},
            "conditions": ", ".join(text[name] for name in _CONDITIONS_OF_MLPERF if name in text)[:500],
        }
        unit, value = text.get("Performance_Units", "").casefold(), float(text.get("Performance_Result", math.nan))
        percentile = _PERCENTILES.get(text.get("Scenario", ""))
        if unit in _RATES:
            rate_unit = "tokens/s" if unit == "tokens/s" else "/s"
            result.add(where, {**shared, "figure": _RATES[unit], "value": value, "unit": rate_unit})
        elif unit in _LATENCIES and percentile:
            # A query of MultiStream has eight samples.
            batch = 8 if percentile == "p99" else None
            latency_ms = value * _LATENCIES[unit]
            latency = {"figure": f"latency_{percentile}_ms", "statistic": percentile, "value": latency_ms, "unit": "ms"}
            result.add(where, {**shared, **latency, "batch": batch})
        else:
            result.leave_out(where, f"Performance_Units {unit!r} in the scenario {text.get('Scenario')!r} are not known")
        if text.get("Power_Units", "").casefold() == "watts":
            result.add(
                where, {**shared, "figure": "energy_mean_power_w", "value": float(text["Power_Result"]), "unit": "W", "scope": "wall-ac"}
            )
    if not result.rows:
        raise ValueError(f"no result of MLPerf: {'; '.join(result.left_out[:1])}")
    return result


@dataclass(frozen=True, slots=True)
class _MappedColumn:
    """A column of the user's table: a field of `PublishedRow`, or a figure whose cells are in `unit`."""

    heading: str
    target: str
    unit: str = ""


def _mapping(text: str) -> _MappedColumn:
    heading, _, target = text.rpartition("=")
    name, _, unit = target.strip().partition(":")
    if name not in _FIELDS:
        name = kind_called(name)
    if not heading.strip() or (unit and name in _FIELDS):
        raise ConfigError(f"column {text!r} is not HEADING=FIELD or HEADING=FIGURE:UNIT; fields: {', '.join(sorted(_FIELDS))}")
    if unit and unit_factor(name, unit) is None:
        raise ConfigError(f"column {text!r}: {unit!r} is not a unit of {name}: {', '.join(UNITS[KINDS[name].unit])}")
    return _MappedColumn(heading.strip().casefold(), name, unit)


def _read_table(text: str, columns: Sequence[_MappedColumn], facts: Mapping[str, Any]) -> ReadRows:
    """Return a row for each figure in the tables that have all columns; a heading that is a field's name needs no mapping."""
    result, is_read = ReadRows(), False
    headings = [column.heading for column in columns]
    for names, records in _tables(text, headings):
        unmapped = [_MappedColumn(name, name) for name in names if name in _FIELDS and name not in headings]
        mapped = [*columns, *unmapped]
        is_whole = set(headings) <= set(names) and len(set(names)) == len(names)
        if not is_whole or not any(column.target in KINDS or column.target == "value" for column in mapped):
            continue
        is_read = True
        for line, cells in records:
            if len(cells) == len(names):
                _read_record(f"line {line}", dict(zip(names, cells, strict=True)), mapped, facts, result)
            else:
                result.leave_out(f"line {line}", f"{len(cells)} cells under {len(names)} headings")
    if not is_read:
        raise ConfigError(
            f"no table has the columns {', '.join(headings) or 'figure, value and unit'}: "
            'name them with --column "Model=model" --column "Latency (ms)=latency:ms"'
        )
    return result


def _read_record(
    where: str, cells: Mapping[str, str], columns: Sequence[_MappedColumn], facts: Mapping[str, Any], result: ReadRows
) -> None:
    shared = {**facts, **{column.target: cells[column.heading] for column in columns if column.target in _FIELDS and cells[column.heading]}}
    if "value" in shared:
        result.add(where, shared)
    for column in columns:
        if column.target not in KINDS:
            continue
        try:
            value, unit = quantity(cells[column.heading])
        except ValueError as error:
            result.leave_out(f"{where}, {column.heading}", str(error))
            continue
        if unit and column.unit and unit_factor(column.target, unit) != unit_factor(column.target, column.unit):
            result.leave_out(f"{where}, {column.heading}", f"{cells[column.heading]!r} is not in {column.unit}")
        else:
            result.add(
                f"{where}, {column.heading}", {**shared, "figure": column.target, "value": value, "unit": unit or column.unit or None}
            )


def quantity(cell: str) -> tuple[float, str]:
    """Return the number in a cell and the unit behind it, if any; raises ValueError, which says why, if it holds anything else."""
    matched = _NUMBER.fullmatch(cell.strip())
    if matched is None:
        is_ambiguous = re.fullmatch(r"\d{1,3},\d{3}", cell.strip())
        raise ValueError(f"{cell!r} may be a thousand or a decimal" if is_ambiguous else f"{cell!r} is not a number")
    return float(matched[1].replace(",", "")), (matched[2] or "").strip()


def _tables(text: str, headings: Sequence[str]) -> Iterator[tuple[list[str], list[tuple[int, list[str]]]]]:
    """Yield the Markdown tables of a page, else the CSV table of a file: the headings in small letters, and rows with their lines."""
    lines = text.splitlines()
    delimiters = [
        number for number, line in enumerate(lines) if number and re.fullmatch(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*(?::?-+:?\s*)?", line)
    ]
    for number in delimiters:
        end = next((index for index in range(number + 1, len(lines)) if "|" not in lines[index]), len(lines))
        yield (
            [name.casefold() for name in _cells(lines[number - 1])],
            [(index + 1, _cells(lines[index])) for index in range(number + 1, end)],
        )
    if not delimiters and lines:
        counts = {mark: sum(heading in map(str.strip, lines[0].casefold().split(mark)) for heading in headings) for mark in ",;\t"}
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(counts, key=lambda mark: counts[mark]), strict=True)
        rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
        yield [name.casefold() for name in rows[0][1]], rows[1:]


def _cells(line: str) -> list[str]:
    """Return the cells of a line of Markdown, without links, emphasis and code."""
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
    plain = (re.sub(r"!?\[([^\[\]]*)\]\([^)\[]*\)", r"\1", cell.replace("\\|", "|")) for cell in cells)
    return [" ".join(re.sub(r"\*\*|`|<br\s*/?>", " ", cell).split()) for cell in plain]
