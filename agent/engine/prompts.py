"""Synthetic prompts: seeded random tokens of exact length, another for each query, so that no cache of prefixes can help."""

import hashlib

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_identity import USUAL_KV_TYPE
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.generators import LoadedGenerator

# Words for generators that take texts only; each is about one token to most tokenisers.
WORDS = (
    "time", "water", "light", "house", "river", "paper", "stone", "green", "north", "field", "night", "music", "table", "glass", "cloud",
    "bread", "metal", "round", "small", "early", "power", "board", "model", "query", "price", "garden", "summer", "window", "street",
    "market", "letter", "number", "simple", "quiet", "heavy", "bright",
)  # fmt: skip


def dataset(loaded: LoadedGenerator, prompt_tokens: int, output_tokens: int, seed: int) -> DatasetInfo:
    """Return how such prompts are named in a record: all that must be equal for two runs to have done the same work.

    These are the lengths and the seed, and where they are not the usual ones the type of the cache, speculation, the end of a query,
    and that a server answered.
    """
    able = loaded.abilities
    unusual = [
        f"kv {loaded.kv_type}" if loaded.kv_type not in (None, USUAL_KV_TYPE) else "",
        f"speculative {loaded.speculative}" if loaded.speculative else "",
        "" if able.ignores_end else "to the end of text",
        "" if able.is_local else "served",
    ]
    name = ", ".join([f"synthetic {prompt_tokens}+{output_tokens} tokens", *filter(None, unusual)])
    return DatasetInfo(name=name, sha256=hashlib.sha256(f"{name} {seed}".encode()).hexdigest(), images=0, annotated=False)


class SyntheticPrompts:
    """Makes the prompt of each query by its number."""

    def __init__(self, loaded: LoadedGenerator, prompt_tokens: int, seed: int) -> None:
        self._loaded, self._tokens, self._seed = loaded, prompt_tokens, seed
        fixed = len(loaded.first_tokens)
        if loaded.text_tokens.size and prompt_tokens <= fixed:
            raise ConfigError(f"a prompt of {prompt_tokens} tokens has no room beside the {fixed} that the model begins with: give more")

    def of(self, number: int) -> list[int] | str:
        """Return the prompt of query `number` (0, 1, ... or -1, -2, ...): tokens, or a text where the generator takes no tokens.

        The first token that is not fixed differs from those of the other queries, until the vocabulary is used up.
        """
        draw = np.random.default_rng((self._seed, abs(number), number < 0))
        known = self._loaded.text_tokens
        if not known.size:
            return " ".join([f"{number}:", *(WORDS[place] for place in draw.integers(0, len(WORDS), max(1, self._tokens - 2)))])
        fixed = list(self._loaded.first_tokens)
        begin = int(known[(self._seed * 7919 + number) % known.size])
        rest = known[draw.integers(0, known.size, self._tokens - len(fixed) - 1)]
        return [*fixed, begin, *map(int, rest)]
