"""Cases measured in turn on this machine (AB BA BA AB ...), each run in a fresh process, until the differences are clear or the end."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from edgemeter.agent.base.errors import EdgemeterError, MeasurementError
from edgemeter.agent.base.figures import count
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.engine import job
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.session import session, turn_figures
from edgemeter.agent.session.hopeless import by_reason, refusals
from edgemeter.agent.session.pairs import expected_end, is_settled
from edgemeter.agent.session.run_plan import ForeseenRuns, in_round
from edgemeter.agent.session.turn_comparison import SCORING, Matters, MeasuredInTurn, Tally, Turn, TurnRun, TurnsTaken, compared, names_of

if TYPE_CHECKING:
    from edgemeter.agent.quality.perplexity import Perplexity

_Item = TypeVar("_Item")
ROUNDS = 10  # Most rounds, where nobody says how many.


@dataclass(frozen=True, slots=True)
class Bench:
    """The equipment for measuring runs; `keep` stores each record."""

    identity: session.DeviceIdentity
    sensors: Mapping[str, PowerSensor]
    why_no_power: str
    on_event: session.OnEvent
    keep: Callable[[RunRecord], RunRecord] = lambda record: record


class _Turns:
    """The plan of runs in turn: rounds until all results are clear, without the sides that failed; their runs come into the tally."""

    def __init__(self, tally: Tally, rounds: int, matters_ratio: float) -> None:
        self._tally, self._rounds, self._matters_ratio = tally, rounds, matters_ratio
        self._current = (0, 0)

    def __iter__(self) -> Iterator[tuple[Case, int]]:
        order = order_of(range(len(self._tally.cases)), self._rounds, with_scoring=self._tally.has_scoring)
        for number, turns in groupby(order, key=itemgetter(1)):
            if self._is_clear():
                return
            for side, _ in turns:
                if side not in self._tally.refused and not self._tally.has_failed(side):
                    self._current = side, number
                    yield self._tally.cases[side], number

    def note(self, outcome: RunRecord | EdgemeterError, _: float) -> None:
        """Take the outcome of the run that was named last."""
        self._tally.runs.append(TurnRun(*self._current, outcome))

    def coming(self) -> list[ForeseenRuns]:
        """Return how many runs each side has after the present one."""
        tally, foreseen = self._tally, []
        series = [ratios for ratios in self._log_ratios() if ratios] or [[]]
        expected = max(expected_end(ratios, self._rounds, self._matters_ratio) for ratios in series) + tally.has_scoring
        for side, case in enumerate(tally.cases):
            ended = sum(run.side == side for run in tally.runs) + (side == self._current[0])
            at_most = 0 if side in tally.refused or tally.has_failed(side) else max(0, self._rounds + tally.has_scoring - ended)
            foreseen.append(ForeseenRuns(case, min(at_most, max(0, expected - ended)), at_most))
        return foreseen

    def _log_ratios(self) -> list[list[float]]:
        tally = self._tally
        return [tally.log_ratios(side, figure) for side in range(1, len(tally.cases)) for figure in tally.figures]

    def _is_clear(self) -> bool:
        series = self._log_ratios()
        return any(series) and all(is_settled(ratios, self._rounds, self._matters_ratio) for ratios in series if ratios)


def order_of(items: Sequence[_Item], rounds: int, *, with_scoring: bool = False) -> list[tuple[_Item, int]]:
    """Return the runs of all rounds in balanced order; before them each once to be scored."""
    turns = [(item, number) for number in range(rounds) for item in in_round(items, number)]
    return [*((item, SCORING) for item in items), *((item, number + 1) for item, number in turns)] if with_scoring else turns


def turns_of(cases: Sequence[Case], rounds: int, records: Iterable[RunRecord]) -> TurnsTaken:
    """Return the turns of a measurement that was cut off on another board, from the places of its records in the order.

    Raises:
        MeasurementError: they do not show which side each is: one was left out, or has no run.
    """
    has_scoring = any(case.data is not None for case in cases)
    order = order_of(range(len(cases)), rounds, with_scoring=has_scoring)
    turn_at = dict(enumerate(order, 1))
    turns, case_of = list[Turn](), dict[int, str]()
    for record in sorted(records, key=lambda record: record.order_place or 0):
        side, number = turn_at.get(record.order_place or 0, (0, None))
        if number != record.repeat or case_of.setdefault(side, record.case) != record.case:
            raise MeasurementError(f"run {record.id} is out of turn")
        turns.append(Turn(side=side, round=number, run=record.id))
    # Two sides may be one case, which is compared with itself.
    if len(case_of) < len(cases) or (len(cases) > 2 and len(set(case_of.values())) < len(cases)):
        raise MeasurementError("not every side has a run")
    return TurnsTaken(turns=tuple(turns), most_runs=len(order))


def measure_in_turn(
    cases: Sequence[Case],
    rounds: int,
    bench: Bench,
    matters: Matters = Matters(),  # noqa: B008 - frozen
    text: str | None = None,
    refused: Mapping[int, EdgemeterError] | None = None,
) -> MeasuredInTurn:
    """Measure each case up to `rounds` times, fewer where all results are clear earlier, and compare each with the first.

    Where there are images, accuracy is scored in one more run of each, before the others: between the runs of a round it would part them.
    So is the perplexity of language models on `text`, without a run.

    `refused` is the outcome of `session.check`. A side whose first runs fail is measured no more. Ctrl-C ends it early, and
    what is measured is compared.

    Raises:
        EdgemeterError: no two runs can be compared, or language models are mixed with others.
        KeyboardInterrupt: it was pressed before there were two.
    """
    figures = turn_figures.turn_figures(cases)
    # One case may be measured against itself: each side is an object of its own.
    cases = [msgspec.structs.replace(case) for case in cases]
    has_scoring = any(case.data is not None for case in cases)
    suite = Suite("/".join(names_of(cases)).lower(), tuple(cases))
    refused = refusals(suite) if refused is None else refused
    check_sides(suite, refused)
    texts: list[Perplexity | str] = []
    if cases[0].output_tokens is not None:
        if text is not None:
            bench.on_event(job.Phase(name="perplexity"))
        texts = turn_figures.score_texts(cases, text, refused)
    most_runs = (len(cases) - len(refused)) * (rounds + has_scoring)
    tally = Tally(cases, has_scoring, figures, texts, most_runs, refused)
    # Those that are refused were named with the others.
    runnable = replace(suite, cases=tuple(case for side, case in enumerate(cases) if side not in refused))
    turns = _Turns(tally, rounds, matters.ratio)
    is_interrupted = False
    try:
        for _ in session.measure(runnable, bench.identity, bench.sensors, bench.why_no_power, bench.on_event, bench.keep, turns):
            pass
    except KeyboardInterrupt as interruption:
        if not any(tally.pairs(side) for side in range(1, len(cases))):
            ended = count(sum(isinstance(run.outcome, RunRecord) for run in tally.runs), "run")
            raise KeyboardInterrupt(f"interrupted before two could be compared: {ended} ended before") from interruption
        is_interrupted = True
    return msgspec.structs.replace(compared(tally, matters), is_interrupted=is_interrupted)


def check_sides(suite: Suite, refused: Mapping[int, EdgemeterError]) -> None:
    """Raise the first reason why cases are refused, where that leaves no two to compare with the first."""
    if 0 in refused or 0 < len(refused) == len(suite.cases) - 1:
        raise by_reason(suite, refused)[0]
