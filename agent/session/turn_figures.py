"""The figures by which models measured in turn are compared, run by run, and why two runs cannot be compared by one of them.

A model of one call has a latency and an energy, and at a steady rate missed frames. A language model has two answers on speed, prefill
(time to first token) and decoding (time per output token), and an energy per token; they compare only where both did the same work. It has
a perplexity on one text, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import fmean, stdev

import msgspec

from edgemeter.agent.base.accuracy_bounds import BoundedFigure, difference_bounds
from edgemeter.agent.base.decision import (
    CORRECT_ENERGY,
    ENERGY,
    LATENCY,
    MISSED,
    TOKEN_ENERGY,
    TPOT,
    TTFT,
    Bounds,
    Difference,
    decide,
    difference,
)
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.run_statistics import CONFIDENCE, MATTERS_RATIO, MATTERS_SHARE, pair_interval
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.case_identity import FIELD, key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import Figure, FigureView, in_view, why_unequal_questions
from edgemeter.agent.contract.pooled_misses import pooled_misses
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_generation import SYNTHETIC, UNSTREAMED, Generation
from edgemeter.agent.contract.same_work import why_other_answers, why_other_questions
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.text_scoring import text_perplexity
from edgemeter.agent.quality.perplexity import DEFAULT_CONTEXT_TOKENS, Perplexity

NO_SPREAD = "all pairs are alike, and below 3 runs of each there is no interval"
Pair = tuple[RunRecord, RunRecord]
NO_TEXT = "no text was named: --text FILE"
TEXT_FIGURES: tuple[Figure, ...] = tuple(entry for entry in in_view(FigureView.JUDGED) if entry.is_of_text)


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of those compared: the p50 of its runs with their median and its 95% interval (null below three runs), and the other figures.

    `gross_mj` is the median of the runs, `missed_ratio` the share of the frames of all; `accuracy_value` (0..1) and `peak_mb` are
    those of the run that was scored, else of the newest. Of a language model `text_figures` are the medians of its figures, by their
    names, and `perplexity` that on the text.
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
    missed_ratio: float | None = None
    text_figures: dict[str, float] = {}
    perplexity: Perplexity | None = None


def _why_other_load(first: RunRecord, other: RunRecord) -> str:
    """Return why speed and energy of two runs do not compare; empty where they do."""
    fields = [FIELD[name] for name in ("target_per_s", "deadline")]
    values = {field.title: [getattr(key_of(run), field.name) for run in (first, other)] for field in fields}
    titles = [title for title, pair in values.items() if None not in pair and len(set(pair)) > 1]
    return f"not at one {' nor one '.join(titles)}: other work" if titles else ""


@dataclass(frozen=True, slots=True)
class TurnFigure:
    """One figure: its name and unit, its value in a run (None: not measured), and whether it is one of a language model."""

    name: str
    unit: str
    value: Callable[[RunRecord], float | None]
    is_of_text: bool = False

    def why_unlike(self, first: RunRecord, other: RunRecord) -> str:
        """Return why the figure of `other` does not compare with that of `first`; empty where it does."""
        if why := _why_other_load(first, other):
            return why
        if first.generation is None or other.generation is None:
            return ""
        if not self.is_of_text:
            return why_other_answers(first, other)
        if first.scenario != other.scenario:
            return f"queries arrive in other ways ({other.scenario} against {first.scenario})"
        if self.name == CORRECT_ENERGY:
            return "" if scored_by(first) == scored_by(other) else "they answered other questions"
        return _why_other_work(self.name, (first, other))

    def of_side(self, side: Side) -> float | None:
        """Return the median of its runs."""
        if self.is_of_text:
            return side.text_figures.get(self.name)
        return side.gross_mj if self.name == ENERGY else side.median_ms

    def why_absent(self, sides: Sequence[Side], runs: Sequence[RunRecord]) -> str:
        """Return why no round has it on both sides."""
        reasons = (self._why_absent_of(side, run) for side, run in zip(sides, runs, strict=True))
        return next(filter(None, reasons), "no round has it on both sides")

    def _why_absent_of(self, side: Side, run: RunRecord) -> str | None:
        generation = run.generation
        if self.name == CORRECT_ENERGY:
            none_right = f"no answer of {side.name} was right" if side.accuracy_value == 0 else None
            return side.energy_reason or none_right or why_unequal_questions(run)
        if self.name in (ENERGY, TOKEN_ENERGY):
            return side.energy_reason or run.reasons.get("generation_energy")
        if generation is None:
            return None
        if self.name == TPOT and generation.tpot is None:
            return run.reasons.get(UNSTREAMED) or f"{side.name} generated a single token"
        return run.reasons.get(UNSTREAMED) if self.name == TTFT else None


def scored_by(run: RunRecord) -> tuple[str, int, str] | None:
    """Return metric, number and hash of the items that a run was scored on; None where it was not."""
    accuracy = run.accuracy
    return None if accuracy is None else (accuracy.metric, accuracy.images, accuracy.dataset_sha256)


def p50_ms(run: RunRecord) -> float | None:
    """Return the median latency of a whole query."""
    return run.latency.p50_ms


def measured_only(value: Callable[[RunRecord], float | None]) -> Callable[[RunRecord], float | None]:
    """Return what reads an energy where it was measured: an estimate or a model of it decides nothing."""

    def of_run(run: RunRecord) -> float | None:
        return value(run) if run.energy is not None and energy_provenance(run) in ("measured", "replayed") else None

    return of_run


gross_mj = measured_only(lambda run: run.energy.gross_mj if run.energy else None)

TEXT_VALUES = {
    entry.name: measured_only(entry.value) if entry.name in (TOKEN_ENERGY, CORRECT_ENERGY) else entry.value for entry in TEXT_FIGURES
}
_ONE_CALL = (TurnFigure(LATENCY, "ms", p50_ms), TurnFigure(ENERGY, "mJ", gross_mj))
# The latency of a whole query of a language model: it compares where decoding does, and answers are as long.
QUERY = TurnFigure(LATENCY, "ms", p50_ms, is_of_text=True)


def turn_figures(cases: Sequence[Case]) -> tuple[TurnFigure, ...]:
    """Return the figures by which these cases are compared; raises ConfigError if some generate text and others do not."""
    generating = [case for case in cases if case.output_tokens is not None]
    if not generating:
        return _ONE_CALL
    if len(generating) < len(cases):
        single = next(case for case in cases if case.output_tokens is None)
        raise ConfigError(f"{generating[0].label} generates text and {single.label} does not: compare language models with language models")
    return (
        TurnFigure(TTFT, "ms", TEXT_VALUES[TTFT], is_of_text=True),
        TurnFigure(TPOT, "ms", TEXT_VALUES[TPOT], is_of_text=True),
        TurnFigure(TOKEN_ENERGY, "mJ", TEXT_VALUES[TOKEN_ENERGY], is_of_text=True),
        TurnFigure(CORRECT_ENERGY, "mJ", TEXT_VALUES[CORRECT_ENERGY], is_of_text=True),
    )


def missed_difference(pairs: Sequence[Pair]) -> list[Difference]:
    """Return how the missed frames of the second differ from those of the first, in points; nothing where neither has frames at a rate.

    The bounds are those over runs, and those over pairs where these are wider.
    """
    both = [(first.steady, other.steady) for first, other in pairs if first.steady and other.steady]
    first, other = (pooled_misses(side) for side in zip(*both, strict=True)) if both else (None, None)
    if first is None or other is None:
        return []
    if why := _why_other_load(*pairs[-1]):
        unlike = decide(None, None, MATTERS_SHARE, "difference", why)
        return [difference(MISSED, "", unlike, (first.ratio, other.ratio), "lower")]
    figures = [
        BoundedFigure(side.ratio, side.bounds and side.bounds[0], side.bounds and side.bounds[1], (), NO_SPREAD) for side in (other, first)
    ]
    within = difference_bounds(*figures)
    changes = [b.missed_ratio - a.missed_ratio for a, b in both]
    over_pairs = pair_interval(changes)
    change, bounds = other.ratio - first.ratio, None
    if over_pairs and (within.bounds or over_pairs.low < over_pairs.high):
        low, high = within.bounds or (change, change)
        bounds = max(-1.0, min(low, over_pairs.low)), min(1.0, max(high, over_pairs.high))
    reason = within.reason if over_pairs else "1 pair shows no spread: use --repeats 10"
    decision = decide(change, bounds, MATTERS_SHARE, "difference", reason)
    return [difference(MISSED, "", decision, (first.ratio, other.ratio), "lower")]


def _why_other_work(figure: str, runs: Pair) -> str:
    first, other = (run.generation for run in runs)
    if first is None or other is None:
        return ""
    if reason := why_other_questions(*runs) or _why_other_prompts(first, other):
        return reason
    output = "" if figure == TTFT else _why_other_output(first, other)
    return output if output or figure in (TTFT, TPOT) else why_other_answers(*runs)


def _why_other_prompts(first: Generation, other: Generation) -> str:
    prompts = first.mean_prompt_tokens, other.mean_prompt_tokens
    if first.prompts_sha256 is not None and first.prompts_sha256 == other.prompts_sha256:
        # The same questions, whatever tokens each model cuts them into.
        prompts = None, None
    if None in prompts and prompts != (None, None):
        return "one of the servers does not state the tokens of its prompts"
    if prompts[0] is not None and prompts[1] is not None and abs(prompts[1] - prompts[0]) > MATTERS_RATIO * prompts[0]:
        return f"prompts of {prompts[1]:.4g} against {prompts[0]:.4g} tokens are other work"
    return ""


def _why_other_output(first: Generation, other: Generation) -> str:
    if first.output_tokens != other.output_tokens:
        return f"outputs of {other.output_tokens} against {first.output_tokens} tokens are other work"
    if "estimated" in (first.counts, other.counts):
        return "a server does not state how many tokens it generated"
    return ""


def score_texts(cases: Sequence[Case], text: str | None, refused: Mapping[int, EdgemeterError]) -> list[Perplexity | str]:
    """Return the perplexity of each case's model on the text, or why there is none, of the cases that are `refused` their reason.

    Chunks have 512 tokens; where a model has no room for that, or the text is too short, they are as long as the shortest query, for all.
    """
    if text is None:
        return [NO_TEXT] * len(cases)
    longest = min((case.prompt_tokens or 0) + (case.output_tokens or 0) for case in cases)
    scorable = {side: case for side, case in enumerate(cases) if side not in refused}
    scores = _scored(scorable, text, DEFAULT_CONTEXT_TOKENS)
    if longest < DEFAULT_CONTEXT_TOKENS and any(isinstance(score, ConfigError) for score in scores.values()):
        scores = _scored(scorable, text, longest)
    scores = {**scores, **refused}
    return [str(score) if isinstance(score := scores[side], EdgemeterError) else score for side in range(len(cases))]


def _scored(cases: Mapping[int, Case], text: str, context_tokens: int) -> dict[int, Perplexity | EdgemeterError]:
    """Return the perplexity by side, or why there is none; of equal cases one is scored."""
    scores: dict[int, Perplexity | EdgemeterError] = {}
    for side, case in cases.items():
        equal = next((scored for scored in scores if cases[scored] == case), None)
        try:
            scores[side] = text_perplexity(case, text, context_tokens) if equal is None else scores[equal]
        except EdgemeterError as error:
            scores[side] = error
    return scores


def perplexity_difference(scores: tuple[Perplexity | str, Perplexity | str], pair: Pair) -> Difference:
    """Return what the second of two perplexities is against the first: by the token where both cut text alike, else by the byte."""
    first, other = scores
    if isinstance(first, str) or isinstance(other, str):
        reason = first if isinstance(first, str) else other
        values = [None if isinstance(score, str) else score.value for score in scores]
        return difference("perplexity", "", decide(None, None, MATTERS_RATIO, reason=str(reason)), (values[0], values[1]), "lower")
    if have_same_tokens(pair, scores):
        decision = decide(other.value / first.value, _ratio_bounds(first.chunk_losses, other.chunk_losses), MATTERS_RATIO)
        return difference("perplexity", "", decision, (first.value, other.value), "lower")
    reason = "a token is another piece of text to each: perplexities do not compare"
    # Bits are logarithms: the ratio of the perplexities of as much text as a token of the first is.
    ratio = first.value ** (other.bits_per_byte / first.bits_per_byte - 1)
    decision = decide(ratio, None, MATTERS_RATIO, reason=reason)
    return difference("bits per byte", "", decision, (first.bits_per_byte, other.bits_per_byte), "lower")


def _ratio_bounds(first: Sequence[float], other: Sequence[float]) -> Bounds | None:
    """Return the 95% bounds of the ratio of two perplexities over the chunks of the text, by Student's t of their differences."""
    if len(first) != len(other) or len(first) < 2:
        return None
    differences = [b - a for a, b in zip(first, other, strict=True)]
    reach = student_quantile(CONFIDENCE, len(differences) - 1) * stdev(differences) / math.sqrt(len(differences))
    return math.exp(fmean(differences) - reach), math.exp(fmean(differences) + reach)


def have_same_tokens(pair: Pair, scores: tuple[Perplexity | str, Perplexity | str]) -> bool | None:
    """Return whether two models cut text into the same tokens; None if it is not known.

    One tokenizer has other bytes in another format (GGUF, ONNX): there the text that both were scored on shows it by its tokens.
    """
    first, other = (run.generation.model.tokenizer_sha256 if run.generation else None for run in pair)
    if first is not None and first == other:
        return True
    if isinstance(scores[0], Perplexity) and isinstance(scores[1], Perplexity):
        return scores[0].text_tokens == scores[1].text_tokens
    is_one_format = PurePath(pair[0].model.file).suffix == PurePath(pair[1].model.file).suffix
    return False if first is not None and other is not None and is_one_format else None


def text_doubts(pairs: Sequence[Pair], names: tuple[str, str], scores: tuple[Perplexity | str, Perplexity | str]) -> list[str]:
    """Return what to know of the speed of two language models: tokens of other texts, and queries that ended early."""
    doubts = []
    if have_same_tokens(pairs[-1], scores) is False:
        times = ""
        if isinstance(scores[0], Perplexity) and isinstance(scores[1], Perplexity):
            times = f": a token of {names[1]} is {scores[0].text_tokens / scores[1].text_tokens:.3g} times the text of one of {names[0]}"
        doubts.append(f"their tokenizers differ{times}")
    for side, name in enumerate(names):
        runs = [pair[side] for pair in pairs]
        generations = [(run.generation, run.latency.count) for run in runs if run.generation and run.generation.prompts == SYNTHETIC]
        if early := sum(generation.ended_early for generation, _ in generations):
            queries = sum(count for _, count in generations)
            doubts.append(f"{early} of {queries} queries of {name} ended early")
    return doubts
