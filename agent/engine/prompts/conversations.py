"""Conversations: each query is a turn, whose prompt is all that came before it and a synthetic text of the user.

With the prefix cache a turn may reuse what its own conversation left, nothing of another; without it every turn is processed from its
beginning. A turn that was not answered is left out of what follows it.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import Chat, ChatMessage, Generated, Generator, Limits, LoadedGenerator, Prompt, without_thought


@dataclass(slots=True)
class Conversations(Prompts):
    """One conversation after the other, `turns` queries each; queries of the warm-up are first turns."""

    generator: Generator
    loaded: LoadedGenerator
    synthetic: SyntheticPrompts
    turns: int
    keeps_prefix: bool
    _run: str = field(default_factory=lambda: secrets.token_hex(8))
    _answers: dict[int, Generated] = field(default_factory=dict)

    def turn_of(self, number: int) -> int:
        """Return the turn of a query, from 0."""
        return number % self.turns if number >= 0 else 0

    def of(self, number: int) -> Prompt:
        """Return all of the conversation before the turn, and the user's text; see `Prompts.of`."""
        new = self.synthetic.of(number)
        if isinstance(new, str):
            turns = [(str(text), answer.text) for text, answer in self._before(number)]
            if not self.loaded.abilities.chats:
                return "".join([*(f"{text}{answer}\n" for text, answer in turns), new])
            messages = [message for text, answer in turns for message in _spoken(text, without_thought(answer))]
            return Chat((*messages, ChatMessage("user", new)))
        first = len(self.loaded.first_tokens)
        tokens = list(self.loaded.first_tokens)
        for text, answer in self._before(number):
            tokens += [*text[first:], *(answer.tokens or self.generator.encode(answer.text)[first:])]
        return [*tokens, *new[first:]]

    def _before(self, number: int) -> Iterator[tuple[list[int] | str, Generated]]:
        """Yield what the user wrote, and the answer, of each turn before this one."""
        for earlier in range(number - self.turn_of(number), number):
            if (answer := self._answers.get(earlier)) is not None:
                yield self.synthetic.of(earlier), answer

    def limits(self, number: int, limits: Limits) -> Limits:
        """Return the limits with the name of the conversation, whose prefix may be kept; of a repeated turn nothing is."""
        if not self.keeps_prefix or number < 0 or number in self._answers:
            return limits
        return replace(limits, prefix_cache=f"{self._run}-{number // self.turns}")

    def answered(self, number: int, answer: Generated) -> None:
        """Keep the first answer to a turn: the next one follows it."""
        if number >= 0:
            self._answers.setdefault(number, answer)


def _spoken(text: str, answer: str) -> tuple[ChatMessage, ChatMessage]:
    return ChatMessage("user", text), ChatMessage("assistant", answer)
