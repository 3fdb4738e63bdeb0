"""Conversations: each query is a turn, whose prompt is all that came before it and what the user says next.

Users say what a file has them say, or synthetic prompts. With the prefix cache a turn may reuse what its own conversation left, nothing
of another; without it every turn is processed from its beginning.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.prompts import Prompts
from edgemeter.agent.engine.prompts.file_prompts import PromptEncoder
from edgemeter.agent.engine.prompts.prompt_file import PromptFile
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import ChatMessage, Generated, Generator, Limits, Prompt

State = TypeVar("State")


class Dialogue(Protocol[State]):
    """The parts of conversations; a state is all that was written before an answer."""

    def turn(self, number: int, turn: int, before: tuple[State, Generated] | None) -> State:
        """Return the state at turn `turn` of a conversation, query `number`, after the turn before it and its answer."""

    def prompt(self, state: State) -> Prompt:
        """Return the prompt that ends with what the user says."""


@dataclass(frozen=True, slots=True)
class SyntheticDialogue(Dialogue[list[int] | str]):
    """Users add a synthetic prompt at each turn."""

    generator: Generator
    synthetic: SyntheticPrompts
    first_tokens: int

    def turn(self, number: int, turn: int, before: tuple[list[int] | str, Generated] | None) -> list[int] | str:  # noqa: ARG002 - by number
        """Return the tokens, or the text, of all before with the next synthetic prompt."""
        new = self.synthetic.of(number)
        if before is None:
            return new
        state, answer = before
        if isinstance(new, str) or isinstance(state, str):
            return f"{state}{answer.text}\n{new}"
        written = answer.tokens or tuple(self.generator.encode(answer.text)[self.first_tokens :])
        return [*state, *written, *new[self.first_tokens :]]

    def prompt(self, state: list[int] | str) -> Prompt:
        """Return the state itself."""
        return state


@dataclass(frozen=True, slots=True)
class FileDialogue(Dialogue[tuple[ChatMessage, ...]]):
    """Users say what those of a file do: their messages of one conversation, or one prompt after the other where all have a single one."""

    encoder: PromptEncoder
    scripts: Sequence[Sequence[ChatMessage]]
    turns: int

    def turn(self, number: int, turn: int, before: tuple[tuple[ChatMessage, ...], Generated] | None) -> tuple[ChatMessage, ...]:
        """Return the messages up to the user's next; those of the system stand before the first."""
        script = self.scripts[(number if number >= 0 else -1 - number) // self.turns % len(self.scripts)]
        users = [index for index, message in enumerate(script) if message.role == "user"]
        if before is None:
            return tuple(script[: users[0] + 1])
        state, answer = before
        return (*state, ChatMessage("assistant", answer.text), script[users[turn]])

    def prompt(self, state: tuple[ChatMessage, ...]) -> Prompt:
        """Return the messages by the template."""
        return self.encoder.prompt(state)


def scripts_of(file: PromptFile, turns: int) -> list[list[ChatMessage]]:
    """Return what is said in each conversation but its answers: system and `turns` messages of the user.

    Raises:
        ConfigError: no conversation of the file has so many turns, or there are fewer prompts than turns.
    """
    if all(len(item.turns) == 1 for item in file.items):
        groups = [file.items[start : start + turns] for start in range(0, len(file.items) - turns + 1, turns)]
        scripts = [[*group[0].messages[:-1], *(ChatMessage("user", item.turns[0]) for item in group)] for group in groups]
    else:
        scripts = [
            [
                *(message for message in item.messages if message.role == "system"),
                *(ChatMessage("user", text) for text in item.turns[:turns]),
            ]
            for item in file.items
            if len(item.turns) >= turns
        ]
    if not scripts:
        raise ConfigError(f"{file.name} has no conversation of {turns} turns: give a smaller number of turns")
    return scripts


@dataclass(slots=True)
class Conversations(Prompts):
    """Turns of one conversation after the other, `turns` queries each; those of the warm-up are conversations of their own."""

    dialogue: Dialogue[Any]
    turns: int
    keeps_prefix: bool
    _run: str = field(default_factory=lambda: secrets.token_hex(8))
    _states: dict[int, object] = field(default_factory=dict)
    _answers: dict[int, Generated] = field(default_factory=dict)

    def turn_of(self, number: int) -> int:
        """Return the turn of a query, from 0."""
        return (number if number >= 0 else -1 - number) % self.turns

    def of(self, number: int) -> Prompt:
        """Return all that was said before the turn, and what the user says; see `Prompts.of`."""
        if number not in self._states:
            turn, last = self.turn_of(number), number - 1 if number >= 0 else number + 1
            if turn and last not in self._answers:
                raise ConfigError("a turn follows the answer to the one before it, which is missing: ask in order")
            before = (self._states[last], self._answers[last]) if turn else None
            self._states[number] = self.dialogue.turn(number, turn, before)
        return self.dialogue.prompt(self._states[number])

    def limits(self, number: int, limits: Limits) -> Limits:
        """Return the limits with the name of the conversation, whose prefix may be kept; of a repeated turn nothing is."""
        if not self.keeps_prefix or number in self._answers:
            return limits
        return replace(limits, prefix_cache=f"{self._run}-{(number if number >= 0 else number + 1) // self.turns}-{number < 0}")

    def answered(self, number: int, answer: Generated) -> None:
        """Keep the first answer to a turn: the next one follows it."""
        self._answers.setdefault(number, answer)
