"""One figure of a case over its runs.

It is its mean with the 95% interval, and the evidence for comparisons.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

import msgspec

from edgemeter.agent.base.decision import Scale, on_scale
from edgemeter.agent.base.evidence import (
    LARGEST_LOG,
    REACH,
    Evidence,
    RunValue,
    mean_of,
    mean_of_device,
    sessions_of,
)
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import Figure
from edgemeter.agent.contract.run_figures import RunFigures
from edgemeter.collector.runs.case_runs import CaseRuns


class CaseFigure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A figure of a case over a number of runs.

    `value` has its 95% bounds, None with too few runs. The value is the geometric mean over the
    units that count (runs, days or devices), for shares and accuracies the mean. `u` is the
    expanded uncertainty (95%) of the meter, which repeating a run does not reduce. A figure with a
    value of 0 has no ratio.
    """

    value: float
    low: float | None
    high: float | None
    runs: int
    evidence: Evidence
    scale: Scale = "ratio"
    u: float | None = None
    has_ratio: bool = True

    @property
    def meter_error(self) -> float:
        """The standard error of the meter, on the scale."""
        return 0.0 if self.u is None or self.value <= 0 else math.log1p(self.u / self.value) / REACH


class CaseFigures(Mapping[str, CaseFigure]):
    """The figures of a case by name, each computed on demand.

    For thousands of cases, most figures are never shown.
    """

    def __init__(self, names: Sequence[str], figure: Callable[[str], CaseFigure | None]) -> None:
        self._names, self._figure = names, figure
        self._known: dict[str, CaseFigure | None] = {}

    def __getitem__(self, name: str) -> CaseFigure:
        if name not in self._known:
            self._known[name] = self._figure(name) if name in self._names else None
        figure = self._known[name]
        if figure is None:
            raise KeyError(name)
        return figure

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def figure_of(entry: Figure, runs: CaseRuns, u: float | None = None) -> CaseFigure | None:
    """Return a figure over those runs of a case that have it, None if none has.

    `u` is the largest uncertainty of the meter.
    """
    runs = runs.having(entry.name)
    values = runs.columns[entry.name].tolist()
    if not values:
        return None
    days = (runs.columns["started_at_ns"] // NS_PER_DAY).tolist()
    shows_scatter = entry.shows_scatter(
        values, take_a_minute=bool(runs.columns["takes_a_minute"].all())
    )
    if entry.is_share:
        evidence = mean_of_device(values, days)
        low, high = (evidence.share_bounds() if shows_scatter else None) or (None, None)
        return CaseFigure(evidence.middle, low, high, len(values), evidence, "points", u)
    # Memory does not vary between sessions.
    differs_by_session = entry.group != "memory"

    def mean(logs: Sequence[float]) -> Evidence:
        evidence = mean_of_device(logs, days)
        if not differs_by_session or evidence.unit != "run":
            return evidence
        session_sd = max(subject.environment.session_sd for subject in runs.own_subjects())
        sessions = {
            session_ns or day
            for session_ns, day in zip(runs.values_of("session_started_at_ns"), days, strict=True)
        }
        return evidence.in_other_sessions(session_sd, len(sessions))

    figure = _figure(values, "ratio", u, mean, differs_by_session=differs_by_session)
    return figure if shows_scatter else msgspec.structs.replace(figure, low=None, high=None)


def figure_of_values(
    runs: Sequence[RunValue], scale: Scale = "ratio", u: float | None = None
) -> CaseFigure:
    """Return a figure from the values of runs or boards.

    If one is 0 it has no ratio, and shows the median without an interval. The interval is that of
    any session.
    """

    def mean(values: Sequence[float]) -> Evidence:
        evidence = mean_of(
            [run._replace(value=value) for run, value in zip(runs, values, strict=True)]
        )
        return (
            evidence
            if scale == "points"
            else evidence.in_other_sessions(
                max(run.session_sd for run in runs), len(sessions_of(runs))
            )
        )

    return _figure([run.value for run in runs], scale, u, mean, differs_by_session=scale == "ratio")


def _figure(
    values: Sequence[float],
    scale: Scale,
    u: float | None,
    mean: Callable[[Sequence[float]], Evidence],
    *,
    differs_by_session: bool,
) -> CaseFigure:
    """Return a figure by its values; `mean` returns the evidence of values on the scale."""
    if scale == "ratio" and min(values) <= 0:
        evidence = Evidence(median(values), None, 0, len(values), "run")
        return CaseFigure(
            median(values), None, None, len(values), evidence, scale, u, has_ratio=False
        )
    evidence = mean(values if scale == "points" else [*map(math.log, values)])
    ends = [evidence.middle, *(evidence.bounds() or ())]
    if scale == "ratio" and ends[-1] > LARGEST_LOG:
        ends = [evidence.middle]
    value, *limits = (on_scale(end, scale) for end in ends)
    if min(values) == max(values):
        # A logarithm and its inverse would leave rounding errors.
        value, limits = values[0], limits if differs_by_session else [values[0]] * len(limits)
    low, high = limits or (None, None)
    return CaseFigure(value, low, high, len(values), evidence, scale, u)


def scaled(runs: Sequence[RunValue], scale: Scale) -> list[RunValue]:
    """Return the values on their scale of comparison; for a ratio all are above 0."""
    return (
        list(runs)
        if scale == "points"
        else [run._replace(value=math.log(run.value)) for run in runs]
    )


def run_value(run: RunFigures, value: float) -> RunValue:
    """Return a value of a run with its device, its day and the round of its session.

    The day is UTC, counted from 1970.
    """
    turn = (run.session_started_at_ns, run.repeat) if run.session_started_at_ns else None
    subject = run.subject
    return RunValue(
        value,
        subject.key.device,
        run.started_at_ns // NS_PER_DAY,
        turn,
        subject.environment.session_sd,
    )
