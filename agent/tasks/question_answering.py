"""Extractive question answering: the part of a passage that answers a question, scored by SQuAD's exact match and F1.

Model: token ids of question and passage in, a score for each token to be the answer's first and its last one out (two outputs [1, tokens],
start before end where their names do not tell, or one [1, tokens, 2]). A card chooses it by `task = "question-answering"`. A long passage
takes several calls. Of the 20 best starts and ends of each window the pair with the highest sum wins, in the passage, not too long, its
start in the window that sees most around it; where a question may have no answer, none wins if the first token's sum, the lowest of all
windows, is higher. The answer is the passage's own text from the first to the last token.
Source: google-research/bert, run_squad.py (with null_score_diff_threshold 0); evaluate-v1.1.py and evaluate-v2.0.py of SQuAD.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.texts import RightAnswers
from edgemeter.agent.quality.short_answers import best_scores
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.text.tokenizer import TextTokenizer, TextWindow
from edgemeter.agent.vision.preprocess import values_of_first

METRIC = "squad_f1"
_BEST = 20
Scores = NDArray[np.float32]


class QuestionAnswering:
    """Keeps the answer to every question."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        self._model, self._loaded, self._data = model, loaded, data
        self._tokenizer = TextTokenizer(model, loaded)
        targets = tuple(target for target in (data.targets or {}).values() if isinstance(target, RightAnswers))
        if data.has_truth and len(targets) != len(data.items):
            raise ConfigError(f"model {model.name!r} answers questions, {data.name!r} has other ground truth: give a file of SQuAD (.json)")
        self._truth = targets if data.has_truth else None
        self._may_be_none = self._truth is None or any(answers.may_be_none for answers in self._truth)
        self._windows: dict[int, list[TextWindow]] = {}
        self._predictions: dict[int, str] = {}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the calls for question `index`: one for each window of its passage."""
        item = self._data.items[index]
        if item.context is None:
            raise ConfigError(f"item {item.name!r} of {self._data.name!r} has no passage to answer from: give questions of SQuAD's form")
        self._windows[index] = self._tokenizer.windows(item.read_text(), item.context)
        return [self._tokenizer.inputs(window) for window in self._windows[index]]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep the answer to question `index`, which was prepared before."""
        self._predictions[index] = self._answer(index, calls)

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return 1.0 where both raw outputs give the same answer, else 0.0."""
        return float(self._answer(index, calls) == self._answer(index, other))

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the mean F1 over all questions answered, with exact match; None without ground truth."""
        return None if self._truth is None else answer_accuracy(self._predictions, self._truth, self._data, parts)

    def _answer(self, index: int, calls: Sequence[Outputs]) -> str:
        windows = self._windows[index]
        scored = [self._starts_and_ends(outputs, len(window.tokens)) for outputs, window in zip(calls, windows, strict=True)]
        longest = self._model.text.answer_tokens
        spans = [span for window, both in zip(windows, scored, strict=True) for span in _spans(window, *both, longest)]
        none = min(float(starts[0] + ends[0]) for starts, ends in scored)
        score, first, end = max(spans, key=lambda span: span[0], default=(-math.inf, 0, 0))
        return "" if self._may_be_none and none > score else (self._data.items[index].context or "")[first:end]

    def _starts_and_ends(self, outputs: Outputs, tokens: int) -> tuple[Scores, Scores]:
        """Return the scores of each token, without those of the padding; what is no number counts as the lowest."""
        values = [np.nan_to_num(value[0], nan=-3e38, posinf=3e38, neginf=-3e38) for value in values_of_first(outputs, self._loaded)]
        if len(values) == 1 and values[0].ndim == 2 and values[0].shape[1] == 2:
            values = [values[0][:, 0], values[0][:, 1]]
        if len(values) < 2 or any(value.shape[:1] != values[0].shape[:1] or value.shape[0] < tokens for value in values[:2]):
            shapes = ", ".join(str(list(output.shape)) for output in outputs)
            raise ConfigError(
                f"model {self._model.name!r} gives {shapes}, not a start and an end score per token: correct task in its card"
            )
        starts, ends = values[:2]
        names = [info.name.lower() for info in self._loaded.outputs[:2]]
        if len(names) == 2 and "end" in names[0] and "start" in names[1]:
            starts, ends = ends, starts
        return starts.ravel()[:tokens].astype(np.float64), ends.ravel()[:tokens].astype(np.float64)


def _spans(window: TextWindow, starts: Scores, ends: Scores, longest: int) -> list[tuple[float, int, int]]:
    """Return the parts of the passage that may answer: the sum of the scores, first character and end."""
    spans = []
    last_of = np.argsort(-ends, kind="stable")[:_BEST]
    for start in np.argsort(-starts, kind="stable")[:_BEST].tolist():
        first = window.offsets[start]
        if first is None or not window.most_context[start]:
            continue
        for end in last_of.tolist():
            last = window.offsets[end]
            if last is not None and 0 <= end - start < longest:
                spans.append((float(starts[start] + ends[end]), first[0], last[1]))
    return spans


def answer_accuracy(answers: Mapping[int, str], truth: Sequence[RightAnswers], data: Dataset, parts: Parts = "all") -> Accuracy | None:
    """Return the mean F1 of the answers to the questions, with exact match; of SQuAD 2.0 also with and without an answer apart."""
    members = sorted(answers)
    scores = {index: best_scores(answers[index], truth[index].texts) for index in members}
    exact, overlap = ({index: pair[position] for index, pair in scores.items()} for position in (0, 1))
    detail = {"exact_match": _mean(exact, members)}
    if any(right.may_be_none for right in truth):
        answerable = [index for index in members if truth[index].texts]
        empty = [index for index in members if not truth[index].texts]
        detail |= {"f1_has_answer": _mean(overlap, answerable), "f1_no_answer": _mean(overlap, empty)}
    figure = Jackknifed(lambda members: _mean(overlap, members), is_mean=True)
    return item_accuracy(METRIC, figure, members, data, parts=parts, detail=detail)


def _mean(values: dict[int, float], members: Sequence[int]) -> float | None:
    return sum(values[index] for index in members) / len(members) if members else None
