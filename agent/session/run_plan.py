"""The plan of a session: rounds of runs in balanced order, until each case is known precisely enough or its time is used."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.evidence import CONFIDENCE, FEWEST, Evidence, interval_over_runs
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.figures import ENERGY, LATENCY, THROUGHPUT, TPOT, TTFT, figure
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.session.hopeless import has_failed, is_worthless
from edgemeter.agent.verdict.judge import counted, judged_together

_Item = TypeVar("_Item")
MOST_RUNS = 1000


def in_round(items: Sequence[_Item], number: int) -> Sequence[_Item]:
    """Return the items in the order of a round, from 0: AB BA BA AB ..., so that a drift favours none of them.

    Source: the Thue-Morse sequence; a drift that bends is as balanced as a steady one, and nothing periodic keeps in step with it.
    """
    return items[::-1] if number.bit_count() % 2 else items


@dataclass(frozen=True, slots=True)
class ForeseenRuns:
    """How many more runs a case has after the present one: at least, and at most."""

    case: Case
    at_least: int
    at_most: int


@dataclass(slots=True)
class PlannedCase:
    """The runs of a case that have ended, with the time that each took."""

    case: Case
    outcomes: list[RunRecord | EdgemeterError] = field(default_factory=list)
    lengths_s: list[float] = field(default_factory=list)

    @property
    def is_due(self) -> bool:
        """Whether another run is needed."""
        ended = len(self.outcomes)
        if self.is_over:
            return False
        if self.case.repeats is not None:
            return ended < self.case.repeats
        return ended < FEWEST or (ended < min(self._runs_in_time(), MOST_RUNS) and not is_precise(self._values(), self._ratio))

    @property
    def is_over(self) -> bool:
        """Whether it failed, or further runs would not be worth anything."""
        return has_failed(self.outcomes) or any(map(is_worthless, self.outcomes))

    def further(self, *, is_running: bool) -> ForeseenRuns:
        """Return how many runs come after the present one, if `is_running`, or after the last."""
        ended = len(self.outcomes) + is_running
        if not is_running and not self.is_due:
            return ForeseenRuns(self.case, 0, 0)
        if self.case.repeats is not None:
            at_least = at_most = self.case.repeats
        elif len(self.outcomes) < FEWEST:
            at_least, at_most = FEWEST, max(FEWEST, self._runs_in_time())
        else:
            at_least = at_most = min(runs_needed(self._values(), self._ratio), self._runs_in_time())
        return ForeseenRuns(self.case, max(0, at_least - ended), max(0, at_most - ended))

    @property
    def _ratio(self) -> float:
        return self.case.precision_ratio

    def _values(self) -> list[list[float]]:
        """Return the values of the runs that count, of each figure that has to be precise."""
        runs = counted(judged_together(outcome for outcome in self.outcomes if isinstance(outcome, RunRecord)))
        by_figure = ([value for run in runs if (value := figure(name).value(run)) is not None] for name in precise_figures(runs))
        return [values for values in by_figure if values]

    def _runs_in_time(self) -> int:
        """Return how many runs, those that have ended included, take no more than the time of the case."""
        if not self.lengths_s:
            return FEWEST
        left_s = self.case.time_s - math.fsum(self.lengths_s)
        return len(self.lengths_s) + max(0, int(left_s // max(self.lengths_s[-1], 1e-3)))


def precise_figures(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the names of the figures of a case that have to be precise: its speed, and energy where it is measured.

    The throughput of one call after the other is no other fact than its latency, but as noisy as the mean: a few slow calls move it.
    """
    if any(run.generation for run in runs):
        return TTFT, TPOT, ENERGY
    return THROUGHPUT if any(run.scenario == "offline" for run in runs) else LATENCY, ENERGY


def is_precise(figures: Sequence[Sequence[float]], precision_ratio: float) -> bool:
    """Return whether the interval over runs of each figure is as narrow as ± `precision_ratio`; figures without a value are no matter."""
    intervals = [interval_over_runs(values) for values in figures]
    return all(interval is not None and interval.half_width_ratio <= precision_ratio for interval in intervals)


def runs_needed(figures: Sequence[Sequence[float]], precision_ratio: float) -> int:
    """Return after how many runs all figures will be precise enough, were their spread what it seems."""
    return max((_runs_needed(values, math.log1p(precision_ratio)) for values in figures), default=FEWEST)


def _runs_needed(values: Sequence[float], reach: float) -> int:
    interval = interval_over_runs(values, is_of_session=True)
    if interval is None:
        return MOST_RUNS
    count = len(values)
    deviation = math.log(interval.high / interval.middle) * math.sqrt(count) / student_quantile(CONFIDENCE, count - 1)

    def reaches(runs: int) -> bool:
        evidence = Evidence(0.0, deviation / math.sqrt(runs), runs - 1, runs, "run").in_other_sessions(1)
        return (evidence.bounds() or (0.0, math.inf))[1] <= reach

    return next(filter(reaches, range(count, MOST_RUNS)), MOST_RUNS)


class RunPlan:
    """Names the runs one after the other; `note` takes the outcome of each before the next is asked for.

    A round has one run of each case that needs another, and sets the board to each operating point once. Cases that are compared stay in
    the rounds until all are done, so that each run has its pair. `cases` are in the given order; two of them may be the same.
    """

    def __init__(self, cases: Sequence[Case], *, are_compared: bool = False) -> None:
        points = list(dict.fromkeys(case.operating_point for case in cases))
        self.cases = [PlannedCase(case) for case in cases]
        self._by_point = sorted(self.cases, key=lambda of_case: points.index(of_case.case.operating_point))
        self._are_compared = are_compared
        self._current: PlannedCase | None = None
        self._waiting: list[PlannedCase] = []

    def __iter__(self) -> Iterator[tuple[Case, int]]:
        """Yield the case and the number, from 0, of each run."""
        for number in itertools.count():
            due = [of_case for of_case in self._by_point if of_case.is_due]
            if due and self._are_compared:
                due = [of_case for of_case in self._by_point if not of_case.is_over]
            self._waiting = [*in_round(due, number)]
            if not self._waiting:
                return
            while self._waiting:
                self._current = self._waiting.pop(0)
                yield self._current.case, number

    def note(self, outcome: RunRecord | EdgemeterError, length_s: float) -> None:
        """Take the outcome of the run that was named last."""
        if self._current is not None:
            self._current.outcomes.append(outcome)
            self._current.lengths_s.append(length_s)
            self._current = None

    def coming(self) -> list[ForeseenRuns]:
        """Return how many runs each case has after the present one."""
        coming = [of_case.further(is_running=of_case is self._current) for of_case in self.cases]
        if not self._are_compared:
            return coming
        ended = [len(of_case.outcomes) + (of_case is self._current) for of_case in self.cases]
        rounds = [max(runs + getattr(of_case, end) for runs, of_case in zip(ended, coming, strict=True)) for end in ("at_least", "at_most")]
        return [
            ForeseenRuns(of_case.case, 0, 0) if of_case.is_over else ForeseenRuns(of_case.case, rounds[0] - runs, rounds[1] - runs)
            for runs, of_case in zip(ended, self.cases, strict=True)
        ]
