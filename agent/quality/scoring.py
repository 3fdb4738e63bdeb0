"""Scores a loaded generator: perplexity on a text, multiple choice by likelihood, short answers by generation."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from edgemeter.agent.base.errors import AnswerError, ConfigError, UnavailableError
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER
from edgemeter.agent.datasets.items import json_lines, read_text
from edgemeter.agent.generators import (
    Generator,
    LikelihoodGenerator,
    Limits,
    LoadedGenerator,
    PrefixGenerator,
    Query,
    TextScoringGenerator,
    create,
)
from edgemeter.agent.quality.gate import Quality
from edgemeter.agent.quality.multiple_choice import DELIMITER, ChoiceItem, ChoiceScores, score_choices, score_text_choices, separately
from edgemeter.agent.quality.perplexity import perplexity
from edgemeter.agent.quality.short_answers import AnswerScores, Question, score_answers
from edgemeter.agent.runtimes import Options

# An answer ends with its line; the longest ones of SQuAD have about as many tokens.
ANSWER_TOKENS = 48
ItemKind = TypeVar("ItemKind", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Material:
    """The material for scoring; None and empty are left out. `context_tokens` is the length of a chunk of the text.

    `limit` is how many of its first chunks are scored, None for all.
    """

    text: str | None
    choices: Sequence[ChoiceItem]
    questions: Sequence[Question]
    context_tokens: int
    limit: int | None = None


def read_material(
    text: Path | None, choices: Path | None, questions: Path | None, context_tokens: int, limit: int | None = None
) -> Material:
    """Return what is in the files, of each the first `limit` items or chunks.

    Raises:
        ConfigError: no file is given, or one cannot be read or is wrong.
    """
    if text is None and choices is None and questions is None:
        raise ConfigError("nothing to score with: give a text (--text book.txt), --choices or --questions")
    words = None if text is None else read_text(text, "the text")
    return Material(
        words,
        read_items(choices, ChoiceItem)[:limit] if choices else (),
        read_items(questions, Question)[:limit] if questions else (),
        context_tokens,
        limit,
    )


def read_items(path: Path, kind: type[ItemKind]) -> list[ItemKind]:
    """Return the items in a file of JSON Lines, one object a line; empty lines are skipped.

    Raises:
        ConfigError: it cannot be read, holds no item, or a line is none (named).
    """
    items = [item for _, item in json_lines(repr(str(path)), read_text(path, "the items in").encode(), kind)]
    if not items:
        raise ConfigError(f"{str(path)!r} holds no item: write one JSON object a line")
    return items


def score_file(path: Path, runtime: str, threads: int, material: Material) -> Quality:
    """Return how good the model in a file is, as the generator `runtime` runs it.

    It is loaded twice where there are items: the first time to count their tokens, which the context has to hold.

    Raises:
        EdgemeterError: as `Generator.load` and `score_generator`.
    """
    chunk_tokens = material.context_tokens if material.text is not None else 0
    items_tokens = _longest_item(path, runtime, threads, material) if material.choices or material.questions else 0
    with closing(create(runtime)) as generator:
        return score_generator(generator, generator.load(path, Options(threads=threads), max(chunk_tokens, items_tokens)), material)


def _longest_item(path: Path, runtime: str, threads: int, material: Material) -> int:
    """Return the tokens of the longest item with its answer; where they are not told at most one a byte, and one before them."""
    questions = [question.prompt for question in material.questions]
    choices = [f"{item.prompt}{DELIMITER}{choice}" for item in material.choices for choice in item.choices]
    with closing(create(runtime)) as generator:
        loaded = generator.load(path, Options(threads=threads), ANSWER_TOKENS)

        def longest(texts: Sequence[str]) -> int:
            try:
                return max((len(generator.encode(text)) for text in texts), default=0)
            except UnavailableError:
                return max((len(text.encode()) for text in texts), default=0)

        return max(longest(questions) + ANSWER_TOKENS if questions else 0, longest(choices)) + len(loaded.first_tokens)


def score_generator(generator: Generator, loaded: LoadedGenerator, material: Material) -> Quality:
    """Return how good the generator's predictions are.

    Raises:
        UnavailableError: it gives no likelihoods, which a text and choices need.
        ConfigError: the text is too short, or an item does not fit the context.
        MeasurementError: the engine failed.
    """
    if material.text is None and not material.choices:
        return Quality(answers=_answers(generator, loaded, material.questions))
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
        if not loaded.text_tokens.size:
            raise UnavailableError(
                f"{loaded.package} does not tell the tokens of a text, which a perplexity needs: leave --text out, or score the model's "
                "file in an engine"
            )
        tokens = [*first, *encode(material.text)]
        measured_perplexity = perplexity(
            material.text, tokens, generator.likelihoods, bos_token=bos, context_tokens=material.context_tokens, limit=material.limit
        )
    return Quality(
        perplexity=measured_perplexity,
        choices=_choices(generator, loaded, material.choices, encode) if material.choices else None,
        answers=_answers(generator, loaded, material.questions) if material.questions else None,
    )


def _choices(
    generator: LikelihoodGenerator, loaded: LoadedGenerator, items: Sequence[ChoiceItem], encode: Callable[[str], list[int]]
) -> ChoiceScores:
    if not loaded.text_tokens.size and isinstance(generator, TextScoringGenerator):
        return score_text_choices(items, generator.text_likelihoods)
    behind = generator.likelihoods_behind if isinstance(generator, PrefixGenerator) else separately(generator.likelihoods)
    return score_choices(items, encode, behind, loaded.first_tokens[0] if loaded.first_tokens else None)


def _answers(generator: Generator, loaded: LoadedGenerator, questions: Sequence[Question]) -> AnswerScores:
    limits = Limits(ANSWER_TOKENS, ignore_end=False, stops=("\n",))
    prompts = [generator.encode(question.prompt) if loaded.text_tokens.size else question.prompt for question in questions]
    answers = [_answer(generator.bind(prompt, limits)) for prompt in prompts]
    return score_answers(questions, [answer.strip().partition("\n")[0] for answer in answers])


def _answer(query: Query) -> str:
    try:
        return query(lambda _: None).text
    except AnswerError as error:
        if error.kind != EMPTY_ANSWER:
            raise
        return ""
