"""The comparison of cases that were measured in turn: each with the first, from the runs of both in every round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from string import ascii_uppercase
from typing import Annotated

import msgspec

from edgemeter.agent.base import run_statistics
from edgemeter.agent.base.accuracy_bounds import BoundedFigure, difference_bounds
from edgemeter.agent.base.decision import (
    ACCURACY,
    CORRECT_ENERGY,
    ENERGY,
    LATENCY,
    TOKEN_ENERGY,
    TPOT,
    TTFT,
    Difference,
    Pick,
    decide,
    decide_accuracy,
    difference,
    pick,
    sentence,
)
from edgemeter.agent.base.errors import EdgemeterError, MeasurementError
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.run_statistics import MATTERS_ACCURACY, MATTERS_RATIO
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.pooled_misses import pooled_misses
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import GATE_RATIO, Accuracy
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.quality.gate import HIGHEST_PERPLEXITY_RATIO
from edgemeter.agent.quality.perplexity import Perplexity
from edgemeter.agent.session import turn_figures
from edgemeter.agent.session.hopeless import has_failed
from edgemeter.agent.session.pairs import PairJudgement, judge_pairs
from edgemeter.agent.session.turn_figures import QUERY, TEXT_VALUES, Side, TurnFigure, gross_mj, p50_ms
from edgemeter.agent.verdict.words import sentence_of

# The round that scores accuracy; its latency does not count, because scoring parts its runs.
SCORING = 0


class PairTests(msgspec.Struct, frozen=True, kw_only=True):
    """Unpaired tests on log p50: where they disagree with the judgement, the machine drifted."""

    welch_p: float | None
    mann_whitney_p: float | None
    hedges_g: float | None


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """One side against the first: what follows figure by figure, and in one sentence; `energy` is null where it was not measured.

    Of language models `latency` is that of whole queries, `prefill` the time to the first token, `decode` the time of each further one,
    and `energy` that of a token; what is null cannot be compared, and its difference has the reason.
    """

    name: str
    latency: PairJudgement
    energy: PairJudgement | None
    differences: tuple[Difference, ...]
    tests: PairTests
    sentence: str
    prefill: PairJudgement | None = None
    decode: PairJudgement | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run in its turn: its side (0: the first), its round, and the id of its record, or why there is none.

    A side that was refused has one turn without a round.
    """

    side: Annotated[int, msgspec.Meta(ge=0)]
    round: int | None = None
    run: str | None = None
    error: str | None = None


class MeasuredInTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The result; `left_out` are the runs that do not count and why, `doubts` how many runs are disturbed by which rule.

    `most_runs` is how many runs there would have been without an early end; `invalid` are the sides whose scored (else first) run is
    invalid, and why; `is_interrupted` states that Ctrl-C ended it early.
    """

    sides: tuple[Side, ...]
    contrasts: tuple[Contrast, ...]
    left_out: tuple[str, ...]
    doubts: tuple[str, ...]
    runs: tuple[RunRecord, ...]
    most_runs: int = 0
    is_interrupted: bool = False
    invalid: dict[str, str] = {}
    turns: tuple[Turn, ...] = ()

    @property
    def pick(self) -> Pick:
        """The side to take; one whose scored run is invalid is refused, and so is one below the gates of accuracy or perplexity."""
        changes = {contrast.name: contrast.differences for contrast in self.contrasts}
        return pick(self.sides[0].name, changes, GATE_RATIO, self.invalid, HIGHEST_PERPLEXITY_RATIO)


@dataclass(frozen=True, slots=True)
class Matters:
    """The smallest differences that are a reason to choose: of latency and energy a ratio, of accuracy (0..1) a difference."""

    ratio: float = MATTERS_RATIO
    accuracy: float = MATTERS_ACCURACY


@dataclass(frozen=True, slots=True)
class TurnRun:
    """A run of a side in a round; `is_sound`: it has a p50 that counts, else `why` not."""

    side: int
    round: int
    outcome: RunRecord | EdgemeterError

    @property
    def is_sound(self) -> bool:
        """Whether it counts."""
        return isinstance(self.outcome, RunRecord) and self.outcome.verdict.state != "invalid" and self.outcome.latency.p50_ms is not None

    @property
    def why(self) -> str:
        """Why it does not count."""
        return (
            str(self.outcome)
            if isinstance(self.outcome, EdgemeterError)
            else "; ".join(map(sentence_of, self.outcome.verdict.violations)) or "it has no p50"
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """The runs so far of `cases`, which are called A, B, C, ..."""

    cases: Sequence[Case]
    has_scoring: bool
    figures: Sequence[TurnFigure]
    texts: Sequence[Perplexity | str]
    most_runs: int
    # By side, why this machine cannot measure it.
    refused: Mapping[int, EdgemeterError]
    runs: list[TurnRun] = field(default_factory=list)

    def records(self, side: int | None = None) -> list[RunRecord]:
        """Return the sound runs of a side, or of all, without those that score."""
        runs = [run for run in self.runs if run.is_sound and not self.is_scoring(run.round) and side in (None, run.side)]
        return [run.outcome for run in runs if isinstance(run.outcome, RunRecord)]

    def pairs(self, side: int) -> list[tuple[RunRecord, RunRecord]]:
        """Return the runs of the first case and of `side` in every round in which both are sound."""
        sound = {(run.round, run.side): run.outcome for run in self.runs if run.is_sound and not self.is_scoring(run.round)}
        rounds = dict.fromkeys(run.round for run in self.runs)
        both = [(sound.get((number, 0)), sound.get((number, side))) for number in rounds]
        return [(a, b) for a, b in both if isinstance(a, RunRecord) and isinstance(b, RunRecord)]

    def log_ratios(self, side: int, figure: TurnFigure) -> list[float]:
        """Return ln(other / first) of every round in which the figure compares."""
        both = [(figure.value(a), figure.value(b)) for a, b in self.pairs(side) if not figure.why_unlike(a, b)]
        return [math.log(b / a) for a, b in both if a and b]

    def has_failed(self, side: int) -> bool:
        """Return whether the side is refused, or `hopeless.has_failed`: it would fail in every round."""
        return side in self.refused or has_failed([run.outcome for run in self.runs if run.side == side])

    def is_round(self, number: int) -> bool:
        """Return whether the round is over for every side that is still measured."""
        over = {run.side for run in self.runs if run.round == number}
        return all(side in over or self.has_failed(side) for side in range(len(self.cases)))

    def is_scoring(self, number: int) -> bool:
        """Return whether this round is the one that scores accuracy, if there is one."""
        return self.has_scoring and number == SCORING

    def scored(self, side: int) -> RunRecord | EdgemeterError | None:
        """Return what came of the run that was scored, None where none was to be; a language model's answers are scored in every run."""
        if self.has_scoring:
            return next((run.outcome for run in self.runs if self.is_scoring(run.round) and run.side == side), None)
        sound = (run.outcome for run in reversed(self.runs) if run.is_sound and run.side == side)
        return next((run for run in sound if isinstance(run, RunRecord) and run.generation and run.accuracy), None)


class TurnsTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of a comparison, from which `compare_turns` makes it again where the records are."""

    turns: tuple[Turn, ...]
    most_runs: int


def compare_turns(
    cases: Sequence[Case], measured: TurnsTaken, records: Mapping[str, RunRecord], matters: Matters = Matters()
) -> MeasuredInTurn:
    """Return the comparison of cases that another board has measured in turn; a run whose record is absent does not count.

    Raises:
        MeasurementError: no two runs can be compared, or the turns are of other cases.
    """
    if any(turn.side >= len(cases) for turn in measured.turns):
        raise MeasurementError(f"the turns are of more than {len(cases)} cases: nothing can be compared")
    refused = {turn.side: MeasurementError(turn.error or "refused") for turn in measured.turns if turn.round is None}
    runs = [
        TurnRun(turn.side, turn.round, records.get(turn.run or "") or MeasurementError(turn.error or f"the record {turn.run} is absent"))
        for turn in measured.turns
        if turn.round is not None
    ]
    has_scoring = any(case.data is not None for case in cases)
    return compared(Tally(cases, has_scoring, turn_figures.turn_figures(cases), (), measured.most_runs, refused, runs), matters)


def names_of(cases: Sequence[Case]) -> list[str]:
    """Return what the cases are called: A, B, C, ..."""
    return list(ascii_uppercase[: len(cases)])


def compared(tally: Tally, matters: Matters) -> MeasuredInTurn:
    """Return the comparison of these runs; raises MeasurementError if no two can be compared."""
    names = names_of(tally.cases)
    unsound = [run for run in tally.runs if not run.is_sound]
    titles = ["the run to be scored" if tally.is_scoring(run.round) else f"pair {run.round + (not tally.has_scoring)}" for run in unsound]
    left_out = (
        *(f"{names[side]}: {error}" for side, error in tally.refused.items()),
        *(f"{title}, {names[run.side]}: {run.why}" for title, run in zip(titles, unsound, strict=True)),
    )
    other_sides = range(1, len(tally.cases))
    if not any(tally.pairs(side) for side in other_sides):
        raise MeasurementError(f"no pair of runs can be compared: {'; '.join(dict.fromkeys(left_out))}")
    firsts = {run.side: run for run in reversed(tally.runs)}
    counted = tally.records()
    rules = [rule for run in counted if run.verdict.state == "disturbed" for rule in run.verdict.rules]
    sides = tuple(_side(tally, side, names[side]) for side in range(len(tally.cases)))
    return MeasuredInTurn(
        sides=sides,
        contrasts=tuple(_contrast(tally, sides, side, matters) for side in other_sides if tally.pairs(side)),
        left_out=left_out,
        # The scored run of each side, or else its first.
        invalid={names[side]: run.why for side, run in firsts.items() if not isinstance(run.outcome, EdgemeterError) and not run.is_sound},
        doubts=tuple(f"{rule}: {rules.count(rule)} of {len(counted)} runs" for rule in dict.fromkeys(rules)),
        runs=tuple(run.outcome for run in tally.runs if isinstance(run.outcome, RunRecord)),
        most_runs=tally.most_runs,
        turns=(
            *(Turn(side=side, error=str(error)) for side, error in tally.refused.items()),
            *(
                Turn(side=run.side, round=run.round, run=run.outcome.id)
                if isinstance(run.outcome, RunRecord)
                else Turn(side=run.side, round=run.round, error=str(run.outcome))
                for run in tally.runs
            ),
        ),
    )


def _side(tally: Tally, side: int, name: str) -> Side:
    records = tally.records(side)
    medians_ms = tuple(value for run in records if (value := p50_ms(run)) is not None)
    energies_mj = [value for run in records if (value := gross_mj(run)) is not None]
    text_values = {name: [value for run in records if (value := value_of(run)) is not None] for name, value_of in TEXT_VALUES.items()}
    interval = run_statistics.median_interval(medians_ms)
    scored = tally.scored(side)
    newest = scored if isinstance(scored, RunRecord) else records[-1] if records else None
    accuracy = newest.accuracy if newest else None
    energy_reason = accuracy_reason = None
    if records and not energies_mj:
        run = records[-1]
        origin = energy_provenance(run) or "of unknown origin"
        energy_reason = run.reasons.get("energy", "not measured") if run.energy is None else f"it is {origin}, not measured"
    if accuracy is None:
        accuracy_reason = (
            str(scored) if isinstance(scored, EdgemeterError) else (newest.reasons.get("accuracy") if newest else None) or "not scored"
        )
    return Side(
        name=name,
        label=tally.cases[side].label,
        p50_ms=medians_ms,
        median_ms=median(medians_ms) if medians_ms else None,
        low_ms=interval.low if interval else None,
        high_ms=interval.high if interval else None,
        gross_mj=median(energies_mj) if energies_mj else None,
        energy_reason=energy_reason,
        accuracy_metric=accuracy.metric if accuracy else None,
        accuracy_value=accuracy.value if accuracy else None,
        accuracy_reason=accuracy_reason,
        peak_mb=newest.memory.peak_mb if newest else None,
        missed_ratio=missed.ratio if (missed := pooled_misses(run.steady for run in records)) else None,
        text_figures={name: median(of_runs) for name, of_runs in text_values.items() if of_runs},
        perplexity=score if (score := tally.texts[side] if tally.texts else None) and not isinstance(score, str) else None,
    )


def _contrast(tally: Tally, sides: Sequence[Side], side: int, matters: Matters) -> Contrast:
    pairs, first, contender = tally.pairs(side), sides[0], sides[side]
    ratios = {figure.name: tally.log_ratios(side, figure) for figure in tally.figures}
    judgements = {name: judge_pairs(logs, matters.ratio) if logs else None for name, logs in ratios.items()}
    has_answers = isinstance(tally.scored(0), RunRecord) or isinstance(tally.scored(side), RunRecord)
    figures = [figure for figure in tally.figures if has_answers or figure.name != CORRECT_ENERGY]
    differences = [_of_figure(figure, judgements[figure.name], pairs[-1], (first, contender), matters.ratio) for figure in figures]
    doubts = _why_doubt(tally, sides, side)
    if tally.texts:
        scores, names = (tally.texts[0], tally.texts[side]), (first.name, contender.name)
        differences.append(turn_figures.perplexity_difference(scores, pairs[-1]))
        differences += [_of_accuracy(tally, sides, side, matters.accuracy)] if has_answers else []
        doubts = [*turn_figures.text_doubts(pairs, names, scores), *doubts]
    else:
        differences.insert(1, _of_accuracy(tally, sides, side, matters.accuracy))
        differences[1:1] = turn_figures.missed_difference(pairs)
    words = sentence(contender.name, first.name, differences, doubts)
    logs = [[math.log(value) for run in runs if (value := p50_ms(run))] for runs in zip(*pairs, strict=True)]
    return Contrast(
        name=contender.name,
        latency=judgements.get(LATENCY) or judge_pairs(tally.log_ratios(side, QUERY), matters.ratio),
        energy=judgements.get(ENERGY) or judgements.get(TOKEN_ENERGY),
        prefill=judgements.get(TTFT),
        decode=judgements.get(TPOT),
        differences=tuple(differences),
        tests=PairTests(
            welch_p=run_statistics.welch_p(*logs),
            mann_whitney_p=run_statistics.mann_whitney_p(*logs),
            hedges_g=run_statistics.hedges_g(*logs),
        ),
        sentence=words,
    )


def _of_figure(
    figure: TurnFigure, judged: PairJudgement | None, pair: tuple[RunRecord, RunRecord], sides: tuple[Side, Side], matters_ratio: float
) -> Difference:
    values = figure.of_side(sides[0]), figure.of_side(sides[1])
    if judged is None:
        reason = figure.why_unlike(*pair) or figure.why_absent(sides, pair)
        return difference(figure.name, figure.unit, decide(None, None, matters_ratio, reason=reason), values)
    notes = []
    if judged.state == "not settled":
        number = f"about {judged.more_pairs} more" if judged.more_pairs else "not even a thousand"
        notes.append(f"{number} pairs would settle it")
    elif judged.state == "not judged":
        notes.append(f"{judged.pairs} pair shows no spread: use --repeats 10")
    if judged.are_taken_as_independent:
        notes.append("pairs taken as independent")
    return Difference(
        figure=figure.name,
        unit=figure.unit,
        state=judged.state,
        matters=judged.matters_ratio,
        a=values[0],
        b=values[1],
        change=judged.ratio,
        low=judged.low,
        high=judged.high,
        note="; ".join(notes),
    )


def _of_accuracy(tally: Tally, sides: Sequence[Side], side: int, matters: float) -> Difference:
    first, other = (run.accuracy if isinstance(run, RunRecord) else None for run in (tally.scored(0), tally.scored(side)))
    if first is None or other is None:
        reason = sides[0].accuracy_reason or sides[side].accuracy_reason or "not scored"
    else:
        kinds = [(accuracy.metric, accuracy.images, accuracy.dataset_sha256) for accuracy in (first, other)]
        if kinds[0] == kinds[1]:
            bounds = difference_bounds(*map(_bounded, (other, first)))
            decision = decide_accuracy(other.value - first.value, bounds, matters)
            return difference(ACCURACY, metric_name(first.metric), decision, (first.value, other.value), first.better)
        mismatch = " against ".join(f"{metric} on {images} images" for metric, images, _ in kinds)
        reason = f"{mismatch}: not the same metric on the same images"
    values = sides[0].accuracy_value, sides[side].accuracy_value
    return difference(ACCURACY, "accuracy", decide(None, None, matters, "difference", reason), values)


def _bounded(accuracy: Accuracy) -> BoundedFigure:
    return BoundedFigure(accuracy.value, accuracy.low, accuracy.high, accuracy.without_parts, accuracy.interval_reason)


def _why_doubt(tally: Tally, sides: Sequence[Side], side: int) -> list[str]:
    """Return what speaks against believing the sentence: runs of the two that are disturbed, and a scored run that is invalid."""
    pairs = tally.pairs(side)
    runs = [run for pair in pairs for run in pair]
    disturbed = [run for run in runs if run.verdict.state == "disturbed"]
    rules = dict.fromkeys(rule for run in disturbed for rule in run.verdict.rules)
    doubts = [f"{len(disturbed)} of {len(runs)} runs are disturbed ({', '.join(rules)})"] if disturbed else []
    for scored_side in (0, side):
        scored = tally.scored(scored_side)
        if isinstance(scored, RunRecord) and scored.verdict.state == "invalid":
            doubts.append(f"{sides[scored_side].name} is invalid ({'; '.join(map(sentence_of, scored.verdict.violations))})")
    return [*_other_inputs(pairs[-1], sides[side].name, sides[0].name), *doubts]


def _other_inputs(pair: tuple[RunRecord, RunRecord], name: str, other: str) -> list[str]:
    """Return in words that the two take inputs of other sizes, whatever their layout: then they do not do the same work."""
    values = [key_of(run).input_values for run in pair]
    if None in values or values[0] == values[1]:
        return []
    first, contender = (", ".join("x".join(map(str, tensor.shape)) for tensor in run.inputs) for run in pair)
    return [f"inputs of other sizes: {name} takes {contender}, {other} {first}"]
