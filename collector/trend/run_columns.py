"""Run columns: the figures of many series at once, as arrays. A million runs as objects take a hundred times longer to group by day."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.run_figures import RUN_COLUMNS, RunFigures
from edgemeter.agent.contract.series import Fingerprint
from edgemeter.collector.trend.metrics import METRICS, TrendMetric

TEMPERATURE = "temperature_before_c"
COVERAGE = 2.0  # An expanded uncertainty is so many standard uncertainties.


class CommonFacts(NamedTuple):
    """The facts that many runs share: their fingerprint, and the kinds of their figures."""

    below: Fingerprint
    energy_kind: str | None
    accuracy_kind: str | None


@dataclass(frozen=True, slots=True)
class RunColumns:
    """Runs of series; arrays [runs], those of one series together, oldest first: of the series n those from `edges[n]` to `edges[n + 1]`.

    `figures` are by the columns of the index, NaN where a run has none; `common` are places in `facts`.
    """

    edges: NDArray[np.intp]
    day: NDArray[np.int64]
    is_ok: NDArray[np.bool_]
    common: NDArray[np.intp]
    facts: Sequence[CommonFacts]
    figures: Mapping[str, NDArray[np.float64]]

    def part(self, begin: int, end: int) -> "RunColumns":
        """Return the runs of the series from one place to before another."""
        edges, part = self.edges[begin : end + 1], slice(self.edges[begin], self.edges[end])
        figures = {name: values[part] for name, values in self.figures.items()}
        return RunColumns(edges - edges[0], self.day[part], self.is_ok[part], self.common[part], self.facts, figures)

    def values(self, metric: TrendMetric) -> NDArray[np.float64]:
        """Return the metric's figure of each run, NaN where it has none."""
        return self.figures[metric.figure.name]

    def u_ratios(self, metric: TrendMetric) -> NDArray[np.float64]:
        """Return the relative standard uncertainty of each run's figure, 0 where it is not known."""
        if metric.u_column is None:
            return np.zeros(len(self.day))
        return np.nan_to_num(self.figures[metric.u_column] / COVERAGE / self.values(metric))

    def kinds(self, metric: TrendMetric) -> tuple[NDArray[np.intp], Sequence[str | None]]:
        """Return of what kind each run's figure is, as a place among the kinds that there are, and these."""
        numbers: dict[str | None, int] = {}
        number_of_facts = [numbers.setdefault(metric.kind(facts), len(numbers)) for facts in self.facts]
        return np.array(number_of_facts, dtype=np.intp)[self.common], list(numbers)


def scaled(metric: TrendMetric, value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return figures on the metric's scale of differences."""
    # Not numpy's logarithm, whose last digit depends on the processor.
    return 100 * (np.array(list(map(math.log, value.tolist())), dtype=np.float64) if metric.rule.scale == "log" else value)


def names_of(metrics: Iterable[TrendMetric]) -> list[str]:
    """Return the columns of the index that the metrics read."""
    return list(dict.fromkeys(name for metric in metrics for name in (TEMPERATURE, metric.figure.name, metric.u_column) if name))


def columns_of(series: Sequence[Sequence[tuple[RunFigures, Fingerprint]]], names: Iterable[str]) -> RunColumns:
    """Return the runs of each series, in any order, with the figures of these names."""
    runs = [pair for runs_of_series in series for pair in sorted(runs_of_series, key=lambda pair: pair[0].at_ns)]
    facts: dict[CommonFacts, int] = {}
    common = [facts.setdefault(CommonFacts(below, run.energy_kind, run.accuracy_kind), len(facts)) for run, below in runs]
    return RunColumns(
        edges=np.cumsum([0, *map(len, series)], dtype=np.intp),
        day=np.array([run.day for run, _ in runs], dtype=np.int64),
        is_ok=np.array([run.verdict == "ok" for run, _ in runs], dtype=np.bool_),
        common=np.array(common, dtype=np.intp),
        facts=list(facts),
        figures={name: np.array([_column(run, name) for run, _ in runs], dtype=np.float64) for name in names},
    )


def _column(run: RunFigures, name: str) -> float | None:
    if name in METRICS:
        return METRICS[name].value(run)
    value: float | None = getattr(run, name) if name in RUN_COLUMNS else run.value(name)
    return value
