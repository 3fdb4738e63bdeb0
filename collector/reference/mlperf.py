"""MLPerf Inference's official results: `summary_results.json` of a round as rows of ours, by the names of its keys.

The rounds differ: v4.1 writes IDs as `v4.1-0001` and `a#` as a float, v5.1 and v6.0 as `5.1-0001` and an integer or nothing; `compliance`
is 1 or `closed`; power stands only where it was measured. So every key is looked up by name, what is not needed may be absent, and what is
needed but is not understood, above all a unit, refuses the row. Energy is derived from measured power only, and called derived.

MLCommons' messaging guidelines forbid to compare these results with any others: they are shown apart and rank nowhere.
Source: summary_results.json of mlcommons/inference_results_v4.1, _v5.1 and _v6.0; mlcommons/policies: MLPerf_Results_Messaging_Guidelines.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from edgemeter.agent.errors import ConfigError
from edgemeter.collector.reference.lines import objects

Measure = Literal["samples_per_s", "queries_per_s", "tokens_per_s", "latency_ms"]

# What the official files call their units; the factor leads to ours.
UNITS: dict[str, tuple[Measure, float]] = {
    "samples/s": ("samples_per_s", 1.0),
    "queries/s": ("queries_per_s", 1.0),
    "tokens/s": ("tokens_per_s", 1.0),
    "latency (ms)": ("latency_ms", 1.0),
    "latency (s)": ("latency_ms", 1000.0),
}
# Watts over the whole run (Offline, Server), millijoules for each stream (SingleStream, MultiStream).
POWER_UNITS = ("watts", "millijoules")
_PER = {"samples_per_s": "sample", "queries_per_s": "query", "tokens_per_s": "token", "latency_ms": "query"}
_ROUND = re.compile(r"v?(\d+\.\d+)")
_METRIC = re.compile(r"([A-Za-z][\w.@-]*)\s*:\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


class MlperfRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One official result: one system, one model, one scenario.

    `value` is in `measure`'s unit. `energy_mj` per `energy_per` is what the round states of a stream, else derived by us from the
    measured power at the wall, None without one; a derived one is no MLPerf metric. `line` is where the row stands in its file.
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
    measure: Measure
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
    def is_energy_derived(self) -> bool:
        """Whether the energy is ours, of power and throughput: a stream's millijoules are official."""
        return self.energy_mj is not None and self.power_unit != "millijoules"

    @property
    def key(self) -> str:
        """What names the row among all rounds: an entry has many models and scenarios."""
        return f"{self.id}/{self.suite}/{self.model}/{self.scenario}"


class Parsed(msgspec.Struct, frozen=True):
    """What a file held: its rows, how many had errors and were dropped, and what was refused, each with its line."""

    rows: tuple[MlperfRow, ...]
    dropped: int
    refused: tuple[str, ...]


def read(path: Path, *, skip_refused: bool = False) -> Parsed:
    """Return the results in a `summary_results.json`; rows that the round itself marks as erroneous are dropped.

    Raises:
        ConfigError: it is no such file, ends too early, or a row of it is not understood (unless `skip_refused`); the message has the line.
    """
    rows: list[MlperfRow] = []
    refused: list[str] = []
    dropped = 0
    for line, found in objects(path):
        try:
            if _number(found, "errors", 0.0) != 0:
                dropped += 1
                continue
            rows.append(_row(found, line))
        except ConfigError as error:
            if not skip_refused:
                message = f"{str(path)!r}, line {line}: {error}; nothing was imported (--skip-refused imports the rest)"
                raise ConfigError(message) from error
            refused.append(f"line {line}: {error}")
    if not rows:
        why = f": {refused[0]}" if refused else ""
        message = f"{str(path)!r} holds no result that can be imported{why}"
        raise ConfigError(message)
    return Parsed(tuple(rows), dropped, tuple(refused))


def _row(found: Mapping[str, object], line: int) -> MlperfRow:
    given_id = _text(found, "ID", needed=True)
    unit = _text(found, "Performance_Units", needed=True)
    measure, factor = _unit(unit)
    value = _positive(found, "Performance_Result") * factor
    power, power_unit = _power(found)
    energy = _energy_mj(measure, value, power, power_unit)
    return MlperfRow(
        id=given_id.removeprefix("v"),
        round=_round(found, given_id),
        suite=_text(found, "Suite", needed=True),
        division=_text(found, "Category", needed=True),
        availability=_text(found, "Availability"),
        submitter=_text(found, "Submitter", needed=True),
        system=_text(found, "System"),
        model=_text(found, "Model", needed=True),
        used_model=_text(found, "UsedModel") or None,
        scenario=_text(found, "Scenario", needed=True),
        accuracy={name: float(number) for name, number in _METRIC.findall(_text(found, "Accuracy"))},
        measure=measure,
        value=value,
        unit_as_published=unit,
        power_value=power,
        power_unit=power_unit,
        energy_mj=energy,
        energy_per=None if energy is None else "stream" if power_unit == "millijoules" else _PER[measure],
        nodes=_count(found, "Nodes"),
        processor=_text(found, "Processor"),
        accelerator=_text(found, "Accelerator"),
        accelerators=_count(found, "a#"),
        software=_text(found, "Software"),
        weight_data_types=_text(found, "weight_data_types"),
        compliance=_text(found, "compliance"),
        is_inferred=_number(found, "inferred", 0.0) != 0,
        notes=_text(found, "Notes"),
        details=_text(found, "Details"),
        line=line,
    )


def _unit(unit: str) -> tuple[Measure, float]:
    known = UNITS.get(unit.strip().casefold())
    if known is None:
        message = f"Performance_Units {unit!r} are not known (known: {', '.join(UNITS)})"
        raise ConfigError(message)
    return known


def _power(found: Mapping[str, object]) -> tuple[float | None, str | None]:
    if found.get("Power_Result") in (None, ""):
        return None, None
    unit = _text(found, "Power_Units", needed=True).strip().casefold()
    if unit not in POWER_UNITS:
        message = f"Power_Units {found['Power_Units']!r} are not known (known: Watts, millijoules)"
        raise ConfigError(message)
    return _positive(found, "Power_Result"), unit


def _energy_mj(measure: Measure, value: float, power: float | None, power_unit: str | None) -> float | None:
    if power is None:
        return None
    if power_unit == "millijoules":
        return power
    # Power over a run says nothing of one query whose latency alone is known.
    return None if measure == "latency_ms" else power / value * 1000


def _round(found: Mapping[str, object], given_id: str) -> str:
    matched = _ROUND.match(_text(found, "version")) or _ROUND.match(given_id)
    if matched is None:
        message = f"neither version {found.get('version')!r} nor ID {given_id!r} names a round (v6.0)"
        raise ConfigError(message)
    return f"v{matched[1]}"


def _text(found: Mapping[str, object], name: str, *, needed: bool = False) -> str:
    value = found.get(name)
    text = "" if value is None else str(value).strip()
    if needed and not text:
        message = f"{name!r} is missing: this is no row of an MLPerf summary_results.json"
        raise ConfigError(message)
    return text


def _number(found: Mapping[str, object], name: str, default: float) -> float:
    value = found.get(name)
    if value in (None, ""):
        return default
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        message = f"{name} {value!r} is no number"
        raise ConfigError(message) from error


def _positive(found: Mapping[str, object], name: str) -> float:
    value = _number(found, name, math.nan)
    # To Python `true` is the number 1.
    if not math.isfinite(value) or value <= 0 or isinstance(found.get(name), bool):
        message = f"{name} {found.get(name)!r} is no number above 0"
        raise ConfigError(message)
    return value


def _count(found: Mapping[str, object], name: str) -> int | None:
    """Return a count, None where a round leaves it empty; some write 8, some 8.0."""
    value = _number(found, name, math.nan)
    return int(value) if math.isfinite(value) else None
