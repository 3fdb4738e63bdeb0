"""Exact match and F1 of short answers, with SQuAD's normalisation.

Both texts are lower-cased, lose ASCII punctuation and the articles a, an, the, and have runs of spaces squeezed. Exact match compares
what is left; F1 is the harmonic mean of precision and recall over their words as bags. An item counts with its best right answer. As in
SQuAD 2.0, no right answer means that an empty answer is right.
Source: the official evaluate-v1.1.py and evaluate-v2.0.py of SQuAD.
"""

import hashlib
import re
import string
from collections import Counter
from collections.abc import Sequence

import msgspec

from edgemeter.agent.base.errors import ConfigError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question of a JSONL file; any of `answers` is right, and none of them means that it has no answer."""

    id: str
    prompt: str
    answers: tuple[str, ...]


class AnswerScores(msgspec.Struct, frozen=True, kw_only=True):
    """Means over all questions, 0..1."""

    items: int
    items_sha256: str
    exact_match: float
    f1: float


def score_answers(questions: Sequence[Question], answers: Sequence[str]) -> AnswerScores:
    """Return the scores of the answers given, in the order of the questions; raises ConfigError if there are no questions."""
    if not questions:
        raise ConfigError("no questions to score: give a file with at least one")
    exact, overlap = 0.0, 0.0
    for question, answer in zip(questions, answers, strict=True):
        pair = best_scores(answer, question.answers)
        exact, overlap = exact + pair[0], overlap + pair[1]
    count, items_sha256 = len(questions), hashlib.sha256(msgspec.json.encode(questions)).hexdigest()
    return AnswerScores(items=count, items_sha256=items_sha256, exact_match=exact / count, f1=overlap / count)


def best_scores(answer: str, answers: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 of an answer with the best of the right ones, 0..1; without any an empty answer is right."""
    right = [text for text in answers if normalise(text)] or [""]
    return max(float(normalise(answer) == normalise(text)) for text in right), max(f1(answer, text) for text in right)


def normalise(text: str) -> str:
    """Return the text as SQuAD compares it."""
    unpunctuated = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", unpunctuated).split())


def f1(answer: str, right: str) -> float:
    """Return the F1 of the words of two texts, 0..1; of an empty one, whether both are."""
    answer_words, meant = normalise(answer).split(), normalise(right).split()
    if not answer_words or not meant:
        return float(answer_words == meant)
    shared = sum((Counter(answer_words) & Counter(meant)).values())
    return 2 * shared / (len(answer_words) + len(meant))
