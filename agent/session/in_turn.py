"""Cases measured in turn on this machine (AB BA BA AB ...), each run in a fresh process, until the differences are clear or the end."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from string import ascii_uppercase
from typing import Literal

import msgspec

from edgemeter.agent.base import run_statistics
from edgemeter.agent.base.accuracy_bounds import BoundedFigure, difference_bounds
from edgemeter.agent.base.decision import Difference, decide, decide_accuracy, difference, sentence
from edgemeter.agent.base.errors import EdgemeterError, MeasurementError
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.run_statistics import MATTERS_ACCURACY, MATTERS_RATIO
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.power import PowerSensor
from edgemeter.agent.session import session
from edgemeter.agent.session.pairs import PairJudgement, is_settled, judge_pairs

# The round that scores accuracy; its latency does not count, because scoring parts its runs.
SCORING = 0


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of those compared: the p50 of its runs with their median and its 95% interval (null below three runs), and the other figures.

    `gross_mj` is the median of the runs; `accuracy_value` (0..1) and `peak_mb` are those of the run that was scored, else of the newest.
    """

    name: str
    label: str
    p50_ms: tuple[float, ...]
    median_ms: float | None
    low_ms: float | None
    high_ms: float | None
    gross_mj: float | None
    energy_reason: str | None
    accuracy_metric: str | None
    accuracy_value: float | None
    accuracy_reason: str | None
    peak_mb: float | None


class PairTests(msgspec.Struct, frozen=True, kw_only=True):
    """Unpaired tests on log p50: where they disagree with the judgement, the machine drifted."""

    welch_p: float | None
    mann_whitney_p: float | None
    hedges_g: float | None


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """One side against the first: what follows figure by figure, and in one sentence; `energy` is null where it was not measured."""

    name: str
    latency: PairJudgement
    energy: PairJudgement | None
    differences: tuple[Difference, ...]
    tests: PairTests
    sentence: str


class MeasuredInTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The result; `left_out` are the runs that do not count and why, `doubts` how many runs are suspect by which rule."""

    sides: tuple[Side, ...]
    contrasts: tuple[Contrast, ...]
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True, slots=True)
class Matters:
    """The smallest differences that are a reason to choose: of latency and energy a ratio, of accuracy (0..1) a difference."""

    ratio: float = MATTERS_RATIO
    accuracy: float = MATTERS_ACCURACY


@dataclass(frozen=True, slots=True)
class Bench:
    """The equipment for measuring runs; `keep` stores each record."""

    identity: session.DeviceIdentity
    sensors: Mapping[str, PowerSensor]
    why_no_power: str
    on_event: session.OnEvent
    keep: Callable[[RunRecord], RunRecord] = lambda record: record


@dataclass(frozen=True, slots=True)
class _Run:
    side: int
    round: int
    outcome: RunRecord | EdgemeterError

    @property
    def is_sound(self) -> bool:
        return isinstance(self.outcome, RunRecord) and self.outcome.verdict.state != "invalid" and self.outcome.latency.p50_ms is not None

    @property
    def why(self) -> str:
        return str(self.outcome) if isinstance(self.outcome, EdgemeterError) else "; ".join(self.outcome.verdict.reasons) or "it has no p50"


@dataclass(frozen=True, slots=True)
class _Tally:
    """The runs so far of `cases`, which are called A, B, C, ..."""

    cases: Sequence[Case]
    has_scoring: bool
    runs: list[_Run] = field(default_factory=list)

    def pairs(self, side: int) -> list[tuple[RunRecord, RunRecord]]:
        """Return the runs of the first case and of `side` in every round in which both are sound."""
        sound = {(run.round, run.side): run.outcome for run in self.runs if run.is_sound and not self.is_scoring(run.round)}
        rounds = dict.fromkeys(run.round for run in self.runs)
        both = [(sound.get((number, 0)), sound.get((number, side))) for number in rounds]
        return [(a, b) for a, b in both if isinstance(a, RunRecord) and isinstance(b, RunRecord)]

    def is_scoring(self, number: int) -> bool:
        """Return whether this round is the one that scores accuracy, if there is one."""
        return self.has_scoring and number == SCORING

    def scored(self, side: int) -> RunRecord | EdgemeterError | None:
        """Return what came of the run that was scored, None where none was to be."""
        return next((run.outcome for run in self.runs if self.is_scoring(run.round) and run.side == side), None)


def order_of(cases: Sequence[Case], rounds: int, *, with_scoring: bool) -> list[tuple[Case, int]]:
    """Return the runs in the order AB BA BA AB ..., so that a drift favours neither; before them each once to be scored.

    Source: the Thue-Morse sequence; a drift that bends is as balanced as a steady one, and nothing periodic keeps in step with it.
    """
    turns = [(case, number) for number in range(rounds) for case in (cases[::-1] if number.bit_count() % 2 else cases)]
    return [*((case, SCORING) for case in cases), *((case, number + 1) for case, number in turns)] if with_scoring else turns


def measure_in_turn(cases: Sequence[Case], rounds: int, bench: Bench, matters: Matters = Matters()) -> MeasuredInTurn:
    """Measure each case up to `rounds` times, fewer where all results are clear earlier, and compare each with the first.

    Where there are images, accuracy is scored in one more run of each, before the others: between the runs of a round it would part them.

    Raises:
        EdgemeterError: no two runs can be compared.
    """
    # Accuracy and agreement are for the round that scores.
    cases = [
        msgspec.structs.replace(
            case,
            accuracy="never" if case.images is None or case.accuracy == "never" else "first",
            agreement="never" if case.images is None or case.agreement == "never" else "first",
        )
        for case in cases
    ]
    has_scoring = any(case.accuracy != "never" for case in cases)
    order = order_of(cases, rounds, with_scoring=has_scoring)
    suite = Suite("/".join(names_of(cases)).lower(), tuple(cases))
    measured = session.measure(suite, bench.identity, bench.sensors, bench.why_no_power, bench.on_event, bench.keep, order=order)
    sides = {id(case): side for side, case in enumerate(cases)}
    tally = _Tally(cases, has_scoring)
    for (case, number), outcome in zip(order, measured, strict=False):
        tally.runs.append(_Run(sides[id(case)], number, outcome))
        is_round = sum(run.round == number for run in tally.runs) == len(cases)
        if not tally.is_scoring(number) and is_round and _is_clear(tally, rounds, matters.ratio):
            break
    return _compared(tally, matters)


def names_of(cases: Sequence[Case]) -> list[str]:
    """Return what the cases are called: A, B, C, ..."""
    return list(ascii_uppercase[: len(cases)])


def _is_clear(tally: _Tally, rounds: int, matters_ratio: float) -> bool:
    """Return whether every latency, and every energy that is measured, is settled."""
    series = [_log_ratios(tally.pairs(side), figure) for side in range(1, len(tally.cases)) for figure in (_p50_ms, _gross_mj)]
    return all(is_settled(ratios, rounds, matters_ratio) for ratios in series if ratios)


def _p50_ms(run: RunRecord) -> float | None:
    return run.latency.p50_ms


def _gross_mj(run: RunRecord) -> float | None:
    """Return the energy where it was measured: an estimate or a model of it decides nothing."""
    return run.energy.gross_mj if run.energy is not None and energy_provenance(run) in ("measured", "replayed") else None


def _log_ratios(pairs: Sequence[tuple[RunRecord, RunRecord]], figure: Callable[[RunRecord], float | None]) -> list[float]:
    both = [(figure(a), figure(b)) for a, b in pairs]
    return [math.log(b / a) for a, b in both if a and b]


def _compared(tally: _Tally, matters: Matters) -> MeasuredInTurn:
    names = names_of(tally.cases)
    unsound = [run for run in tally.runs if not run.is_sound]
    titles = ["the run to be scored" if tally.is_scoring(run.round) else f"pair {run.round + (not tally.has_scoring)}" for run in unsound]
    left_out = tuple(f"{title}, {names[run.side]}: {run.why}" for title, run in zip(titles, unsound, strict=True))
    other_sides = range(1, len(tally.cases))
    if not any(tally.pairs(side) for side in other_sides):
        raise MeasurementError(f"no pair of runs can be compared: {'; '.join(dict.fromkeys(left_out))}")
    sound = [run.outcome for run in tally.runs if run.is_sound and isinstance(run.outcome, RunRecord)]
    sides = tuple(_side(tally, side, names[side]) for side in range(len(tally.cases)))
    return MeasuredInTurn(
        sides=sides,
        contrasts=tuple(_contrast(tally, sides, side, matters) for side in other_sides if tally.pairs(side)),
        left_out=left_out,
        doubts=_doubts(sound),
        runs=tuple(run.outcome for run in tally.runs if isinstance(run.outcome, RunRecord)),
    )


def _side(tally: _Tally, side: int, name: str) -> Side:
    runs = [run.outcome for run in tally.runs if run.side == side and run.is_sound and not tally.is_scoring(run.round)]
    records = [run for run in runs if isinstance(run, RunRecord)]
    p50_ms = tuple(value for run in records if (value := _p50_ms(run)) is not None)
    gross_mj = [value for run in records if (value := _gross_mj(run)) is not None]
    interval = run_statistics.median_interval(p50_ms)
    scored = tally.scored(side)
    newest = scored if isinstance(scored, RunRecord) else records[-1] if records else None
    accuracy = newest.accuracy if newest else None
    energy_reason = accuracy_reason = None
    if records and not gross_mj:
        run = records[-1]
        origin = energy_provenance(run) or "of unknown origin"
        energy_reason = (run.energy_reason or "not measured") if run.energy is None else f"it is {origin}, not measured"
    if accuracy is None:
        accuracy_reason = (
            str(scored) if isinstance(scored, EdgemeterError) else (newest.accuracy_reason if newest else None) or "not scored"
        )
    return Side(
        name=name,
        label=tally.cases[side].label,
        p50_ms=p50_ms,
        median_ms=median(p50_ms) if p50_ms else None,
        low_ms=interval.low if interval else None,
        high_ms=interval.high if interval else None,
        gross_mj=median(gross_mj) if gross_mj else None,
        energy_reason=energy_reason,
        accuracy_metric=accuracy.metric if accuracy else None,
        accuracy_value=accuracy.value if accuracy else None,
        accuracy_reason=accuracy_reason,
        peak_mb=newest.memory.peak_mb if newest else None,
    )


def _contrast(tally: _Tally, sides: Sequence[Side], side: int, matters: Matters) -> Contrast:
    pairs, first, contender = tally.pairs(side), sides[0], sides[side]
    latency = judge_pairs(_log_ratios(pairs, _p50_ms), matters.ratio)
    energies = _log_ratios(pairs, _gross_mj)
    energy = judge_pairs(energies, matters.ratio) if energies else None
    differences = (
        _of_pairs("latency", "ms", latency, (first.median_ms, contender.median_ms)),
        _of_accuracy(tally, sides, side, matters.accuracy),
        _of_energy(energy, first, contender, matters.ratio),
    )
    logs = [[math.log(value) for run in runs if (value := _p50_ms(run))] for runs in zip(*pairs, strict=True)]
    return Contrast(
        name=contender.name,
        latency=latency,
        energy=energy,
        differences=differences,
        tests=PairTests(
            welch_p=run_statistics.welch_p(*logs),
            mann_whitney_p=run_statistics.mann_whitney_p(*logs),
            hedges_g=run_statistics.hedges_g(*logs),
        ),
        sentence=sentence(contender.name, first.name, differences, _why_doubt(tally, sides, side)),
    )


def _of_pairs(
    figure: Literal["latency", "energy"], unit: str, judged: PairJudgement, values: tuple[float | None, float | None]
) -> Difference:
    notes = []
    if judged.state == "not settled":
        number = f"about {judged.more_pairs} more" if judged.more_pairs else "not even a thousand"
        notes.append(f"{number} pairs would settle it")
    elif judged.state == "not judged":
        notes.append(f"{judged.pairs} pair shows no spread: use --runs 10")
    if judged.are_taken_as_independent:
        notes.append("pairs taken as independent")
    return Difference(
        figure=figure,
        unit=unit,
        state=judged.state,
        matters=judged.matters_ratio,
        a=values[0],
        b=values[1],
        change=judged.ratio,
        low=judged.low,
        high=judged.high,
        note="; ".join(notes),
    )


def _of_energy(judged: PairJudgement | None, first: Side, contender: Side, matters_ratio: float) -> Difference:
    values = first.gross_mj, contender.gross_mj
    if judged is None:
        reason = first.energy_reason or contender.energy_reason or "no round has it on both sides"
        return difference("energy", "mJ", decide(None, None, matters_ratio, reason=reason), values)
    return _of_pairs("energy", "mJ", judged, values)


def _of_accuracy(tally: _Tally, sides: Sequence[Side], side: int, matters: float) -> Difference:
    first, other = (run.accuracy if isinstance(run, RunRecord) else None for run in (tally.scored(0), tally.scored(side)))
    if first is None or other is None:
        reason = sides[0].accuracy_reason or sides[side].accuracy_reason or "not scored"
    else:
        kinds = [(accuracy.metric, accuracy.images, accuracy.dataset_sha256) for accuracy in (first, other)]
        if kinds[0] == kinds[1]:
            bounds = difference_bounds(*map(_bounded, (other, first)))
            decision = decide_accuracy(other.value - first.value, bounds, matters)
            return difference("accuracy", metric_name(first.metric), decision, (first.value, other.value), first.better)
        mismatch = " against ".join(f"{metric} on {images} images" for metric, images, _ in kinds)
        reason = f"{mismatch}: not the same metric on the same images"
    values = sides[0].accuracy_value, sides[side].accuracy_value
    return difference("accuracy", "accuracy", decide(None, None, matters, "difference", reason), values)


def _bounded(accuracy: Accuracy) -> BoundedFigure:
    by = accuracy.clusters.by if accuracy.clusters else None
    return BoundedFigure(accuracy.value, accuracy.low, accuracy.high, accuracy.without_parts, accuracy.interval_reason, by)


def _why_doubt(tally: _Tally, sides: Sequence[Side], side: int) -> list[str]:
    """Return what speaks against believing the sentence: runs of the two that are suspect, and a scored run that is invalid."""
    pairs = tally.pairs(side)
    runs = [run for pair in pairs for run in pair]
    suspect = [run for run in runs if run.verdict.state == "suspect"]
    rules = dict.fromkeys(reason.partition(":")[0] for run in suspect for reason in run.verdict.reasons)
    doubts = [f"{len(suspect)} of {len(runs)} runs are suspect ({', '.join(rules)})"] if suspect else []
    for scored_side in (0, side):
        scored = tally.scored(scored_side)
        if isinstance(scored, RunRecord) and scored.verdict.state == "invalid":
            doubts.append(f"{sides[scored_side].name} is invalid ({'; '.join(scored.verdict.reasons)})")
    return [*_other_inputs(pairs[-1], sides[side].name, sides[0].name), *doubts]


def _other_inputs(pair: tuple[RunRecord, RunRecord], name: str, other: str) -> list[str]:
    """Return in words that the two take inputs of other sizes, whatever their layout: then they do not do the same work."""
    values = [key_of(run).input_values for run in pair]
    if None in values or values[0] == values[1]:
        return []
    first, contender = (", ".join("x".join(map(str, tensor.shape)) for tensor in run.inputs) for run in pair)
    return [f"inputs of other sizes: {name} takes {contender}, {other} {first}"]


def _doubts(counted: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return how many of the runs violate each rule."""
    suspect = [run for run in counted if run.verdict.state == "suspect"]
    rules = [reason.partition(":")[0] for run in suspect for reason in run.verdict.reasons]
    return tuple(f"{rule}: {rules.count(rule)} of {len(counted)} runs" for rule in dict.fromkeys(rules))
