"""Limits as people write them, parsed with the table of figures.

`p99<=33ms, ap>=.74, energy<=60mJ, board=Raspberry Pi 5` are requirements for a case;
`slower:3%,energy:5%,ap:0.5` is how much a change may make figures worse.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.number_text import plain_digits
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract.case_identity import FIELD
from edgemeter.agent.contract.figures import ACCURACY, Figure
from edgemeter.collector.runs.figure_names import (
    EXAMPLE,
    JUDGED,
    figure_called,
    figure_words,
    metric_called,
)

if TYPE_CHECKING:
    from edgemeter.collector.compare.summary import CaseSummary

Side = Literal["at most", "at least"]
_TERM = re.compile(r"\s*([A-Za-z][\w .-]*?)\s*(<=|>=|≤|≥|<|>|=)\s*(.*?)\s*")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)")
# Units of a quantity, each as a multiple of the unit in the table of figures.
_SCALES: Mapping[str, Mapping[str, str]] = {
    "ms": {"ns": "0.000001", "us": "0.001", "µs": "0.001", "ms": "1", "s": "1000"},
    "mJ": {"uJ": "0.001", "µJ": "0.001", "mJ": "1", "J": "1000", "kJ": "1000000"},
    "MB": {
        "B": "0.000001",
        "KB": "0.001",
        "MB": "1",
        "GB": "1000",
        "KiB": "0.001024",
        "MiB": "1.048576",
        "GiB": "1073.741824",
    },
    "/s": {"/s": "1"},
    "t/s": {"t/s": "1", "tokens/s": "1", "/s": "1"},
    "": {"": "1", "%": "0.01"},
}


@dataclass(frozen=True, slots=True)
class FigureLimit:
    """A limit of a figure.

    `value` is in the table's unit. For an accuracy `metric` is its title, empty for any.
    """

    figure: Figure
    side: Side
    value: float
    metric: str = ""

    @property
    def text(self) -> str:
        """The limit as written: `p99<=33ms`."""
        name = self.metric.lower() or self.figure.title
        sign = "<=" if self.side == "at most" else ">="
        return f"{name}{sign}{plain_digits(self.value, 12)}{self.figure.unit}"

    def is_kept(self, value: float) -> bool:
        return value <= self.value if self.side == "at most" else value >= self.value


@dataclass(frozen=True, slots=True)
class CaseCondition:
    """A condition on a case: `board=Raspberry Pi 5`."""

    name: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements of a case: limits of figures, and conditions."""

    figures: tuple[FigureLimit, ...] = ()
    conditions: tuple[CaseCondition, ...] = ()

    @property
    def text(self) -> str:
        return ", ".join(
            [
                *(limit.text for limit in self.figures),
                *(condition.text for condition in self.conditions),
            ]
        )


# A limit of a case's speed: throughput for an offline load.
SLOWER = "slower"
GATE_EXAMPLE = "slower:3%,energy:5%,ap:0.5"


@dataclass(frozen=True, slots=True)
class GateLimit:
    """How much worse a figure may get: a ratio, or for accuracies and shares a difference (0..1).

    `text` is how it was written.
    """

    figure: str
    by: float
    text: str


# The conditions by name: fields of the case's identity and of its environment.
CONDITIONS: "Mapping[str, Callable[[CaseSummary], object]]" = {
    "board": lambda case: case.around.environment["board"],
    **{name.replace("_", "-"): attrgetter(f"key.{name}") for name in FIELD},
    "scope": lambda case: case.energy.scope if case.energy else None,
}


def parse_requirements(text: str) -> Requirements:
    """Return the limits in a text, of which an empty one has none.

    Raises ConfigError if a name, a sign, a number or a unit is wrong.
    """
    figures: list[FigureLimit] = []
    conditions: list[CaseCondition] = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _TERM.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"{part!r} is not a limit: write NAME<=VALUE, NAME>=VALUE or NAME=TEXT, "
                f"such as {EXAMPLE}"
            )
        name, sign, value = match.groups()
        condition = re.sub(r"[\s_-]+", "-", name.lower())
        if condition in CONDITIONS and sign == "=":
            conditions.append(CaseCondition(condition, value))
        else:
            figures.append(_figure_limit(part, name, sign, value))
    return Requirements(tuple(figures), tuple(conditions))


def _figure_limit(part: str, name: str, sign: str, text: str) -> FigureLimit:
    try:
        entry = figure_called(name, JUDGED.values())
    except ConfigError as error:
        meant = near(name, [*figure_words(JUDGED.values()), *CONDITIONS])
        raise ConfigError(
            f"{part!r}: {name!r} is neither a figure nor a property of a case: {meant}"
        ) from error
    metric = metric_called(name) if entry.name == ACCURACY else ""
    better = "higher" if metric else entry.better
    side: Side = "at most" if sign in ("<=", "<", "≤") else "at least"
    right = {"lower": "<=", "higher": ">="}.get(str(better))
    if sign == "=" or (right is not None and (right == "<=") != (side == "at most")):
        raise ConfigError(f"{part!r} has the wrong sign: write {name}{right or '>='}{text}")
    value = _value(part, entry, text)
    if entry.name == ACCURACY and value > 1:
        raise ConfigError(
            f"{part!r}: {name} lies between 0 and 1: write "
            f"{name}{sign}{value / 100:g}, or {value:g}%"
        )
    return FigureLimit(entry, side, value, metric)


def _value(part: str, entry: Figure, text: str) -> float:
    match = _NUMBER.fullmatch(text)
    units = _SCALES[entry.unit]
    if match is None:
        raise ConfigError(
            f"{part!r} has no number: write one in {entry.unit or 'its own unit, such as .74'}"
        )
    number, unit = match.groups()
    # Energies of tokens are in mJ a token.
    unit = unit.removesuffix("/token") if "_token_" in entry.name else unit
    if unit and unit not in units:
        takes = ", ".join(filter(None, units)) or "no unit"
        raise ConfigError(
            f"{part!r}: {entry.title} is in {entry.unit or 'no unit, or in %'}, not in {unit}; "
            f"it takes {takes}"
        )
    return float(Decimal(number) * Decimal(units[unit or entry.unit]))


def parse_gate(text: str) -> list[GateLimit]:
    """Return the limits of a change.

    Raises ConfigError if a name or a number is wrong, or there is none.
    """
    limits = [_gate_limit(part.strip(), text) for part in text.split(",") if part.strip()]
    if not limits:
        raise ConfigError(f"there is no limit in {text!r}: write {GATE_EXAMPLE}")
    return limits


def _gate_limit(part: str, text: str) -> GateLimit:
    figure, _, by = part.partition(":")
    try:
        value = float(by.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    try:
        name = SLOWER if figure == SLOWER else figure_called(figure, JUDGED.values()).name
    except ConfigError as error:
        meant = near(figure, [SLOWER, *figure_words(JUDGED.values())])
        raise ConfigError(
            f"{part!r} in {text!r} is not a limit: {meant} (such as {GATE_EXAMPLE})"
        ) from error
    if by.endswith("%") == (name == ACCURACY) or not 0 <= value < 10:
        takes = "points, not per cent" if name == ACCURACY else "a percentage"
        raise ConfigError(
            f"{part!r} in {text!r} is not a limit: {figure} takes {takes}; write {GATE_EXAMPLE}"
        )
    return GateLimit(name, value, part)


def selected(
    summaries: "Sequence[CaseSummary]", conditions: Sequence[CaseCondition]
) -> "list[CaseSummary]":
    """Return the cases that match all conditions; the beginning of a board's name is enough.

    Raises ConfigError if a value selects none.
    """
    cases = list(summaries)
    for condition in conditions:
        texts = [
            str(value) if (value := CONDITIONS[condition.name](case)) is not None else ""
            for case in cases
        ]
        value_text = condition.value.lower()
        exact = [
            case for case, text in zip(cases, texts, strict=True) if text.lower() == value_text
        ]
        begins = [
            case
            for case, text in zip(cases, texts, strict=True)
            if re.match(rf"{re.escape(value_text)}\b", text.lower())
        ]
        narrowed = exact or begins
        if not narrowed:
            raise ConfigError(
                f"no case has {condition.text}: "
                f"{near(condition.value, dict.fromkeys(filter(None, texts)))}"
            )
        cases = narrowed
    return cases
