"""The metrics of the trend analysis.

Each is a figure of the table with the scale of its differences.
"""

import math
from dataclasses import dataclass

from edgemeter.agent.contract.figures import FIGURES, Figure, TrendRule, field_name
from edgemeter.agent.contract.run_subject import LOWER_IS_BETTER

# With hardly any data, an interval may exceed any number.
_LARGEST = 10_000.0
_KIND_COLUMNS = {"energy": "energy_kind", "accuracy": "accuracy_kind"}
REPORTED_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class TrendMetric:
    """A figure in the trend analysis, with its rule of the table of figures."""

    figure: Figure
    rule: TrendRule

    @property
    def reported_from(self) -> float:
        """The estimated size from which a step is reported.

        It is below the smallest that matters, since steps are often underestimated.
        """
        return REPORTED_RATIO * self.rule.matters

    @property
    def u_column(self) -> str | None:
        """The column of its expanded uncertainty; None for most figures."""
        return field_name(self.figure.u) or None

    def kind(self, facts: object) -> str | None:
        """Return the kind of the figure by the shared facts of runs.

        It is None if the metric has only one kind.
        """
        column = _KIND_COLUMNS.get(self.figure.group)
        return None if column is None else getattr(facts, column)

    def is_worse(self, moved: float, kind: str | None) -> bool:
        """Return whether a series of this kind got worse.

        An error of predictions gets worse as it rises, other accuracies as they fall.
        """
        is_higher_better = self.figure.better == "higher"
        if self.figure.better == "by its metric":
            is_higher_better = kind is None or LOWER_IS_BETTER not in kind
        return (moved > 0) != is_higher_better


METRICS = {entry.name: TrendMetric(entry, entry.trend) for entry in FIGURES if entry.trend}
DEFAULT = tuple(name for name, metric in METRICS.items() if metric.rule.is_default)


def on_scale(metric: TrendMetric, value: float) -> float:
    """Return `value` on the metric's scale of differences."""
    return 100 * math.log(value) if metric.rule.scale == "log" else 100 * value


def off_scale(metric: TrendMetric, x: float) -> float:
    return math.exp(x / 100) if metric.rule.scale == "log" else x / 100


def difference(metric: TrendMetric, step: float) -> float:
    """Return a step on the scale as per cent of the previous level, or points."""
    return 100 * math.expm1(min(step, _LARGEST) / 100) if metric.rule.scale == "log" else step
