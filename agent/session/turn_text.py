"""Language models measured in turn: their perplexity on one text, and what to know of their speed."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from edgemeter.agent.base.decision import Bounds, Difference, decide, difference
from edgemeter.agent.base.errors import ConfigError, EdgemeterError
from edgemeter.agent.base.run_statistics import CONFIDENCE, MATTERS_RATIO
from edgemeter.agent.base.statistics import student_quantile
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine.text_scoring import text_perplexity
from edgemeter.agent.quality.perplexity import DEFAULT_CONTEXT_TOKENS, Perplexity

Pair = tuple[RunRecord, RunRecord]
NO_TEXT = "no text was named: --text FILE"


def score_texts(cases: Sequence[Case], text: str | None) -> list[Perplexity | str]:
    """Return the perplexity of each case's model on the text, or why there is none.

    Chunks have 512 tokens; where a model has no room for that, or the text is too short, they are as long as the shortest query, for all.
    """
    if text is None:
        return [NO_TEXT] * len(cases)
    longest = min((case.prompt_tokens or 0) + (case.output_tokens or 0) for case in cases)
    scores = [_scored(case, text, DEFAULT_CONTEXT_TOKENS) for case in cases]
    if longest < DEFAULT_CONTEXT_TOKENS and any(isinstance(score, ConfigError) for score in scores):
        scores = [_scored(case, text, longest) for case in cases]
    return [str(score) if isinstance(score, EdgemeterError) else score for score in scores]


def _scored(case: Case, text: str, context_tokens: int) -> Perplexity | EdgemeterError:
    try:
        return text_perplexity(case, text, context_tokens)
    except EdgemeterError as error:
        return error


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
    decision = decide(other.bits_per_byte / first.bits_per_byte, None, MATTERS_RATIO, reason=reason)
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
    is_one_format = pair[0].model.format == pair[1].model.format
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
        generations = [(run.generation, run.latency.count) for run in (pair[side] for pair in pairs) if run.generation]
        if early := sum(generation.ended_early for generation, _ in generations):
            queries = sum(count for _, count in generations)
            doubts.append(f"{early} of {queries} queries of {name} ended early and are left out of its decoding")
    return doubts
