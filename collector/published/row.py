"""A published figure has a number with its unit, its subject and source, and its conditions.

The conditions are as stated.

A page changes and its figures with it (one guide's OpenVINO latency on a Raspberry Pi 5 went from
530 to 81 ms). So source, version and date are part of the figure, and a changed figure is a row of
another version. It is shown and judged, never averaged or ranked.
"""

import math
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.types import Count
from edgemeter.agent.contract.figures import FIGURES, Figure
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.collector.runs.figure_names import figure_called

PublishedText = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NOT_STATED = "not stated"
# Units as people publish them, by our unit; the factor converts to ours.
UNITS: Mapping[str, Mapping[str, float]] = {
    "ms": {"ms": 1.0, "s": 1e3, "us": 1e-3, "ms/im": 1.0, "ms/token": 1.0},
    "/s": {
        "/s": 1.0,
        "per s": 1.0,
        "fps": 1.0,
        "images/s": 1.0,
        "inferences/s": 1.0,
        "requests/s": 1.0,
        "qps": 1.0,
    },
    "t/s": {"tokens/s": 1.0, "tok/s": 1.0, "t/s": 1.0, "tps": 1.0},
    "mJ": {
        "mj": 1.0,
        "j": 1e3,
        "uj": 1e-3,
        "mwh": 3.6e3,
        "wh": 3.6e6,
        "mj/token": 1.0,
        "j/token": 1e3,
    },
    "W": {"w": 1.0, "mw": 1e-3},
    "MB": {"mb": 1.0, "kb": 1e-3, "gb": 1e3, "mib": 1.048576, "gib": 1073.741824},
}
# A stated figure was rounded by half a unit of its last digit, but no honest one by more than this.
MOST_ROUNDING = 0.05
KINDS: Mapping[str, Figure] = {
    entry.name: entry for entry in FIGURES if not entry.is_truth and entry.unit in UNITS
}


class PublishedRow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One published figure.

    `date` is when it was retrieved, `version` the edition of the source (a release, a commit).

    `figure` is a name of `KINDS`, `value` in `unit`; `low` and `high` are the range as stated. A
    field that is None is not stated. `weights_mb` is read to decode one token, `gop` is the work of
    one inference, 10^9 operations, a multiplication and an addition being two; `batch` is the
    number of inputs or answers processed together.
    """

    source: PublishedText
    version: PublishedText
    date: PublishedText
    address: PublishedText
    model: PublishedText
    device: PublishedText
    figure: PublishedText
    value: Positive
    unit: PublishedText
    conditions: PublishedText = NOT_STATED
    stated_by: Literal["vendor", "paper", "user", "second-hand"] | None = None
    licence: str | None = None
    statistic: Literal["mean", "median", "min", "max", "p90", "p99"] | None = None
    low: Positive | None = None
    high: Positive | None = None
    runtime: str | None = None
    backend: str | None = None  # cpu, gpu, npu, or the source's own name.
    precision: str | None = None
    batch: Count | None = None
    threads: Count | None = None
    power_mode: str | None = None
    clock_hz: Positive | None = None
    input_size: str | None = None
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    speculative: str | None = None  # `off` if it is stated to be off.
    read_parameters: Positive | None = None  # Weights used for every token.
    weights_mb: Positive | None = None
    gop: Positive | None = None
    scope: Scope | None = None  # The scope of power or energy.

    @property
    def case(self) -> tuple[object, ...]:
        """The facts shared by rows of one measurement.

        The figures of one case are judged together.
        """
        return tuple(getattr(self, name) for name in _CASE)

    @property
    def key(self) -> tuple[object, ...]:
        """All except the value, which an edition states once."""
        return (*self.case, self.figure, self.statistic, self.scope)

    @property
    def kind(self) -> Figure:
        return KINDS[self.figure]

    @property
    def is_mlperf(self) -> bool:
        """Whether it is a result of MLPerf.

        Such a result may only be compared with compatible ones and is listed apart.
        """
        return "mlperf" in self.source.casefold()

    @property
    def canonical(self) -> float:
        """The value in our unit."""
        return self.value * self._factor

    @property
    def smallest(self) -> float:
        """The smallest possible value, by its rounding and its range, in our unit."""
        lowest = min(self.value, self.low or self.value)
        return (lowest - rounding(lowest)) * self._factor

    @property
    def largest(self) -> float:
        """The largest possible value, by its rounding and its range, in our unit."""
        highest = max(self.value, self.high or self.value)
        return (highest + rounding(highest)) * self._factor

    @property
    def _factor(self) -> float:
        return UNITS[self.kind.unit][self.unit.casefold()]


_OF_FIGURE = {
    "figure",
    "value",
    "unit",
    "statistic",
    "low",
    "high",
    "scope",
    "licence",
    "stated_by",
}
_CASE = tuple(name for name in PublishedRow.__struct_fields__ if name not in _OF_FIGURE)


def rounding(value: float) -> float:
    """Return by how much a stated value may have been rounded.

    It is half a unit of its last digit, at most 5%.
    """
    _, _, exponent = Decimal(repr(value)).normalize().as_tuple()
    return min(0.5 * 10.0 ** int(exponent), MOST_ROUNDING * abs(value))


def kind_called(text: str) -> str:
    """Return the name in `KINDS` of a figure by any of its names.

    It raises ConfigError if there is none.
    """
    return figure_called(text, KINDS.values()).name


def row_of(facts: Mapping[str, Any]) -> PublishedRow:
    """Return the row of these fields, whose numbers may be texts.

    It raises ConfigError with the reason if it is not a figure.
    """
    try:
        row = msgspec.convert(
            {name: value for name, value in facts.items() if value not in (None, "")},
            PublishedRow,
            strict=False,
        )
        date.fromisoformat(row.date)
        row = msgspec.structs.replace(row, figure=kind_called(row.figure))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"no published figure: {error}") from error
    # MJ and MW are not mJ and mW; otherwise case is ignored.
    if row.unit.casefold() not in UNITS[row.kind.unit] or (
        row.unit.startswith("M") and row.kind.unit in {"mJ", "W"}
    ):
        raise ConfigError(
            f"unit {row.unit!r} is not one of {row.figure}: {', '.join(UNITS[row.kind.unit])}"
        )
    numbers = [
        number for name in row.__struct_fields__ if isinstance(number := getattr(row, name), float)
    ]
    if not all(math.isfinite(number) and 1e-12 <= number <= 1e18 for number in numbers):
        raise ConfigError(f"{row.model} on {row.device}: a number is out of range")
    if not (row.low or row.value) <= row.value <= (row.high or row.value):
        raise ConfigError(
            f"the value {row.value:g} is not within its range, {row.low} to {row.high}"
        )
    return row
