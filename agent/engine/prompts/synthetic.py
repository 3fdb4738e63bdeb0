"""Synthetic prompts of seeded random tokens of exact length.

They are different for each query, so that no cache of prefixes can help.
"""

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.generators import LoadedGenerator

# Words for generators that take only texts; each is about one token for most tokenisers.
WORDS = (
    "time", "water", "light", "house", "river", "paper", "stone", "green", "north", "field",
    "night", "music", "table", "glass", "cloud", "bread", "metal", "round", "small", "early",
    "power", "board", "model", "query", "price", "garden", "summer", "window", "street", "market",
    "letter", "number", "simple", "quiet", "heavy", "bright",
)  # fmt: skip


class SyntheticPrompts:
    """The prompt of each query by its number.

    A text begins with the `salt`, which differs in each run.
    """

    def __init__(
        self, loaded: LoadedGenerator, prompt_tokens: int, seed: int, salt: str = ""
    ) -> None:
        self._loaded, self._tokens, self._seed, self._salt = loaded, prompt_tokens, seed, salt
        fixed = len(loaded.first_tokens)
        if loaded.text_tokens.size and prompt_tokens <= fixed:
            raise ConfigError(
                f"a prompt of {prompt_tokens} tokens has no room after the {fixed} that the "
                "model begins with: give more"
            )

    def of(self, number: int) -> list[int] | str:
        """Return the prompt of query `number`.

        The first token that is not fixed differs between queries, until the vocabulary is used up.
        """
        draw = np.random.default_rng((self._seed, abs(number), number < 0))
        text_tokens, length = self._loaded.text_tokens, self._tokens
        if not text_tokens.size:
            return " ".join(
                [
                    f"{self._salt}{number}:",
                    *(WORDS[index] for index in draw.integers(0, len(WORDS), max(1, length - 2))),
                ]
            )
        fixed = list(self._loaded.first_tokens)
        begin = int(text_tokens[(self._seed * 7919 + number) % text_tokens.size])
        following = text_tokens[draw.integers(0, text_tokens.size, max(0, length - len(fixed) - 1))]
        return [*fixed, begin, *map(int, following)]
