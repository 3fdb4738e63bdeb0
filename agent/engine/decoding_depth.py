"""Decoding at a depth: the context is filled once a run, then each query decodes from there, so that none pays for a prefill."""

from collections.abc import Sequence

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import Chat, ChatMessage, DepthGenerator, Generator, Limits, LoadedGenerator, Prompt, Query


class FirstSteps(SyntheticPrompts):
    """Makes the token that each query's first step takes behind a context of `depth` synthetic tokens, `filling`.

    It differs from query to query, as the first token of a prompt does: a mixture of experts does not walk the same way each time.
    """

    def __init__(self, loaded: LoadedGenerator, depth: int, seed: int) -> None:
        self._fixed = len(loaded.first_tokens)
        super().__init__(loaded, self._fixed + depth + 1, seed)
        self.filling = super().of(0)[:depth]

    def of(self, number: int, prompt_tokens: int | None = None) -> list[int] | str:
        """Return the token as a prompt."""
        return super().of(number, prompt_tokens)[self._fixed : self._fixed + 1]


class FilledGenerator:
    """A generator of whose queries each begins behind the context that was filled when this was made.

    Raises:
        ConfigError: the generator cannot begin behind a context.
    """

    def __init__(self, generator: Generator, loaded: LoadedGenerator, steps: FirstSteps) -> None:
        if not isinstance(generator, DepthGenerator) or isinstance(steps.filling, str):
            raise ConfigError(
                f"{loaded.package} does not decode behind a context that it keeps: measure with --prompt-tokens instead of --depth, which "
                "pays for the prompt in each query"
            )
        generator.fill(steps.filling)
        self._generator, self._at_depth = generator, generator

    def encode(self, prompt: str | Sequence[ChatMessage]) -> list[int]:
        """Return the tokens of a text; see `Generator.encode`."""
        return self._generator.encode(prompt)

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Return a query whose first step takes the only token of `prompt`."""
        if isinstance(prompt, str | Chat):
            raise ConfigError("behind a filled context a prompt is one token: give a token")
        return self._at_depth.bind_behind(int(prompt[0]), limits)
