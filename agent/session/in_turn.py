"""Cases measured in turn on this machine (AB BA BA AB ...), each run in a fresh process, until the differences are clear or the end."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

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
from edgemeter.agent.session.turn_comparison import SCORING, Matters, MeasuredInTurn, Tally, Turn, TurnRun, TurnsTaken, compared, names_of

if TYPE_CHECKING:
    from edgemeter.agent.quality.perplexity import Perplexity

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Bench:
    """The equipment for measuring runs; `keep` stores each record."""

    identity: session.DeviceIdentity
    sensors: Mapping[str, PowerSensor]
    why_no_power: str
    on_event: session.OnEvent
    keep: Callable[[RunRecord], RunRecord] = lambda record: record


class _Turns(Sequence[tuple[Case, int]]):
    """The runs in their order, without those of cases that are dropped meanwhile; `current` is the one that is measured."""

    def __init__(self, turns: Sequence[tuple[Case, int]], is_dropped: Callable[[Case], bool]) -> None:
        self._turns, self._is_dropped = turns, is_dropped
        self.current = turns[0]

    def __len__(self) -> int:
        return len(self._turns)

    def __getitem__(self, index: Any) -> Any:
        return self._turns[index]

    def __iter__(self) -> Iterator[tuple[Case, int]]:
        for turn in self._turns:
            if not self._is_dropped(turn[0]):
                self.current = turn
                yield turn


def order_of(cases: Sequence[_Item], rounds: int, *, with_scoring: bool) -> list[tuple[_Item, int]]:
    """Return the runs in the order AB BA BA AB ..., so that a drift favours neither; before them each once to be scored.

    Source: the Thue-Morse sequence; a drift that bends is as balanced as a steady one, and nothing periodic keeps in step with it.
    """
    turns = [(case, number) for number in range(rounds) for case in (cases[::-1] if number.bit_count() % 2 else cases)]
    return [*((case, SCORING) for case in cases), *((case, number + 1) for case, number in turns)] if with_scoring else turns


def turns_of(cases: Sequence[Case], rounds: int, records: Iterable[RunRecord]) -> TurnsTaken:
    """Return the turns of a measurement that was cut off on another board, from the places of its records in the order.

    Raises:
        MeasurementError: they do not show which side each is: one was left out, or has no run.
    """
    has_scoring = any(case.data is not None and case.accuracy != "never" for case in cases)
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
    # Accuracy and agreement are for the round that scores.
    cases = [
        msgspec.structs.replace(
            case,
            accuracy="never" if case.data is None or case.accuracy == "never" else "first",
            agreement="never" if case.data is None or case.agreement == "never" else "first",
        )
        for case in cases
    ]
    has_scoring = any(case.accuracy != "never" for case in cases)
    order = order_of(cases, rounds, with_scoring=has_scoring)
    suite = Suite("/".join(names_of(cases)).lower(), tuple(cases))
    sides = {id(case): side for side, case in enumerate(cases)}
    refused = refusals(suite) if refused is None else refused
    check_sides(suite, refused)
    texts: list[Perplexity | str] = []
    if cases[0].output_tokens is not None:
        if text is not None:
            bench.on_event(job.Phase(name="perplexity"))
        texts = turn_figures.score_texts(cases, text, refused)
    order = [(case, number) for case, number in order if sides[id(case)] not in refused]
    tally = Tally(cases, has_scoring, figures, texts, len(order), refused)

    def on_event(event: session.RunBegins | job.Event | session.RunEnds) -> None:
        if isinstance(event, session.RunBegins):
            expected = _expected_runs(tally, rounds, matters.ratio)
            event = replace(event, coming=event.coming[: max(0, expected - event.place)])
        bench.on_event(event)

    # Those that are refused were named with the others.
    runnable = replace(suite, cases=tuple(case for side, case in enumerate(cases) if side not in refused))
    turns = _Turns(order, lambda case: tally.has_failed(sides[id(case)]))
    runs = session.measure(runnable, bench.identity, bench.sensors, bench.why_no_power, on_event, bench.keep, order=turns)
    is_interrupted = False
    try:
        for outcome in runs:
            case, number = turns.current
            tally.runs.append(TurnRun(sides[id(case)], number, outcome))
            if not tally.is_scoring(number) and tally.is_round(number) and _is_clear(tally, rounds, matters.ratio):
                break
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


def _is_clear(tally: Tally, rounds: int, matters_ratio: float) -> bool:
    series = [tally.log_ratios(side, figure) for side in range(1, len(tally.cases)) for figure in tally.figures]
    return any(series) and all(is_settled(ratios, rounds, matters_ratio) for ratios in series if ratios)


def _expected_runs(tally: Tally, rounds: int, matters_ratio: float) -> int:
    """Return how many runs there will probably be, those that score included."""
    series = [tally.log_ratios(side, figure) for side in range(1, len(tally.cases)) for figure in tally.figures]
    ends = [expected_end(ratios, rounds, matters_ratio) for ratios in series if ratios] or [expected_end([], rounds, matters_ratio)]
    return (max(ends) + tally.has_scoring) * len(tally.cases)
