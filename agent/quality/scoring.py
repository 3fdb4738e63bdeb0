"""Scores a loaded generator: perplexity on a text, multiple choice by likelihood, short answers by generation."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import Generator, LikelihoodGenerator, Limits, LoadedGenerator, create
from edgemeter.agent.quality.gate import Quality
from edgemeter.agent.quality.multiple_choice import ChoiceItem, score_choices
from edgemeter.agent.quality.perplexity import perplexity
from edgemeter.agent.quality.short_answers import AnswerScores, Question, score_answers
from edgemeter.agent.runtimes import Options

# An answer ends with its line; the longest ones of SQuAD have about as many tokens.
ANSWER_TOKENS = 48
ItemKind = TypeVar("ItemKind", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Material:
    """The material for scoring; None and empty are left out. `context_tokens` is the length of a chunk of the text."""

    text: str | None
    choices: Sequence[ChoiceItem]
    questions: Sequence[Question]
    context_tokens: int


def read_material(text: Path | None, choices: Path | None, questions: Path | None, context_tokens: int) -> Material:
    """Return what is in the files; raises ConfigError if none is given, or one cannot be read or is wrong."""
    if text is None and choices is None and questions is None:
        raise ConfigError("nothing to score with: give a text (--text book.txt), --choices or --questions")
    try:
        words = None if text is None else text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the text {str(text)!r}: {error}") from error
    return Material(
        words, read_items(choices, ChoiceItem) if choices else (), read_items(questions, Question) if questions else (), context_tokens
    )


def read_items(path: Path, kind: type[ItemKind]) -> list[ItemKind]:
    """Return the items in a file of JSON Lines, one object a line; empty lines are skipped.

    Raises:
        ConfigError: it cannot be read, holds no item, or a line is none (named).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the items in {str(path)!r}: {error}") from error
    items = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            items.append(msgspec.json.decode(line, type=kind))
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConfigError(f"{str(path)!r}, line {number}: {error}") from error
    if not items:
        raise ConfigError(f"{str(path)!r} holds no item: write one JSON object a line")
    return items


def score_file(path: Path, runtime: str, threads: int, material: Material) -> Quality:
    """Return how good the model in a file is, as the generator `runtime` runs it.

    Raises:
        EdgemeterError: as `Generator.load` and `score_generator`.
    """
    prompts = [*(item.prompt for item in material.questions), *(f"{item.prompt} {max(item.choices, key=len)}" for item in material.choices)]
    # No tokeniser makes more than one token a byte, and one stands before them.
    longest = 1 + max((len(prompt.encode()) for prompt in prompts), default=0)
    room = max(material.context_tokens if material.text is not None else 0, longest + ANSWER_TOKENS)
    with closing(create(runtime)) as generator:
        return score_generator(generator, generator.load(path, Options(threads=threads), room), material)


def score_generator(generator: Generator, loaded: LoadedGenerator, material: Material) -> Quality:
    """Return how good the generator's predictions are.

    Raises:
        UnavailableError: it gives no likelihoods, which a text and choices need.
        ConfigError: the text is too short, or an item does not fit the context.
        MeasurementError: the engine failed.
    """
    if material.text is None and not material.choices:
        return Quality(answers=_answers(generator, material.questions))
    if not isinstance(generator, LikelihoodGenerator):
        raise UnavailableError(
            f"{loaded.package} gives no likelihoods of a text: score with questions only, or the model's file in an engine"
        )
    first = list(loaded.first_tokens)
    bos = first[0] if first else None

    def encode(text: str) -> list[int]:
        tokens = generator.encode(text)
        return tokens[len(first) :] if first and tokens[: len(first)] == first else tokens

    measured_perplexity = None
    if material.text is not None:
        tokens = [*first, *encode(material.text)]
        measured_perplexity = perplexity(
            material.text, tokens, generator.likelihoods, bos_token=bos, context_tokens=material.context_tokens
        )
    return Quality(
        perplexity=measured_perplexity,
        choices=score_choices(material.choices, encode, generator.likelihoods, bos) if material.choices else None,
        answers=_answers(generator, material.questions) if material.questions else None,
    )


def _answers(generator: Generator, questions: Sequence[Question]) -> AnswerScores:
    limits = Limits(ANSWER_TOKENS, ignore_end=False, stops=("\n",))
    answers = [generator.bind(generator.encode(question.prompt), limits)(lambda _: None).text for question in questions]
    return score_answers(questions, [answer.strip().partition("\n")[0] for answer in answers])
