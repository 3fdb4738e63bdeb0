"""Run columns: the figures of many series at once, as arrays.

A million runs as objects take a hundred times longer to group by day.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.contract.series import Fingerprint
from edgemeter.collector.trend.metrics import METRICS, TrendMetric

TEMPERATURE = "temperature_before_c"
COVERAGE = 2.0  # An expanded uncertainty is this many standard uncertainties.


class CommonFacts(NamedTuple):
    """The facts that many runs share: their fingerprint, and the kinds of their figures."""

    below: Fingerprint
    energy_kind: str | None
    accuracy_kind: str | None


@dataclass(frozen=True, slots=True)
class RunColumns:
    """Runs of series, oldest first; arrays [runs], those of one series together.

    Series n has those from `edges[n]` to `edges[n + 1]`. `figures` are by their columns, NaN if a
    run has none; `common` are indexes in `facts`.
    """

    edges: NDArray[np.intp]
    day: NDArray[np.int64]
    is_ok: NDArray[np.bool_]
    common: NDArray[np.intp]
    facts: Sequence[CommonFacts]
    figures: Mapping[str, NDArray[np.float64]]

    def part(self, begin: int, end: int) -> "RunColumns":
        """Return the runs of the series from one index to before another."""
        edges, part = self.edges[begin : end + 1], slice(self.edges[begin], self.edges[end])
        return RunColumns(
            edges - edges[0],
            self.day[part],
            self.is_ok[part],
            self.common[part],
            self.facts,
            {name: values[part] for name, values in self.figures.items()},
        )

    def values(self, metric: TrendMetric) -> NDArray[np.float64]:
        """Return the metric's figure of each run, NaN if it has none."""
        return self.figures[metric.figure.name]

    def u_ratios(self, metric: TrendMetric) -> NDArray[np.float64]:
        """Return the relative standard uncertainty of each run's figure, 0 if unknown."""
        if metric.u_column is None:
            return np.zeros(len(self.day))
        return np.nan_to_num(self.figures[metric.u_column] / COVERAGE / self.values(metric))

    def kinds(self, metric: TrendMetric) -> tuple[NDArray[np.intp], Sequence[str | None]]:
        """Return the kind of each run's figure, as an index, and the kinds."""
        numbers: dict[str | None, int] = {}
        number_of_facts = [
            numbers.setdefault(metric.kind(facts), len(numbers)) for facts in self.facts
        ]
        return np.array(number_of_facts, dtype=np.intp)[self.common], list(numbers)


def scaled(metric: TrendMetric, value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return figures on the metric's scale of differences."""
    # Not numpy's logarithm, whose last digit depends on the processor.
    return 100 * (
        np.fromiter(map(math.log, value.tolist()), np.float64, len(value))
        if metric.rule.scale == "log"
        else value
    )


def names_of(metrics: Iterable[TrendMetric]) -> list[str]:
    return list(
        dict.fromkeys(
            name
            for metric in metrics
            for name in (TEMPERATURE, metric.figure.name, metric.u_column)
            if name
        )
    )


def common_facts(subject: RunSubject) -> CommonFacts:
    """Return the facts that the runs of a subject share with others.

    The energies of two sensors are of one kind.
    """
    energy, accuracy = subject.energy_kind, subject.accuracy_kind
    return CommonFacts(
        subject.fingerprint, energy.text if energy else None, accuracy.text if accuracy else None
    )


def run_columns(
    edges: NDArray[np.intp],
    at_ns: NDArray[np.int64],
    is_ok: NDArray[np.bool_],
    subject_of_run: NDArray[np.intp],
    subjects: Sequence[RunSubject],
    figures: Mapping[str, NDArray[np.float64]],
) -> RunColumns:
    """Return the runs of series from arrays [runs] in order.

    `subject_of_run` has indexes in `subjects`.
    """
    facts: dict[CommonFacts, int] = {}
    number_of_subject = [
        facts.setdefault(common_facts(subject), len(facts)) for subject in subjects
    ]
    has_own_energy = np.array([bool(subject.has_own_energy) for subject in subjects], np.bool_)[
        subject_of_run
    ]
    return RunColumns(
        edges=edges,
        day=at_ns // NS_PER_DAY,
        is_ok=is_ok,
        common=np.array(number_of_subject, np.intp)[subject_of_run],
        facts=list(facts),
        figures={name: _followed(name, values, has_own_energy) for name, values in figures.items()},
    )


def _followed(
    name: str, values: NDArray[np.float64], has_own_energy: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the values of a column, NaN if the trend does not use them.

    It uses no energy replayed with measured queries, and no log of 0.
    """
    if name not in METRICS:
        return values
    metric = METRICS[name]
    refused = (
        ~has_own_energy if metric.figure.group == "energy" else np.zeros(len(values), np.bool_)
    )
    if metric.rule.scale == "log":
        refused |= values <= 0
    return np.where(refused, np.nan, values)
