"""Run columns: the figures of many series at once, as arrays. A million runs as objects take a hundred times longer to group by day."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.agent.contract.run_subject import RunSubject
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

    `figures` are by their columns, NaN where a run has none; `common` are places in `facts`.
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
    """Return the columns that the metrics read."""
    return list(dict.fromkeys(name for metric in metrics for name in (TEMPERATURE, metric.figure.name, metric.u_column) if name))


def common_facts(subject: RunSubject) -> CommonFacts:
    """Return the facts that the runs of a subject share with others; the energies of two sensors are of one kind."""
    energy, accuracy = subject.energy_kind, subject.accuracy_kind
    return CommonFacts(subject.fingerprint, energy.text if energy else None, accuracy.text if accuracy else None)


def columns_of(series: Sequence[Sequence[RunFigures]], names: Iterable[str]) -> RunColumns:
    """Return the runs of each series, in any order, with the figures of these names."""
    runs = [run for runs_of_series in series for run in sorted(runs_of_series, key=attrgetter("at_ns"))]
    facts: dict[CommonFacts, int] = {}
    number_of_subject = {
        id(subject): facts.setdefault(common_facts(subject), len(facts))
        for subject in {id(run.subject): run.subject for run in runs}.values()
    }
    return RunColumns(
        edges=np.cumsum([0, *map(len, series)], dtype=np.intp),
        day=np.array([run.day for run in runs], dtype=np.int64),
        is_ok=np.array([run.verdict.state == "ok" for run in runs], dtype=np.bool_),
        common=np.array([number_of_subject[id(run.subject)] for run in runs], dtype=np.intp),
        facts=list(facts),
        figures={name: np.array([_column(run, name) for run in runs], dtype=np.float64) for name in names},
    )


def _column(run: RunFigures, name: str) -> float | None:
    if name in METRICS:
        return METRICS[name].value(run)
    return run.temperature_before_c if name == TEMPERATURE else run.value(name)
