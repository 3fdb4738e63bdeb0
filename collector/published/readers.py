"""Readers of published figures.

They read the shipped ones, a user's files of TOML or CSV, and a claim on one line.
"""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent.base.config import home
from edgemeter.agent.base.errors import ConfigError, one_line, os_error_as
from edgemeter.agent.base.foreign_text import decode_toml
from edgemeter.agent.base.number_text import printable
from edgemeter.agent.contract.figures import ENERGY, LATENCY, MEMORY, THROUGHPUT, TOKEN_ENERGY, TPOT
from edgemeter.collector.published.row import (
    KINDS,
    NOT_STATED,
    UNITS,
    PublishedRow,
    kind_called,
    row_of,
)

SHIPPED = Path(__file__).with_name("shipped")
EXAMPLE = "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 18-22 tokens/s"
_CLAIM = re.compile(
    r"(?P<model>\S.*?) on (?P<device>\S.*?): (?:(?P<low>[\d.,]+) ?(?:-|\u2013|to) "
    r"?)?(?P<value>[\d.,]+.*)"
)
# A comma before three digits separates thousands only if nothing else is possible: half the world
# writes 1.234 as 1,234.
_NUMBER = re.compile(
    r"(-?(?:\d+|\d{1,3}(?:,\d{3})+(?=\.)|\d{1,3}(?:,\d{3}){2,})(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"\s*([^\W\d_][\w/ ]*)?"
)
# The figure that a unit stands for, by its spelling, else by our unit; `--fact figure=...`
# overrides it.
_USUAL = {
    "mj/token": TOKEN_ENERGY, "j/token": TOKEN_ENERGY, "ms/token": TPOT, "ms": LATENCY,
    "/s": THROUGHPUT, "t/s": "generation_decode_tokens_per_s", "mJ": ENERGY,
    "W": "energy_mean_power_w", "MB": MEMORY,
}  # fmt: skip


@dataclass(slots=True)
class ReadRows:
    """The rows that were understood.

    For the others it has their position and the reason: nothing is guessed.
    """

    rows: list[PublishedRow] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _keys: set[tuple[object, ...]] = field(default_factory=set)

    def add(self, where: str, facts: Mapping[str, Any]) -> None:
        """Add a figure; `where` names its position in the file (`line 7`)."""
        try:
            row = row_of(facts)
        except ConfigError as error:
            self.left_out.append(printable(f"{where}: {error}")[:1000])
            return
        if row.key in self._keys:
            self.left_out.append(
                printable(
                    f"{where}: {row.figure} of {row.model} under these conditions appears before"
                )
            )
        else:
            self.rows.append(row)
            self._keys.add(row.key)


def read(path: Path, facts: Mapping[str, Any]) -> ReadRows:
    """Return the figures of a file by its suffix.

    `facts` are fields of `PublishedRow` that hold if the file states none.

    Raises:
        ConfigError: the file cannot be read, is damaged, or has an unknown heading.
    """
    with os_error_as(ConfigError, f"cannot read {str(path)!r}"):
        content = path.read_bytes()
    try:
        return (
            read_editions(content, facts)
            if path.suffix.lower() == ".toml"
            else _read_table(content.decode("utf-8-sig"), facts)
        )
    except (ValueError, msgspec.MsgspecError, csv.Error) as error:
        remedy = (
            "give TOML with a [[case]] for each measurement, or CSV with the fields of "
            "a figure as headings"
        )
        raise ConfigError(f"cannot read {str(path)!r}: {one_line(error)}: {remedy}") from error


class _EditionFile(msgspec.Struct):
    case: list[dict[str, Any]]


def read_editions(content: bytes, facts: Mapping[str, Any]) -> ReadRows:
    """Return the figures of a TOML file.

    Common facts are at the top, then a `[[case]]` for each measurement, with its `figures`.
    """
    document = decode_toml(content, dict[str, Any])
    result = ReadRows()
    for number, case in enumerate(msgspec.convert(document, _EditionFile).case, start=1):
        for figure in msgspec.convert(case.get("figures", []), list[dict[str, Any]]):
            result.add(
                f"case {number}",
                {
                    name: value
                    for name, value in {**facts, **document, **case, **figure}.items()
                    if name not in {"case", "figures"}
                },
            )
    return result


def _read_table(text: str, facts: Mapping[str, Any]) -> ReadRows:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    unknown = [
        heading
        for heading in reader.fieldnames or [""]
        if heading not in PublishedRow.__struct_fields__
    ]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is not a field: {', '.join(PublishedRow.__struct_fields__)}"
        )
    result = ReadRows()
    for cells in reader:
        # Cells beyond the headings are under None.
        result.add(
            f"line {reader.line_num}",
            {**facts, **{f"{name}": cell for name, cell in cells.items() if cell}},
        )
    return result


@cache
def shipped_rows() -> tuple[PublishedRow, ...]:
    """Return the shipped figures, source by source in the order of the files' names."""
    return tuple(
        row
        for path in sorted(SHIPPED.glob("*.toml"))
        for row in read_editions(path.read_bytes(), {}).rows
    )


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """The folder `path` of a user's TOML files; if it is absent, only the shipped rows."""

    path: Path

    def version(self) -> str:
        """Return a text that changes with the files; raises ConfigError if one cannot be read."""
        with os_error_as(ConfigError, f"cannot read {str(self.path)!r}"):
            return " ".join(
                f"{path.name} {path.stat().st_mtime_ns}"
                for path in sorted(self.path.glob("*.toml"))
            )

    def rows(self) -> list[PublishedRow]:
        """Return the rows, shipped ones first.

        It raises ConfigError if a file cannot be read, or a figure in it.
        """
        rows = [*shipped_rows()]
        for path in sorted(self.path.glob("*.toml")):
            content = read(path, {})
            if content.left_out:
                raise ConfigError(f"{str(path)!r}, {content.left_out[0]}: correct it")
            rows += content.rows
        return rows


def default_folder() -> PublishedFolder:
    return PublishedFolder(home() / "references")


def parse_claim(text: str, facts: Mapping[str, Any]) -> PublishedRow:
    """Return the figure of a claim; `facts` are fields of `PublishedRow` that it does not state.

    Of a range the end counts that is easier to reach. Raises ConfigError if it is not understood.
    """
    words = " ".join(text.split())
    claim = _CLAIM.fullmatch(words)
    try:
        value, unit = quantity(claim["value"]) if claim else (0.0, "")
        low = quantity(claim["low"])[0] if claim and claim["low"] else None
    except ValueError as error:
        raise ConfigError(
            f"cannot read the claim {text!r} ({error}). Write for example {EXAMPLE!r}"
        ) from error
    our_unit = next((name for name, units in UNITS.items() if unit.casefold() in units), None)
    if claim is None or our_unit is None:
        why = (
            f"{unit!r} is not a unit of a figure"
            if claim
            else "it is not of the form MODEL on DEVICE: NUMBER UNIT"
        )
        raise ConfigError(f"cannot read the claim {text!r}: {why}, such as {EXAMPLE!r}")
    figure = kind_called(
        str(facts.get("figure") or _USUAL.get(unit.casefold()) or _USUAL[our_unit])
    )
    as_claimed = {
        "model": claim["model"],
        "device": claim["device"],
        "figure": figure,
        "unit": unit,
        "conditions": words[:500],
    }
    ends = {} if low is None else {"low": low, "high": value}
    return row_of(
        {
            "source": "claim",
            "version": NOT_STATED,
            "address": NOT_STATED,
            **facts,
            **as_claimed,
            **ends,
            "value": value if low is None or KINDS[figure].better == "lower" else low,
        }
    )


def quantity(text: str) -> tuple[float, str]:
    """Return a number and the unit after it, if any.

    It raises ValueError with the reason for anything else.
    """
    matched = _NUMBER.fullmatch(text.strip())
    if matched is None:
        raise ValueError(
            f"{text!r} may be a thousand or a decimal"
            if re.fullmatch(r"\d{1,3},\d{3}", text.strip())
            else f"{text!r} is not a number"
        )
    return float(matched[1].replace(",", "")), (matched[2] or "").strip()
