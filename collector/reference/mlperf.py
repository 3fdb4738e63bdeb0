"""MLPerf Inference's official results: `summary_results.json` of a round as rows of ours, and the footnote that MLCommons requires."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.figures import printable
from edgemeter.agent.base.foreign_text import DECODER
from edgemeter.collector.published.row import LARGEST, SMALLEST, PublishedRow

_SPACE = " \t\n\r"
_MOST_COUNTED = 1e15


def json_objects(text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a JSON list with the line on which each begins; raises ConfigError, with a line, if it is damaged or none."""
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        raise _refusal(text, position, "a JSON list begins with [")
    position = _skip(text, position + 1)
    has_more = text[position : position + 1] != "]"
    while has_more:
        start = position
        try:
            value, position = DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise _refusal(text, error.pos, f"{error.msg}: the file is truncated or not JSON") from error
        except RecursionError as error:
            raise _refusal(text, start, "nested too deeply") from error
        except ValueError as error:
            raise _refusal(text, start, str(error)) from error
        if not isinstance(value, dict):
            raise _refusal(text, start, f"expected an object, not {type(value).__name__}")
        yield _line(text, start), value
        position = _skip(text, position)
        after = text[position : position + 1]
        if after not in (",", "]"):
            raise _refusal(text, position, "the file is truncated: expected , or ]")
        has_more = after == ","
        position = _skip(text, position + 1) if has_more else position
    position = _skip(text, position + 1)
    if position < len(text):
        raise _refusal(text, position, "text after the end of the list: give the file as published")


def _json_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8 text (byte {error.start}): give the JSON file as it was published") from error


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _refusal(text: str, position: int, why: str) -> ConfigError:
    return ConfigError(f"line {_line(text, position)}: {why}")


MlperfMeasure = Literal["samples_per_s", "queries_per_s", "tokens_per_s", "latency_ms"]

# What the official files call their units; the factor leads to ours.
UNITS: dict[str, tuple[MlperfMeasure, float]] = {
    "samples/s": ("samples_per_s", 1.0),
    "queries/s": ("queries_per_s", 1.0),
    "tokens/s": ("tokens_per_s", 1.0),
    "latency (ms)": ("latency_ms", 1.0),
    "latency (s)": ("latency_ms", 1000.0),
}

SUITES = ("datacenter", "edge")
# What is taken as it stands, by our name.
TEXTS = {
    **{name.lower(): name for name in ("Availability", "System", "Processor", "Accelerator", "Software", "Notes", "Details")},
    **{name: name for name in ("weight_data_types", "compliance")},
}
# Watts over the whole run (Offline, Server), millijoules for each stream (SingleStream, MultiStream).
POWER_UNITS = ("watts", "millijoules")
_PER = {"samples_per_s": "sample", "queries_per_s": "query", "tokens_per_s": "token", "latency_ms": "query"}
_ROUND = re.compile(r"v?(\d+\.\d+)")
_METRIC = re.compile(r"([A-Za-z][\w.@-]*)\s*:\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


class MlperfRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One official result: one system, one model, one scenario.

    `value` is in `measure`'s unit. `energy_mj` per `energy_per` is what the round states of a stream, else derived by us from the
    measured power at the wall, None without one; a derived one is not an MLPerf metric. `line` is the line of the row in its file.
    """

    id: str
    round: str
    suite: str
    division: str
    availability: str
    submitter: str
    system: str
    model: str
    used_model: str | None
    scenario: str
    accuracy: dict[str, float]
    measure: MlperfMeasure
    value: float
    unit_as_published: str
    power_value: float | None
    power_unit: str | None
    energy_mj: float | None
    energy_per: str | None
    nodes: int | None
    processor: str
    accelerator: str
    accelerators: int | None
    software: str
    weight_data_types: str
    compliance: str
    is_inferred: bool
    notes: str
    details: str
    line: int

    @property
    def key(self) -> str:
        """The key of the row among all rounds: an entry has many models and scenarios."""
        return f"{self.id}/{self.suite}/{self.model}/{self.scenario}"

    @property
    def full_key(self) -> str:
        """The key of the row in a file, which has several rounds and divisions; in the open one many models share a benchmark."""
        return f"{self.round}/{self.division}/{self.key}/{self.used_model or ''}/{self.details}"

    def is_same(self, other: "MlperfRow") -> bool:
        """Return whether both say the same, wherever they stand."""
        return msgspec.structs.replace(self, line=other.line) == other


class ParsedRound(msgspec.Struct, frozen=True):
    """The content of a file: its rows, how many were dropped for errors, and what was refused or repeated, each with its line."""

    rows: tuple[MlperfRow, ...]
    dropped: int
    refused: tuple[str, ...]
    repeated: tuple[str, ...] = ()


def read(path: Path, *, skip_refused: bool = False) -> ParsedRound:
    """Return the results in a `summary_results.json`; raises ConfigError if it, or a row (unless `skip_refused`), is not understood."""
    text = _json_text(path)
    try:
        return parse(text, skip_refused=skip_refused)
    except ConfigError as error:
        raise ConfigError(f"{str(path)!r}, {error}") from error


def parse(text: str, *, skip_refused: bool = False) -> ParsedRound:
    """Return the results in the text of a file, as `read` does."""
    rows: dict[str, MlperfRow] = {}
    refused: list[str] = []
    repeated: list[str] = []
    dropped = 0
    for line, fields in json_objects(text):
        try:
            if _number(fields, "errors", 0.0) != 0:
                dropped += 1
                continue
            row = _row(fields, line)
            before = rows.setdefault(row.full_key, row)
            if before is not row:
                repeated.append(printable(_repeat(before, row)))
        except ConfigError as error:
            if not skip_refused:
                raise ConfigError(f"line {line}: {error}; nothing is imported (--skip-refused imports the rest)") from error
            refused.append(printable(f"line {line}: {error}"))
    if not rows:
        why = f": {refused[0]}" if refused else ""
        raise ConfigError(f"no result can be imported{why}")
    return ParsedRound(tuple(rows.values()), dropped, tuple(refused), tuple(repeated))


def _repeat(before: MlperfRow, row: MlperfRow) -> str:
    if not before.is_same(row):
        raise ConfigError(
            f"{row.key} is in line {before.line} too, with another result: a published file has each once, line {before.line} counts"
        )
    return f"line {row.line}: {row.key} repeats line {before.line}"


def _row(fields: Mapping[str, object], line: int) -> MlperfRow:
    given_id = _text(fields, "ID", is_required=True)
    unit = _text(fields, "Performance_Units", is_required=True)
    if unit.casefold() not in UNITS:
        raise ConfigError(f"Performance_Units {unit!r} are not known (known: {', '.join(UNITS)})")
    measure, factor = UNITS[unit.casefold()]
    value = _positive(fields, "Performance_Result") * factor
    power, power_unit = _power(fields)
    energy = _energy_mj(measure, value, power, power_unit)
    return MlperfRow(
        id=given_id.removeprefix("v"),
        round=_round(fields, given_id),
        suite=_suite(fields),
        division=_text(fields, "Category", is_required=True),
        **{name: _text(fields, column) for name, column in TEXTS.items()},
        submitter=_text(fields, "Submitter", is_required=True),
        model=_text(fields, "Model", is_required=True),
        used_model=_text(fields, "UsedModel") or None,
        scenario=_text(fields, "Scenario", is_required=True),
        accuracy={name: float(number) for name, number in _METRIC.findall(_text(fields, "Accuracy")) if math.isfinite(float(number))},
        measure=measure,
        value=value,
        unit_as_published=unit,
        power_value=power,
        power_unit=power_unit,
        energy_mj=energy,
        energy_per=None if energy is None else "stream" if power_unit == "millijoules" else _PER[measure],
        nodes=_count(fields, "Nodes"),
        accelerators=_count(fields, "a#"),
        is_inferred=_number(fields, "inferred", 0.0) != 0,
        line=line,
    )


def _suite(fields: Mapping[str, object]) -> str:
    suite = _text(fields, "Suite", is_required=True)
    if suite.casefold() not in SUITES:
        raise ConfigError(f"Suite {suite!r} is not known (known: {', '.join(SUITES)}): update edgemeter, or import the round of Inference")
    return suite.casefold()


def _power(fields: Mapping[str, object]) -> tuple[float | None, str | None]:
    if fields.get("Power_Result") in (None, ""):
        return None, None
    unit = _text(fields, "Power_Units", is_required=True).strip().casefold()
    if unit not in POWER_UNITS:
        raise ConfigError(f"Power_Units {fields['Power_Units']!r} are not known (known: Watts, millijoules)")
    return _positive(fields, "Power_Result"), unit


def _energy_mj(measure: MlperfMeasure, value: float, power: float | None, power_unit: str | None) -> float | None:
    if power is None:
        return None
    if power_unit == "millijoules":
        return power
    # Power over a run does not give the energy of a query of which only the latency is known.
    return None if measure == "latency_ms" else power / value * 1000


def _round(fields: Mapping[str, object], given_id: str) -> str:
    matched = _ROUND.match(_text(fields, "version")) or _ROUND.match(given_id)
    if matched is None:
        raise ConfigError(f"neither version {fields.get('version')!r} nor ID {given_id!r} names a round (v6.0)")
    return f"v{matched[1]}"


def _text(fields: Mapping[str, object], name: str, *, is_required: bool = False) -> str:
    value = fields.get(name)
    text = "" if value is None else str(value).strip()
    if is_required and not text:
        raise ConfigError(f"{name!r} is missing: this is not a row of an MLPerf summary_results.json")
    return text


def _number(fields: Mapping[str, object], name: str, default: float) -> float:
    value = fields.get(name)
    if value in (None, ""):
        return default
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name} {value!r} is not a number") from error


def _positive(fields: Mapping[str, object], name: str) -> float:
    value = _number(fields, name, math.nan)
    # To Python `true` is the number 1.
    if not SMALLEST <= value <= LARGEST or isinstance(fields.get(name), bool):
        raise ConfigError(f"{name} {fields.get(name)!r} is not a number above 0, or too large")
    return value


def _count(fields: Mapping[str, object], name: str) -> int | None:
    """Return a count, None where a round leaves it empty; some write 8, some 8.0."""
    value = _number(fields, name, math.nan)
    if abs(value) > _MOST_COUNTED:
        raise ConfigError(f"{name} {value:g} is not a count")
    return int(value) if math.isfinite(value) else None


LEGEND = (
    "The MLPerf\N{TRADE MARK SIGN} name and logo are trademarks of MLCommons Association in the United States and other countries. "
    "All rights reserved. Unauthorized use strictly prohibited. See www.mlcommons.org for more information."
)
UNVERIFIED = "Result not verified by MLCommons Association."
APART = (
    "MLPerf\N{TRADE MARK SIGN} results may only be compared with compatible MLPerf\N{TRADE MARK SIGN} results: they are listed "
    "separately from what Edgemeter measures, and are not ranked."
)
DERIVED = "Energy is derived from the measured system power and throughput; it is not an official metric of the benchmark."


def footnote(row: MlperfRow, source: str, retrieved: str, *, is_verified: bool) -> str:
    """Return the footnote of a row: suite, version, division, benchmark, scenario, where and when it was retrieved, entry, legend."""
    first = f"MLPerf\N{TRADE MARK SIGN} {row.round} Inference {row.division.capitalize()} {row.model} {row.scenario} ({row.suite})."
    parts = [first, f"Retrieved from {source} {retrieved}, entry {row.id}.", *([] if is_verified else [UNVERIFIED])]
    # A stream's millijoules are official.
    is_derived = row.energy_mj is not None and row.power_unit != "millijoules"
    return " ".join([*parts, *([DERIVED] if is_derived else []), LEGEND])


def published_footnote(row: PublishedRow) -> str:
    """Return the footnote of a single result of MLPerf among the published figures."""
    name = row.source.replace("MLPerf", "MLPerf\N{TRADE MARK SIGN}")
    retrieved = "Copied second-hand of" if row.stated_by == "second-hand" else "Retrieved from"
    return f"{name}, {row.model}, {row.conditions}. {retrieved} {row.address} {row.date}, {row.version}. {LEGEND}"
