"""The plan of a session, which has rounds of runs in balanced order.

They go on until each case is precise enough or its time is used.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from edgemeter.agent.base.decision import rounds_to_decide
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.evidence import (
    CONFIDENCE,
    REACH,
    SESSION_SD,
    Evidence,
    RunValue,
    difference,
    interval_over_runs,
)
from edgemeter.agent.base.statistics import FEWEST, student_quantile
from edgemeter.agent.contract.case_settings import PRECISION_RATIO
from edgemeter.agent.contract.figures import ENERGY, LATENCY, THROUGHPUT, TPOT, TTFT, figure
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.verdict import output_rules
from edgemeter.agent.verdict.judge import counted
from edgemeter.agent.verdict.siblings import judged_together

_Item = TypeVar("_Item")
MOST_RUNS = 1000
# A case is given up after this many runs without a record.
FAILURES = 2
_WRONG_OUTPUTS = {rule.name for rule in output_rules.RULES if rule.effect == "invalid"}
# The start of a process and the readings around it: less on a fast machine, more on a small board.
START_S = 1.0


def in_round(items: Sequence[_Item], number: int) -> Sequence[_Item]:
    """Return the items in the order of round `number` (from 0), which is AB BA BA AB and so on.

    So drift favours none of them.

    Source: the Thue-Morse sequence, which also balances curved drift, and has no period that
    something else could have.
    """
    return items[::-1] if number.bit_count() % 2 else items


def planned_s(case: Case) -> float:
    """Return the duration of a run by its settings.

    It is without the parts that depend on model, data and sensor.
    """
    return START_S + case.warm_up_seconds + case.seconds


def longest_s(case: Case) -> float:
    """Return the longest duration of all runs of a case by its settings."""
    return (
        planned_s(case) * case.repeats
        if case.repeats
        else max(case.time_s, FEWEST * planned_s(case))
    )


def has_failed(outcomes: Sequence[object]) -> bool:
    """Return whether a case is given up.

    It is if one outcome is a permanent error, or all of two runs or more failed.
    """
    if any(isinstance(outcome, ConfigError | UnavailableError) for outcome in outcomes):
        return True
    return len(outcomes) >= FAILURES and all(
        isinstance(outcome, EdgemeterError) for outcome in outcomes
    )


def is_worthless(outcome: object) -> bool:
    """Return whether a run is invalid because of its outputs.

    Repeats, which are not scored, would not show that.
    """
    return isinstance(outcome, RunRecord) and not _WRONG_OUTPUTS.isdisjoint(outcome.verdict.rules)


@dataclass(slots=True)
class PlannedCase:
    """The runs of a case that have ended, with their durations."""

    case: Case
    outcomes: list[RunRecord | EdgemeterError] = field(default_factory=list)
    lengths_s: list[float] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the case failed, or further runs would be useless."""
        return has_failed(self.outcomes) or any(map(is_worthless, self.outcomes))

    @property
    def most_runs(self) -> int:
        """The most runs: its repeats, or three, or as many as fit into its time."""
        if self.case.repeats is not None:
            return self.case.repeats
        if not self.lengths_s:
            return FEWEST
        left_s = self.case.time_s - math.fsum(self.lengths_s)
        return max(
            FEWEST,
            min(MOST_RUNS, len(self.lengths_s) + int(left_s // max(self.lengths_s[-1], 1e-3))),
        )

    @property
    def expected_runs(self) -> int:
        """The number of runs after which its figures should be precise enough."""
        if self.case.repeats is not None:
            return self.case.repeats
        ended = len(self.outcomes)
        return FEWEST if ended < FEWEST else min(ended + self.runs_until_precise(), self.most_runs)

    def runs_until_precise(self) -> int:
        """Return the number of further runs that should make its figures precise.

        They should also give three ok runs if any is ok.
        """
        runs = self._judged()
        figures = [[value for _, value in values] for values in self._values().values()]
        session_sd = max((run.environment.session_sd for run in runs), default=SESSION_SD)
        further = further_runs(figures, self.case.precision_ratio or PRECISION_RATIO, session_sd)
        ok = sum(run.verdict.state == "ok" for run in runs)
        return max(
            math.ceil(further * len(runs) / max(1, len(counted(runs)))), FEWEST - ok if ok else 0
        )

    def _judged(self) -> list[RunRecord]:
        return judged_together(
            outcome for outcome in self.outcomes if isinstance(outcome, RunRecord)
        )

    def logarithms(self) -> dict[str, list[RunValue]]:
        """Return the logarithms of the compared figures, each with its round."""
        return {
            name: [
                RunValue(math.log(value), run.device, 0, (0, run.repeat)) for run, value in values
            ]
            for name, values in self._values().items()
            if min(value for _, value in values) > 0
        }

    def _values(self) -> dict[str, list[tuple[RunRecord, float]]]:
        """Return the values of the figures to know, in the runs that count."""
        runs = counted(self._judged())
        by_figure = {
            name: [(run, value) for run in runs if (value := figure(name).value(run)) is not None]
            for name in figures_to_know(runs)
        }
        return {name: values for name, values in by_figure.items() if values}


def figures_to_know(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the names of the figures that decide the number of runs.

    They are speed, and energy if measured. The throughput of one call after the other adds nothing
    to the median latency, but a few slow calls move it.
    """
    if any(run.generation for run in runs):
        return TTFT, TPOT, ENERGY
    return THROUGHPUT if any(run.scenario == "offline" for run in runs) else LATENCY, ENERGY


def precision_reach(precision_ratio: float, session_sd: float) -> float:
    """Return the largest half width of an interval, as the logarithm of a ratio.

    More runs do not reduce the difference between sessions, so the part of the runs alone may be
    half of the precision at most.
    """
    reach, of_sessions = math.log1p(precision_ratio), REACH * session_sd
    return max(reach, math.hypot(reach / 2, of_sessions))


def further_runs(
    figures: Sequence[Sequence[float]], precision_ratio: float, session_sd: float
) -> int:
    """Return the number of further runs that make the interval of each figure precise.

    That is ± `precision_ratio`, if their spread stays.
    """
    reach = precision_reach(precision_ratio, session_sd)
    return max(
        (_runs_needed(values, reach, session_sd) - len(values) for values in figures), default=0
    )


def _runs_needed(values: Sequence[float], reach: float, session_sd: float) -> int:
    interval = interval_over_runs(values, 0.0)
    if interval is None:
        return MOST_RUNS
    count = len(values)
    deviation = (
        math.log(interval.high / interval.middle)
        * math.sqrt(count)
        / student_quantile(CONFIDENCE, count - 1)
    )

    def reaches(runs: int) -> bool:
        evidence = Evidence(
            0.0, deviation / math.sqrt(runs), runs - 1, runs, "run"
        ).in_other_sessions(session_sd)
        return (evidence.bounds() or (0.0, math.inf))[1] <= reach

    return next(filter(reaches, range(count, MOST_RUNS)), MOST_RUNS)


class RunPlan:
    """Yields the runs one by one; `note` takes the outcome of each before the next.

    A round has one run of each case that needs another, and sets the board to each operating point
    once. With `matters_ratio`, the smallest ratio that matters, the cases are compared: all are in
    each round, so that each run has its pair, until their differences from the first are decided.
    Two of the cases may be the same.
    """

    def __init__(self, cases: Sequence[Case], matters_ratio: float | None = None) -> None:
        points = list(dict.fromkeys(case.operating_point for case in cases))
        self.cases = [PlannedCase(case) for case in cases]
        self._by_point = sorted(
            self.cases, key=lambda of_case: points.index(of_case.case.operating_point)
        )
        self._matters_ratio = matters_ratio
        self._current: PlannedCase | None = None

    def __iter__(self) -> Iterator[tuple[Case, int]]:
        """Yield the case and the number, from 0, of each run."""
        for number in itertools.count():
            due = [
                of_case for of_case, expected in self._runs() if expected > len(of_case.outcomes)
            ]
            if not due:
                return
            for of_case in in_round(due, number):
                self._current = of_case
                yield of_case.case, number

    def note(self, outcome: RunRecord | EdgemeterError, length_s: float) -> None:
        """Take the outcome of the last run."""
        if self._current is not None:
            self._current.outcomes.append(outcome)
            self._current.lengths_s.append(length_s)
            self._current = None

    def expected(self) -> tuple[int, float]:
        """Return the expected number of all runs of the session, and their duration (s).

        The duration is by their settings.
        """
        runs = {
            id(of_case): max(expected, len(of_case.outcomes) + (of_case is self._current))
            for of_case, expected in self._runs()
        }
        return sum(runs.values()), math.fsum(
            runs[id(of_case)] * planned_s(of_case.case) for of_case in self.cases
        )

    def _runs(self) -> list[tuple[PlannedCase, int]]:
        """Return the expected number of runs of each case."""
        compared = [of_case for of_case in self.cases if not of_case.is_over]
        rounds = (
            None
            if self._matters_ratio is None or not compared
            else self._rounds(compared, self._matters_ratio)
        )
        return [
            (of_case, len(of_case.outcomes) if of_case.is_over else rounds or of_case.expected_runs)
            for of_case in self._by_point
        ]

    def _rounds(self, compared: Sequence[PlannedCase], matters_ratio: float) -> int:
        """Return the expected number of rounds of cases that are compared."""
        if repeats := [
            of_case.case.repeats for of_case in compared if of_case.case.repeats is not None
        ]:
            return max(repeats)
        ended = max(len(of_case.outcomes) for of_case in compared)
        if ended < FEWEST:
            return FEWEST
        # A single case is compared with earlier runs, so it only has to be precise.
        to_be_precise = [
            of_case
            for of_case in compared
            if of_case.case.precision_ratio is not None or len(compared) == 1
        ]
        further = [of_case.runs_until_precise() for of_case in to_be_precise]
        first, *of_others = [of_case.logarithms() for of_case in compared]
        for other in of_others:
            evidences = [
                difference(values, first[name]) for name, values in other.items() if name in first
            ]
            evidences = [
                replace(evidence, counted_ratio=evidence.units / ended) for evidence in evidences
            ]
            further.append(rounds_to_decide(evidences, matters_ratio))
        return min(*(of_case.most_runs for of_case in compared), ended + max(further))
