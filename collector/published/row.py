"""A published figure: its source, what it is of, the conditions as stated, and what is not stated.

A page changes and its figures with it (one guide's OpenVINO latency on a Raspberry Pi 5 went from 530 to 81 ms): so source, version and
date together are the key, and a changed figure is a row of another version. It is shown and judged, never averaged or ranked.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import msgspec

from edgemeter.agent.base.types import Count
from edgemeter.agent.contract.figures import FIGURES, Figure
from edgemeter.agent.contract.record_figures import Scope

LONGEST_TEXT = 500
PublishedText = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)]
Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}\Z")]
Positive = Annotated[float, msgspec.Meta(gt=0)]
StatedBy = Literal["vendor", "paper", "user", "second-hand"]
Statistic = Literal["mean", "median", "min", "max", "p90", "p95", "p99", "p99.9"]

# Units as people publish them, by our unit; the factor leads to ours.
UNITS: Mapping[str, Mapping[str, float]] = {
    "ms": {"ms": 1.0, "s": 1e3, "us": 1e-3, "ms/im": 1.0, "ms/token": 1.0},
    "per s": {"per s": 1.0, "per_s": 1.0, "fps": 1.0, "images/s": 1.0, "inferences/s": 1.0, "requests/s": 1.0, "qps": 1.0},
    "tokens/s": {"tokens/s": 1.0, "tok/s": 1.0, "t/s": 1.0, "tps": 1.0},
    "mJ": {"mj": 1.0, "j": 1e3, "uj": 1e-3, "mwh": 3.6e3, "wh": 3.6e6, "mj/token": 1.0, "j/token": 1e3, "mwh/token": 3.6e3},
    "W": {"w": 1.0, "mw": 1e-3},
    "MB": {"mb": 1.0, "kb": 1e-3, "gb": 1e3, "mib": 1.048576, "gib": 1073.741824, "bytes": 1e-6},
    "": {"ratio": 1.0, "%": 1e-2},
    "°C": {"°c": 1.0, "c": 1.0},
}
FEWEST_IMAGES = 100
# No quantity of a device is beyond, and arithmetic on what is within stays within the range of floats.
SMALLEST, LARGEST = 1e-12, 1e18
_BLANKS = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_ROUNDING = 1e-3  # Tools print the ends of a range with fewer digits than the value.


@dataclass(frozen=True, slots=True)
class PublishedKind:
    """A kind of published figure: one of the table of figures (`entry`), or the size of a model's file, which no run has."""

    title: str
    unit: str
    entry: Figure | None

    @property
    def units(self) -> Mapping[str, float]:
        """The units it is published in, with the factor that leads to ours."""
        return UNITS[self.unit]

    def factor(self, unit: str) -> float | None:
        """Return what leads from a unit, as published, to ours, None for another; MJ and MW are not mJ and mW, else case says nothing."""
        return None if unit.startswith("M") and self.unit in ("mJ", "W") else self.units.get(unit.casefold())


SIZE = "size"
NOT_STATED = "not stated"  # Of a text that every row has.
KINDS: Mapping[str, PublishedKind] = {
    **{entry.choice: PublishedKind(entry.title, entry.unit, entry) for entry in FIGURES if not entry.is_truth and entry.unit in UNITS},
    SIZE: PublishedKind("size of the model's file", "MB", None),
}


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One published figure. `date` is when it was retrieved, `version` the edition of the source (a release, a commit).

    `figure` is a name of `KINDS`, `value` in `unit`; `low` and `high` are the range or interval as stated. A field that is None is not
    stated. `weights_mb` is what decoding one token reads, `gop` the work of one inference, 10^9 operations, a multiplication and an
    addition being two.
    """

    source: PublishedText
    version: PublishedText
    date: Date
    address: PublishedText
    model: PublishedText
    device: PublishedText
    figure: PublishedText
    value: float
    unit: PublishedText
    conditions: PublishedText = NOT_STATED
    stated_by: StatedBy | None = None
    licence: str | None = None
    statistic: Statistic | None = None
    low: float | None = None
    high: float | None = None
    standard_deviation: float | None = None  # In `unit`, over the count or the repeats.
    count: Count | None = None  # Queries behind the figure.
    repeats: Count | None = None
    runtime: str | None = None
    software: str | None = None  # Versions.
    backend: str | None = None  # cpu, gpu, npu, or what the source calls it.
    precision: str | None = None
    batch: Count | None = None
    threads: Count | None = None
    concurrency: Count | None = None
    power_mode: str | None = None
    clock_hz: Positive | None = None
    input_size: str | None = None
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    depth_tokens: Count | None = None
    speculative: str | None = None  # `off` where it is stated to be off.
    parameters: Positive | None = None
    read_parameters: Positive | None = None  # Weights that every token passes.
    weights_mb: Positive | None = None
    gop: Positive | None = None
    scope: Scope | None = None  # What the power or energy is of.
    dataset: str | None = None
    images: Count | None = None  # Items of an accuracy.
    accuracy_metric: str | None = None
    standard_error: Positive | None = None  # Of the value, in its unit.

    @property
    def key(self) -> str:
        """The key of the edition: source, version and date."""
        return f"{self.source} | {self.version} | {self.date}"

    @property
    def id(self) -> str:
        """A short name of the row: all but its value, which an edition has once."""
        of_figure = (self.figure, self.statistic, self.scope, self.dataset, self.accuracy_metric)
        return hashlib.sha256(repr((self.case, *of_figure)).encode()).hexdigest()[:8]

    @property
    def case(self) -> tuple[object, ...]:
        """All that rows of one measurement share, edition and conditions; the figures of one case are checked against each other."""
        return tuple(getattr(self, name) for name in _CASE)

    @property
    def kind(self) -> PublishedKind:
        """The kind of the figure; raises KeyError for a row that `fault` refuses."""
        return KINDS[self.figure]

    @property
    def is_mlperf(self) -> bool:
        """Whether it is a result of MLPerf, which may only be compared with compatible ones and stands apart."""
        return "mlperf" in self.source.casefold()

    @property
    def canonical(self) -> tuple[float, str]:
        """The value in our unit, and the unit."""
        return self.in_our_unit(self.value), self.kind.unit

    def in_our_unit(self, value: float) -> float:
        """Return a value in the row's unit in ours."""
        return value * self.kind.units[self.unit.casefold()]


# All that is not the figure itself.
_OF_FIGURE = {
    "figure",
    "value",
    "unit",
    "statistic",
    "low",
    "high",
    "standard_deviation",
    "count",
    "scope",
    "dataset",
    "images",
    "accuracy_metric",
    "standard_error",
    "licence",
    "stated_by",
}
_CASE = tuple(name for name in PublishedRow.__struct_fields__ if name not in _OF_FIGURE)


def fault(row: PublishedRow) -> str | None:
    """Return why a row cannot be a figure, None if it can; whether to believe it is judged elsewhere."""
    if row.figure not in KINDS:
        return f"figure {row.figure!r} is not known: one of {', '.join(KINDS)}"
    if row.kind.factor(row.unit) is None:
        return f"unit {row.unit!r} is not one of {row.figure}: {', '.join(row.kind.units)}"
    is_above_one = row.figure == "accuracy" and row.unit.casefold() == "ratio" and row.value > 1
    numbers = {name: number for name in row.__struct_fields__ if isinstance(number := getattr(row, name), int | float)}
    wild = [name for name, number in (numbers | {"value": row.canonical[0]}).items() if number and not SMALLEST <= number <= LARGEST]
    low, high = row.low if row.low is not None else row.value, row.high if row.high is not None else row.value
    checks = (
        (is_day(row.date), f"date {row.date!r} is not a calendar date"),
        (math.isfinite(row.value) and row.canonical[0] > 0, f"value {row.value!r} is not a number above 0"),
        (not wild, f"{', '.join(wild)}: not a number between {SMALLEST:g} and {LARGEST:g}"),
        (
            0 < low <= row.value * (1 + _ROUNDING) and row.value <= high * (1 + _ROUNDING) and low <= high,
            f"the value {row.value:g} is not within its range, {low:g} to {high:g}",
        ),
        (
            all(value.isprintable() for value in msgspec.structs.astuple(row) if isinstance(value, str)),
            "a text contains a control character",
        ),
        (not is_above_one, f"an accuracy of {row.value:g} {row.unit} is above 1: give unit '%' where it is one in percent"),
    )
    return next((why for is_right, why in checks if not is_right), None)


def plain_blanks(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts whose texts have plain blanks where a page has others, such as the no-break space."""
    return {name: _BLANKS.sub(" ", value) if isinstance(value, str) else value for name, value in facts.items()}


def not_sourced(row: PublishedRow) -> str | None:
    """Return why a row cannot be kept, None if its source can be looked up: a claim and a file of the user's are judged, and not kept."""
    if re.match(r"https?://\S+\Z", row.address):
        return None
    return f"address {row.address!r} is not an http(s):// address: every figure needs a source that can be looked up"


def too_few_items(row: PublishedRow) -> str | None:
    """Return why an accuracy says nothing of its model, None if it is over enough items or is no accuracy.

    AP 0.61 over 4 images was published for a model that has 0.40.
    """
    if row.figure != "accuracy" or (row.images is not None and row.images >= FEWEST_IMAGES):
        return None
    return f"an accuracy needs the number of images, at least {FEWEST_IMAGES}: this has {row.images}"


def is_day(text: str) -> bool:
    """Return whether `text` is a day of the calendar, as YYYY-MM-DD."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
