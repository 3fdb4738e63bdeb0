"""Scores generated answers by exact match of a short text, a number, or the letter of a choice.

right answer           | compared
-----------------------|------------------------------------------------------------------------
the letter of a choice | the letter after the last "answer", "option" or "choice" (is), else the
                       | first letter alone
a number               | the last number of the answer; commas between thousands are dropped
a text                 | the first line of the answer, by SQuAD's normalisation: lower case,
                       | without ASCII punctuation and articles, single spaces

A reasoning model's thought, up to `</think>`, is not part of the answer; without its end there is
no answer.
Source: the official evaluate-v2.0.py of SQuAD.
"""

import re
import string
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.generators import without_thought

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?|[-+]?\.\d+")
_WHOLE_NUMBER = re.compile(rf"\s*(?:{_NUMBER.pattern})\s*")
_STATED = re.compile(r"\b(?:[Aa]nswer|[Oo]ption|[Cc]hoice)(?: is)?[\W_]*([A-Z])(?![\w'])")
# A and I are words too: "A clock" is no choice, "A is right" is one.
_LETTER = re.compile(r"(?<![\w'])([B-HJ-Z]|[AI](?! (?!is\b)[a-z]))(?![\w'])")
_ARTICLES = re.compile(r"\b(a|an|the)\b")

Rule = Literal["letter", "number", "squad"]


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The right answers; for a choice among `choices`, the letter."""

    answers: tuple[str, ...]
    choices: int = 0

    @property
    def rule(self) -> Rule:
        """The way of comparison."""
        if self.choices:
            return "letter"
        return (
            "number"
            if self.answers and all(_WHOLE_NUMBER.fullmatch(answer) for answer in self.answers)
            else "squad"
        )

    def accepts(self, answer: str) -> bool:
        """Return whether a generated answer matches a right one."""
        text = without_thought(answer).strip()
        if self.rule == "letter":
            letters = [*reversed(_STATED.findall(text)), *_LETTER.findall(text)]
            choices = string.ascii_uppercase[: self.choices]
            return next((letter for letter in letters if letter in choices), None) in self.answers
        if self.rule == "number":
            number = _last_number(text)
            return number is not None and number in [_last_number(right) for right in self.answers]
        return normalise(text.partition("\n")[0]) in (
            [right for right in map(normalise, self.answers) if right] or [""]
        )


def normalise(text: str) -> str:
    unpunctuated = "".join(
        character for character in text.lower() if character not in string.punctuation
    )
    return " ".join(_ARTICLES.sub(" ", unpunctuated).split())


def _last_number(text: str) -> float | None:
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "")) if numbers else None
