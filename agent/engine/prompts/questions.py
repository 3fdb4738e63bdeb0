"""Reads files of questions and scores a model's answers to them.

A file is JSON Lines with `prompt` and the right answers. `answer` is a text or number; `answers`
are texts any of which is right. With `choices`, `answer` is the letter of the right choice or its
number from 0, and the choices are added to the prompt, a letter before each.
"""

import hashlib
import random
import string
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.model_names import questions_path
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.items import json_lines, read_bytes
from edgemeter.agent.engine.prompts.answer_key import AnswerKey
from edgemeter.agent.tasks.parts import Share


class _QuestionEntry(msgspec.Struct, frozen=True):
    prompt: str
    answer: str | int | float | None = None
    answers: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """The text of a question with its right answer."""

    text: str
    key: AnswerKey


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """The questions of a file in its order.

    `sha256` is that of the questions used, `file_sha256` that of the file.
    """

    name: str
    questions: tuple[Question, ...]
    sha256: str
    file_sha256: str

    def order(self, seed: int) -> list[int]:
        """Return the indices of the questions in the order of asking."""
        # A repeatable order is wanted.
        return random.Random(seed).sample(  # noqa: S311
            range(len(self.questions)),
            len(self.questions),
        )

    def score(
        self, seed: int, answers: Iterable[tuple[int, str]]
    ) -> tuple[Accuracy | None, str | None]:
        """Return the share of questions with a right first answer, or None and why.

        `answers` are texts by the numbers of queries.
        """
        order, first = self.order(seed), dict[int, str]()
        for number, text in answers:
            first.setdefault(order[number % len(order)], text)
        if len(first) < len(order):
            return None, f"{len(order) - len(first)} of {len(order)} questions were not answered"
        figure = Share(
            {
                index: question.key.accepts(first[index])
                for index, question in enumerate(self.questions)
            }
        )
        bounds = figure.bounded([*first], "questions")
        return Accuracy(
            metric="exact_match",
            value=figure.value([*first]),
            images=len(first),
            dataset_sha256=self.sha256,
            low=bounds.low,
            high=bounds.high,
            interval_reason=bounds.reason,
            without_parts=bounds.without_parts,
            normalisation=", ".join(sorted({question.key.rule for question in self.questions})),
        ), None


def read_questions(questions: str, subset: int | None = None, seed: int = 0) -> QuestionFile:
    """Return the questions of a file or a shipped data set, or a random `subset` of them.

    The subset is the same everywhere.

    Raises:
        ConfigError: the file cannot be read, or holds no question; the line is named.
    """
    path = questions_path(questions)
    content = read_bytes(path, "the questions")
    lines = json_lines(
        f"cannot read the questions in {str(path)!r}",
        content.removeprefix(b"\xef\xbb\xbf"),
        _QuestionEntry,
    )
    items = [_question(f"{str(path)!r}, line {number}", entry) for number, entry in lines]
    if not items:
        raise ConfigError(f"{str(path)!r} holds no question: give a file with at least one")
    if subset is not None and subset < len(items):
        # A repeatable draw is wanted.
        indices = sorted(random.Random(seed).sample(range(len(items)), subset))  # noqa: S311
        items = [items[index] for index in indices]
    return QuestionFile(
        path.name,
        tuple(items),
        hashlib.sha256(msgspec.json.encode(items)).hexdigest(),
        hashlib.sha256(content).hexdigest(),
    )


def _question(where: str, entry: _QuestionEntry) -> Question:
    if not entry.prompt.strip():
        raise ConfigError(f"{where}: the prompt is empty: ask something")
    if not entry.choices:
        answers = entry.answers if entry.answer is None else (str(entry.answer),)
        if not answers:
            raise ConfigError(
                f"{where}: there is no right answer: give answer, answers, or choices with the "
                "answer's letter"
            )
        return Question(entry.prompt, AnswerKey(answers))
    letters = string.ascii_uppercase[: len(entry.choices)]
    index = (
        letters.find(entry.answer)
        if isinstance(entry.answer, str) and len(entry.answer) == 1
        else entry.answer
    )
    if not isinstance(index, int) or not 0 <= index < len(letters):
        raise ConfigError(
            f"{where}: there is no choice {entry.answer!r}: give the letter of one of at most "
            "26, or its number from 0"
        )
    listed = "\n".join(
        f"{letter}. {choice}" for letter, choice in zip(letters, entry.choices, strict=False)
    )
    return Question(
        f"{entry.prompt}\n\n{listed}\n\nAnswer with the letter of the right choice.",
        AnswerKey((letters[index],), len(letters)),
    )
