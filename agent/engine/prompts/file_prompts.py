"""Prompts of a file, by the model's chat template or without one, and the score of their answers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.statistics import wilson_interval
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.prompt_file import PromptFile
from edgemeter.agent.generators import Chat, ChatMessage, Generator, LoadedGenerator, Prompt
from edgemeter.agent.quality.short_answers import best_scores

Template = Literal["model", "none"]


class PromptEncoder:
    """Makes prompts of messages: by the model's template where it has one and none is asked for otherwise.

    Raises:
        ConfigError: the template asked for is not there, or the server applies its own in any case.
    """

    def __init__(self, generator: Generator, loaded: LoadedGenerator, template: Template | None) -> None:
        self._generator, chats = generator, loaded.abilities.chats
        has_template = chats != "none" or loaded.chat_template is not None
        self.template: Template = template or ("model" if has_template else "none")
        if self.template == "model" and not has_template:
            raise ConfigError(f"{loaded.package} knows no chat template of this model: leave template out, or give none")
        if self.template == "none" and chats == "only":
            raise ConfigError(f"{loaded.package} applies its chat template itself: leave template out, or use another endpoint")
        self._sends_messages = chats != "none" and self.template == "model"

    def prompt(self, messages: Sequence[ChatMessage]) -> Prompt:
        """Return the prompt: tokens, or where the generator takes none the messages or their text."""
        if self._sends_messages:
            return Chat(tuple(messages))
        if self.template == "model":
            try:
                return self._generator.encode(messages)
            except UnavailableError as error:
                raise ConfigError(f"the chat template cannot be applied ({error}): switch it off by --template none") from error
        text = "\n\n".join(message.text for message in messages)
        try:
            return self._generator.encode(text)
        except UnavailableError:
            return text

    def tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of the prompt, of a text that only a server can count the most that they can be: its bytes."""
        prompt = self.prompt(messages)
        if isinstance(prompt, str | Chat):
            return sum(len(message.text.encode()) + 16 for message in messages)
        return len(prompt)


class FilePrompts(Prompts):
    """Asks the prompts of a file in its order, again and again; warm-up begins at its end."""

    def __init__(self, file: PromptFile, encoder: PromptEncoder) -> None:
        self._prompts = [encoder.prompt(item.messages) for item in file.items]

    def of(self, number: int) -> Prompt:
        """Return the prompt of a query; see `Prompts.of`."""
        return self._prompts[number % len(self._prompts)]


def score(file: PromptFile, answers: Iterable[tuple[int, str]], dataset_sha256: str) -> Accuracy | None:
    """Return the share of questions that were answered exactly, each by its first answer; None where not all were asked.

    `answers` are texts with the number of their query. As in `models quality` an answer ends with its first line.
    """
    questions, first = file.questions, _first_answers(answers, len(file.items))
    if not questions or len(first) < len(questions):
        return None
    scores = [best_scores(first[index], question.answers) for index, question in enumerate(questions)]
    correct, count = sum(exact for exact, _ in scores), len(questions)
    low, high = wilson_interval(correct, count)
    return Accuracy(
        metric="exact_match",
        value=correct / count,
        images=count,
        dataset_sha256=dataset_sha256,
        detail={"f1": sum(f1 for _, f1 in scores) / count},
        low=low,
        high=high,
        interval="95%, Wilson; questions taken as independent",
        normalisation="squad",
    )


def _first_answers(answers: Iterable[tuple[int, str]], count: int) -> Mapping[int, str]:
    first: dict[int, str] = {}
    for number, text in answers:
        first.setdefault(number % count, text.strip().partition("\n")[0])
    return first
