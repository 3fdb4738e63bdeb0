"""Published figures: rows of a TOML or CSV file, each with its source, version, date, unit, conditions and address.

A page changes and its figures with it (one guide's OpenVINO latency on a Raspberry Pi 5 went from 530 to 81 ms): so source, version and
date together are the key, and a changed figure is a row of another version. They are shown, never averaged, ranked or divided.
"""

import csv
import hashlib
import io
import math
import re
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError, os_error_as

PublishedMetric = Literal["latency", "throughput", "energy", "power", "accuracy", "size"]
PublishedText = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}\Z")]

# Units as people publish them, by metric; the factor leads to the first.
UNITS: dict[str, dict[str, float]] = {
    "latency": {"ms": 1.0, "s": 1e3, "us": 1e-3},
    "throughput": {"per s": 1.0, "per_s": 1.0, "fps": 1.0, "images/s": 1.0, "inferences/s": 1.0},
    "energy": {"mj": 1.0, "j": 1e3, "uj": 1e-3},
    "power": {"w": 1.0, "mw": 1e-3},
    "accuracy": {"ratio": 1.0, "%": 1e-2},
    "size": {"mb": 1.0, "kb": 1e-3, "bytes": 1e-6},
}
# An accuracy over fewer images means little: AP 0.61 over 4 images was published for a model that has 0.40.
FEWEST_IMAGES = 100


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One published figure; `date` is when it was retrieved, `version` the edition of the source (a release, a commit)."""

    source: PublishedText
    version: PublishedText
    date: Date
    address: PublishedText
    model: PublishedText
    device: PublishedText
    metric: PublishedMetric
    value: float
    unit: PublishedText
    conditions: PublishedText
    runtime: str | None = None
    precision: str | None = None
    batch: int | None = None
    input_size: str | None = None
    dataset: str | None = None
    images: int | None = None
    licence: str | None = None

    @property
    def key(self) -> str:
        """The key of the edition: source, version and date."""
        return f"{self.source} | {self.version} | {self.date}"

    @property
    def id(self) -> str:
        """A short name of the row: the subject of its figure and the edition, without the value."""
        parts = (self.key, self.model, self.device, self.metric, self.runtime, self.precision, self.batch, self.input_size, self.conditions)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]

    @property
    def canonical(self) -> tuple[float, str]:
        """The value in our unit, and the unit: ms, per s, mj, w, ratio, mb."""
        units = UNITS[self.metric]
        return self.value * units[self.unit.casefold()], next(iter(units))


class _PublishedFile(msgspec.Struct, forbid_unknown_fields=True):
    row: list[PublishedRow]


def read(path: Path) -> list[PublishedRow]:
    """Return the rows of a TOML file (`[[row]]`) or CSV file; raises ConfigError if it cannot be read, or a row is wrong, and names it."""
    with os_error_as(ConfigError, f"cannot read {str(path)!r}"):
        content = path.read_bytes()
    rows = _from_csv(path, content) if path.suffix.lower() == ".csv" else _from_toml(path, content)
    ids: set[str] = set()
    for position, row in rows:
        why = fault(row) or (f"{row.model} on {row.device} of {row.key} appears twice" if row.id in ids else None)
        if why:
            raise ConfigError(f"{str(path)!r}, {position}: {why}")
        ids.add(row.id)
    return [row for _, row in rows]


def fault(row: PublishedRow) -> str | None:
    """Return why a row cannot be right, None if it can."""
    units = UNITS[row.metric]
    if row.unit.casefold() not in units:
        return f"unit {row.unit!r} is not one of {row.metric}: {', '.join(units)}"
    if not is_day(row.date):
        return f"date {row.date!r} is not a calendar date"
    if not math.isfinite(row.value) or row.value <= 0:
        return f"value {row.value!r} is not a number above 0"
    if not re.match(r"https?://\S+\Z", row.address):
        return f"address {row.address!r} is not an http(s):// address: every figure needs a source that can be looked up"
    if not all(value.isprintable() for value in msgspec.structs.astuple(row) if isinstance(value, str)):
        return "a text contains a control character"
    return _accuracy_fault(row) if row.metric == "accuracy" else None


def _accuracy_fault(row: PublishedRow) -> str | None:
    if row.images is None or row.images < FEWEST_IMAGES:
        return f"an accuracy needs the number of images, at least {FEWEST_IMAGES}: this has {row.images}"
    if row.canonical[0] > 1:
        return f"an accuracy of {row.value:g} {row.unit} is above 1: give unit '%' where it is one in percent"
    return None


def is_day(text: str) -> bool:
    """Return whether `text` is a day of the calendar, as YYYY-MM-DD."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def to_toml(row: PublishedRow) -> str:
    """Return a row as a table of the TOML file."""
    fields = {name: value for name, value in msgspec.to_builtins(row).items() if value is not None}
    # A JSON string is a TOML string as long as it holds no control character, which `fault` refuses.
    return "[[row]]\n" + "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in fields.items())


def _from_toml(path: Path, content: bytes) -> list[tuple[str, PublishedRow]]:
    try:
        return [(f"row {number}", row) for number, row in enumerate(msgspec.toml.decode(content, type=_PublishedFile).row, start=1)]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{str(path)!r}: {error}: each figure is a table [[row]] with source, version, date, address, model, device, metric, ..."
        ) from error


def _from_csv(path: Path, content: bytes) -> list[tuple[str, PublishedRow]]:
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        table = [(reader.line_num, {name: value for name, value in row.items() if value not in (None, "")}) for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not a CSV file in UTF-8: {error}") from error
    if not table:
        raise ConfigError(
            f"{str(path)!r} holds no figure: a header with source, version, date, address, model, device, metric, ... and a line each"
        )
    rows = []
    for line, row in table:
        try:
            if None in row:
                raise ConfigError(f"{str(path)!r}, line {line}: more cells than the header has names (a comma within a text needs quotes)")
            rows.append((f"line {line}", msgspec.convert(row, PublishedRow, strict=False)))
        except (msgspec.ValidationError, TypeError) as error:
            raise ConfigError(f"{str(path)!r}, line {line}: {error}") from error
    return rows
