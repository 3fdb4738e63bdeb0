"""Multiple choice by likelihood, as lm-evaluation-harness scores it: the answer is the choice that the model finds most likely.

Three accuracies, because longer choices are less likely by their length alone: `acc` by the sum of log-likelihoods, `acc_norm` by that
sum per character of the choice, `acc_bytes` per byte of its UTF-8.
Source: lm-evaluation-harness 0.4.13, lm_eval/api/task.py (`process_results` of multiple choice), lm_eval/api/model.py (`_encode_pair`),
lm_eval/api/metrics.py (`mean_stderr`).
"""

import hashlib
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.perplexity import LogLikelihoods

# ln p of the tokens of each continuation behind the same context, float64 [n] each.
LikelihoodsBehind = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[NDArray[np.float64]]]
# What stands between prompt and choice.
DELIMITER = " "


class ChoiceItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a JSONL file; `answer` is the index of the right choice."""

    id: str
    prompt: str
    choices: tuple[str, ...]
    answer: int

    def __post_init__(self) -> None:
        """Refuse an item that cannot be scored."""
        if not self.prompt or len(self.choices) < 2 or not all(self.choices):
            raise ValueError(f"item {self.id!r} needs a prompt and at least two choices that are not empty")
        if not 0 <= self.answer < len(self.choices):
            raise ValueError(f"item {self.id!r} has no choice {self.answer}: answer counts from 0")


class ChoiceScores(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracies 0..1 over all items, each with its standard error; None for a single item.

    `items_sha256` is of the items themselves, whatever the file's spacing and order of keys.
    """

    items: int
    items_sha256: str
    acc: float
    acc_stderr: float | None
    acc_norm: float
    acc_norm_stderr: float | None
    acc_bytes: float
    acc_bytes_stderr: float | None


def score_choices(
    items: Sequence[ChoiceItem], encode: Callable[[str], Sequence[int]], likelihoods_behind: LikelihoodsBehind, bos_token: int | None
) -> ChoiceScores:
    """Return the accuracies of a model on `items`, at least one, whose choices are asked for together where they share the prompt's tokens.

    `encode` makes tokens of a text, without the beginning-of-text token `bos_token`; that stands before each prompt, if there is one.
    """
    start = [] if bos_token is None else [bos_token]

    def sums(item: ChoiceItem) -> list[float]:
        pairs = [encode_pair(encode, item.prompt, DELIMITER + choice) for choice in item.choices]
        by_context: dict[tuple[int, ...], list[int]] = {}
        for index, (before, _) in enumerate(pairs):
            by_context.setdefault(tuple(before), []).append(index)
        sums_of: dict[int, float] = {}
        for context, indices in by_context.items():
            values = likelihoods_behind([*start, *context], [pairs[index][1] for index in indices])
            sums_of |= {index: float(value.sum()) for index, value in zip(indices, values, strict=True)}
        return [sums_of[index] for index in range(len(pairs))]

    return accuracies(items, [sums(item) for item in items])


def score_text_choices(items: Sequence[ChoiceItem], text_likelihoods: Callable[[str, Sequence[str]], Sequence[float]]) -> ChoiceScores:
    """Return the accuracies by likelihoods of texts, whose tokens are not told."""
    sums = []
    for item in items:
        context = item.prompt.rstrip()
        sums.append(text_likelihoods(context, [item.prompt[len(context) :] + DELIMITER + choice for choice in item.choices]))
    return accuracies(items, sums)


def separately(log_likelihoods: LogLikelihoods) -> LikelihoodsBehind:
    """Return what asks for each continuation with its context, of an engine that cannot keep that."""
    return lambda context, continuations: [log_likelihoods([*context, *text])[-len(text) :] for text in continuations]


def encode_pair(encode: Callable[[str], Sequence[int]], prompt: str, continuation: str) -> tuple[list[int], list[int]]:
    """Return the tokens of the prompt and those of the continuation: tokenised together, split after the prompt's own length.

    Spaces at the end of the prompt belong to the continuation, as tokenisers join them with the word behind.

    Raises:
        ConfigError: the tokeniser joins the two so that nothing is left of the continuation.
    """
    context = prompt.rstrip()
    continuation = prompt[len(context) :] + continuation
    tokens, before = list(encode(context + continuation)), list(encode(context))
    if len(tokens) <= len(before) or not before:
        raise ConfigError(f"the tokeniser leaves nothing of {continuation!r} after {context[-40:]!r}: change the item")
    return tokens[: len(before)], tokens[len(before) :]


def accuracies(items: Sequence[ChoiceItem], likelihoods: Sequence[Sequence[float]]) -> ChoiceScores:
    """Return the accuracies that follow from each choice's summed log-likelihood; raises ConfigError if there are no items."""
    if not items:
        raise ConfigError("no items to score: give a file with at least one")
    plain, by_characters, by_bytes = [], [], []
    for item, sums_of_item in zip(items, likelihoods, strict=True):
        sums = np.asarray(sums_of_item)
        plain.append(int(np.argmax(sums)) == item.answer)
        by_characters.append(int(np.argmax(sums / [len(choice) for choice in item.choices])) == item.answer)
        by_bytes.append(int(np.argmax(sums / [len(choice.encode()) for choice in item.choices])) == item.answer)
    acc, acc_norm, acc_bytes = (sum(hits) / len(items) for hits in (plain, by_characters, by_bytes))
    return ChoiceScores(
        items=len(items),
        items_sha256=hashlib.sha256(msgspec.json.encode(items)).hexdigest(),
        acc=acc,
        acc_stderr=standard_error(acc, len(items)),
        acc_norm=acc_norm,
        acc_norm_stderr=standard_error(acc_norm, len(items)),
        acc_bytes=acc_bytes,
        acc_bytes_stderr=standard_error(acc_bytes, len(items)),
    )


def standard_error(share: float, count: int) -> float | None:
    """Return the standard error of a share of `count` items, by the sample's standard deviation; None for one item."""
    return math.sqrt(share * (1 - share) / (count - 1)) if count > 1 else None
