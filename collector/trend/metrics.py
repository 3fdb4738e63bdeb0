"""The metrics of the trend analysis, each a figure of the table with the scale of its differences."""

import math
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.contract.figures import FIGURES, LOWER_IS_BETTER, Figure, TrendRule
from edgemeter.collector.runs.run_figures import INDEXED, RunFigures, u_column

# An interval may be wider than any number, if hardly anything is known.
_LARGEST = 10_000.0
_KIND_COLUMNS = {"energy": "energy_kind", "accuracy": "accuracy_kind"}
REPORTED_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class TrendMetric:
    """A figure in the trend analysis, by a rule of the table of figures; `worse` is the direction of a regression.

    `rule.matters` is the smallest difference that matters, on the scale `rule.scale`: per cent, or points.
    """

    figure: Figure
    rule: TrendRule
    worse: Literal["higher", "lower"]

    @property
    def title(self) -> str:
        """The title in tables: `latency p50`."""
        return self.rule.title or self.figure.title

    @property
    def reported_from(self) -> float:
        """The estimated size from which a step is reported: below what matters, since a step of that size is often estimated smaller."""
        return REPORTED_RATIO * self.rule.matters

    @property
    def kind_column(self) -> str | None:
        """The field of a run that names the kind of its figure, None where the metric has only one kind."""
        return _KIND_COLUMNS.get(self.figure.group)

    @property
    def u_column(self) -> str | None:
        """The column of its relative standard uncertainty; None for an accuracy, whose uncertainty over images is no scatter of days."""
        return u_column(self.figure) if self.figure.has_bounds and self.rule.scale == "log" else None

    def value(self, run: RunFigures) -> float | None:
        """Return the figure of a run, None where it has none that belongs to its series: see `followed_sql`."""
        return followed_value(self.figure, run) if self.takes(self.kind(run)) else None

    def kind(self, run: object) -> str | None:
        """Return the kind of the figure of a run (or of the facts that runs share), None where the metric has only one kind."""
        return None if self.kind_column is None else getattr(run, self.kind_column)

    def takes(self, kind: str | None) -> bool:
        """Return whether a figure of this kind belongs to the metric."""
        return self.rule.is_error is None or self.rule.is_error == (kind is not None and LOWER_IS_BETTER in kind)


METRICS = {
    rule.name: TrendMetric(entry, rule, "lower" if (entry.better == "higher" if rule.is_error is None else not rule.is_error) else "higher")
    for entry in FIGURES
    for rule in entry.trends
}
# Metrics whose differences are ratios.
RELATIVE = frozenset(name for name, metric in METRICS.items() if metric.rule.scale == "log")
DEFAULT = tuple(name for name, metric in METRICS.items() if metric.rule.is_default)
FOLLOWED = {entry.key: entry for entry in INDEXED if entry.trends}
_ON_LOG_SCALE = frozenset(entry.key for entry in FIGURES if any(rule.scale == "log" for rule in entry.trends))


def followed_value(entry: Figure, run: RunFigures) -> float | None:
    """Return the figure of a run if the trend follows it: no energy replayed beside measured queries, no logarithm of 0 or less."""
    value = run.value(entry.key)
    if value is None or (value <= 0 and entry.key in _ON_LOG_SCALE):
        return None
    return None if entry.group == "energy" and not run.has_own_energy else value


def followed_sql(entry: Figure) -> str:
    """Return SQL for the same over the columns of the index."""
    conditions = ["has_own_energy"] if entry.group == "energy" else []
    conditions += [f"{entry.key} > 0"] if entry.key in _ON_LOG_SCALE else []
    return f"CASE WHEN {' AND '.join(conditions)} THEN {entry.key} END" if conditions else entry.key


def on_scale(metric: TrendMetric, value: float) -> float:
    """Return `value` on the metric's scale of differences."""
    return 100 * math.log(value) if metric.rule.scale == "log" else 100 * value


def off_scale(metric: TrendMetric, x: float) -> float:
    """Return the figure that `x` on the scale stands for."""
    return math.exp(x / 100) if metric.rule.scale == "log" else x / 100


def difference(metric: TrendMetric, step: float) -> float:
    """Return a step on the scale as per cent of the level before, or points."""
    return 100 * math.expm1(min(step, _LARGEST) / 100) if metric.rule.scale == "log" else step
