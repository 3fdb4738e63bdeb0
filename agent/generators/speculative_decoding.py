"""Speculative decoding, greedy: a draft model guesses a few tokens, and the model keeps those that it would have chosen itself.

The model checks all guesses in one step. The tokens are those without a draft, as long as it computes a batch as it does single tokens.
Source: Leviathan et al., Fast Inference from Transformers via Speculative Decoding; of its sampling the greedy case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgemeter.agent.generators import Ended, Limits, Stamp


class SteppedModel(Protocol):
    """A model with a cache: it processes tokens behind what it has cached, and forgets the end of that."""

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Process the tokens at once and return the likeliest next one after each of them."""

    def forget(self, position: int) -> None:
        """Drop everything from `position` (0, 1, ...) on from the cache."""


@dataclass(slots=True)
class Speculation:
    """The speculation of one answer: `steps` of the model so far, tokens `drafted` for them up to the end, and `accepted` of these.

    Both models have cached the prompt of `prompt_tokens`; `ends` returns how an answer ends with its newest token, None if it goes on.
    """

    model: SteppedModel
    draft: SteppedModel
    draft_tokens: int
    prompt_tokens: int
    ends: Callable[[list[int]], Ended | None]
    steps: int = 0
    drafted: int = 0
    accepted: int = 0

    def generate(self, answer: list[int], limits: Limits, stamp: Stamp) -> Ended:
        """Extend the answer, which has its first token, until it ends; the tokens of a step are stamped together."""
        draft_position = self.prompt_tokens
        ended = self.ends(answer)
        while ended is None:
            count = min(self.draft_tokens, limits.output_tokens - len(answer) - 1)
            begin = self.prompt_tokens + len(answer)
            guesses = self._guess(answer[draft_position - self.prompt_tokens :], count)
            choices = self.model.step([answer[-1], *guesses])
            right = next((index for index, guess in enumerate(guesses) if guess != choices[index]), len(guesses))
            # Cached are the answer before this step and the guesses: those behind the right ones are not its text.
            self.model.forget(begin + right)
            if guesses:
                draft_position = begin + min(right, len(guesses) - 1)
                self.draft.forget(draft_position)
            added = self._extend(answer, choices[: right + 1])
            stamp(added)
            ended = self.ends(answer)
            self.steps += 1
            self.drafted += min(len(guesses), added) if ended else len(guesses)
            self.accepted += min(right, added)
        return ended

    def _guess(self, unread: Sequence[int], count: int) -> list[int]:
        guesses: list[int] = []
        while len(guesses) < count:
            guesses.append(self.draft.step([guesses[-1]] if guesses else unread)[-1])
        return guesses

    def _extend(self, answer: list[int], tokens: Sequence[int]) -> int:
        """Append tokens until one ends the answer, and return how many."""
        for added, token in enumerate(tokens, 1):
            answer.append(token)
            if self.ends(answer):
                return added
        return len(tokens)
