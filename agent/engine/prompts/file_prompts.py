"""Prompts of a file, by the model's chat template or without one, and the score of their answers."""

import random
from collections.abc import Iterable, Sequence

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.prompt_file import PromptFile
from edgemeter.agent.generators import THOUGHT_BEGIN, Chat, ChatMessage, Generator, LoadedGenerator, Prompt, TemplateGenerator
from edgemeter.agent.tasks.parts import Share


class PromptEncoder:
    """Makes prompts of messages, by the model's chat template where it has one (`has_template`)."""

    def __init__(self, generator: Generator, loaded: LoadedGenerator) -> None:
        self._generator, self._loaded, self._sends_messages = generator, loaded, loaded.abilities.chats
        self.has_template = self._sends_messages or loaded.chat_template is not None

    def prompt(self, messages: Sequence[ChatMessage]) -> Prompt:
        """Return the prompt: tokens, or where the generator takes none the messages or their text.

        Raises:
            UnavailableError: the template cannot be applied.
            ConfigError: there is a picture, and the generator takes none.
        """
        if self._sends_messages:
            return Chat(tuple(messages))
        if any(message.picture for message in messages):
            raise ConfigError(f"{self._loaded.package} takes no pictures here: measure a server, with endpoint chat in its file")
        if self.has_template:
            return self._generator.encode(messages)
        text = "\n\n".join(message.text for message in messages)
        try:
            return self._generator.encode(text)
        except UnavailableError:
            return text

    def opens_thought(self, messages: Sequence[ChatMessage]) -> bool:
        """Return whether the template begins a thought, which an answer then only ends; a server of chats tells them apart itself."""
        if self._sends_messages or not isinstance(self._generator, TemplateGenerator):
            return False
        try:
            return self._generator.render(messages).rstrip().endswith(THOUGHT_BEGIN)
        except UnavailableError:
            return False


class FilePrompts(Prompts):
    """Asks the prompts of a file in an order of the seed, again and again; warm-up begins at its end."""

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        self._prompts, self._order = prompts, file_order(len(prompts), seed)

    def of(self, number: int) -> Prompt:
        """Return the prompt of a query; see `Prompts.of`."""
        return self._prompts[self._order[number % len(self._order)]]


def file_order(count: int, seed: int) -> Sequence[int]:
    """Return the order in which the prompts of a file are asked."""
    return random.Random(seed).sample(range(count), count)  # noqa: S311 - a repeatable order is wanted


def score(
    file: PromptFile, seed: int, answers: Iterable[tuple[int, str]], *, opens_thought: bool = False
) -> tuple[Accuracy | None, str | None]:
    """Return the share of questions that were answered right, each by its first answer; else None and why.

    `answers` are texts with the number of their query; `opens_thought`: the prompts end within a thought.
    """
    if not file.has_answers:
        return None, f"not every prompt of {file.name} states its right answer: there is nothing to score"
    order, first = file_order(len(file.items), seed), dict[int, str]()
    for number, text in answers:
        first.setdefault(order[number % len(order)], THOUGHT_BEGIN + text if opens_thought else text)
    if len(first) < len(file.items):
        return None, f"{len(file.items) - len(first)} of {len(file.items)} questions were not answered"
    keys = {index: item.key for index, item in enumerate(file.items) if item.key is not None}
    figure = Share({index: key.accepts(first[index]) for index, key in keys.items()})
    bounds = figure.bounded([*keys], "questions")
    accuracy = Accuracy(
        metric="exact_match",
        value=figure.value([*keys]),
        images=len(keys),
        dataset_sha256=file.sha256,
        low=bounds.low,
        high=bounds.high,
        interval_reason=bounds.reason,
        without_parts=bounds.without_parts,
        normalisation=", ".join(sorted({key.rule for key in keys.values()})),
    )
    return accuracy, None
