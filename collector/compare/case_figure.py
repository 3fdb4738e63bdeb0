"""One figure of a case over its runs: its mean with the 95% interval, and what two cases are compared by."""

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from edgemeter.agent.base.decision import Scale, on_scale
from edgemeter.agent.base.evidence import LARGEST_LOG, REACH, Evidence, RunValue, mean_of, sessions_of
from edgemeter.agent.base.nanoseconds import NS_PER_DAY
from edgemeter.agent.contract.figures import Figure
from edgemeter.agent.contract.run_figures import RunFigures


class CaseFigure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A figure of a case: `value` with its 95% bounds, None where its runs are too few, over a number of runs.

    The value is the geometric mean over the units that count (runs, days or devices), of shares and accuracies the mean. `u` is the
    expanded uncertainty (95%) of the meter, which repeating a run does not shrink.
    """

    value: float
    low: float | None
    high: float | None
    runs: int
    evidence: Evidence
    scale: Scale = "ratio"
    u: float | None = None

    @property
    def with_meter(self) -> Evidence:
        """The evidence on the value itself, with the error of the meter."""
        return self.evidence if self.u is None else self.evidence.with_error(self.meter_error)

    @property
    def meter_error(self) -> float:
        """The standard error of the meter, on the scale."""
        return 0.0 if self.u is None or self.value <= 0 else math.log1p(self.u / self.value) / REACH


def figure_of(entry: Figure, valued: Sequence[tuple[RunFigures, float]], u: float | None = None) -> CaseFigure | None:
    """Return a figure over the runs that have it, None where none has; `u` is the largest uncertainty of the meter."""
    if not valued:
        return None
    runs = [run_value(run, value) for run, value in valued]
    shows_scatter = entry.shows_scatter([value for _, value in valued], take_a_minute=all(run.takes_a_minute for run, _ in valued))
    if not entry.is_share:
        figure = figure_of_values(runs, "ratio", u, is_of_process=entry.group == "memory")
        return figure if shows_scatter else msgspec.structs.replace(figure, low=None, high=None)
    evidence = mean_of(runs)
    low, high = (evidence.share_bounds() if shows_scatter else None) or (None, None)
    return CaseFigure(evidence.middle, low, high, len(runs), evidence, "points", u)


def figure_of_values(
    runs: Sequence[RunValue], scale: Scale = "ratio", u: float | None = None, *, is_of_process: bool = False
) -> CaseFigure:
    """Return a figure from the values of its runs; where one is 0 it has no ratio, and shows the median without an interval.

    The interval is that of any session; what a program takes in memory, `is_of_process`, is no matter of the session.
    """
    values = [run.value for run in runs]
    if scale == "ratio" and min(values) <= 0:
        evidence = Evidence(median(values), None, 0, len(runs), "run")
        return CaseFigure(median(values), None, None, len(runs), evidence, scale, u)
    evidence = mean_of(scaled(runs, scale))
    differs_by_session = scale == "ratio" and not is_of_process
    if differs_by_session:
        evidence = evidence.in_other_sessions(max(run.session_sd for run in runs), len(sessions_of(runs)))
    bounds = evidence.bounds()
    ends = [evidence.middle, *(bounds or ())]
    if scale == "ratio" and ends[-1] > LARGEST_LOG:
        ends = [evidence.middle]
    value, *limits = (on_scale(end, scale) for end in ends)
    if min(values) == max(values):
        # A logarithm and back would leave its rounding.
        value, limits = values[0], limits if differs_by_session else [values[0]] * len(limits)
    low, high = limits or (None, None)
    return CaseFigure(value, low, high, len(runs), evidence, scale, u)


def scaled(runs: Sequence[RunValue], scale: Scale) -> list[RunValue]:
    """Return the values on the scale on which they are compared; of a ratio all are above 0."""
    return list(runs) if scale == "points" else [run._replace(value=math.log(run.value)) for run in runs]


def run_value(run: RunFigures, value: float) -> RunValue:
    """Return a figure of a run with its device, its day (UTC, counted from 1970) and the round of its session."""
    turn = (run.session_started_at_ns, run.repeat) if run.session_started_at_ns else None
    subject = run.subject
    return RunValue(value, subject.key.device, run.started_at_ns // NS_PER_DAY, turn, subject.environment.session_sd)
