"""Scores a loaded generator: its perplexity on a text."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.datasets.items import read_text
from edgemeter.agent.generators import Generator, LikelihoodGenerator, LoadedGenerator, create
from edgemeter.agent.quality.perplexity import DEFAULT_CONTEXT_TOKENS, Perplexity, perplexity
from edgemeter.agent.runtimes import Options


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The text to score on, in chunks of `context_tokens`."""

    text: str
    context_tokens: int = DEFAULT_CONTEXT_TOKENS


def read_material(path: Path, context_tokens: int) -> ScoredText:
    """Return the text in a file; raises ConfigError if it cannot be read."""
    return ScoredText(read_text(path, "the text"), context_tokens)


def score_file(path: Path, runtime: str, threads: int, material: ScoredText) -> Perplexity:
    """Return how good the model in a file is, as the generator `runtime` runs it.

    Raises:
        EdgemeterError: as `Generator.load` and `score_generator`.
    """
    with closing(create(runtime)) as generator:
        return score_generator(generator, generator.load(path, Options(threads=threads), material.context_tokens), material)


def score_generator(generator: Generator, loaded: LoadedGenerator, material: ScoredText) -> Perplexity:
    """Return how good the generator's predictions are.

    Raises:
        UnavailableError: it gives no likelihoods, or not the tokens of a text.
        ConfigError: the text is too short.
        MeasurementError: the engine failed.
    """
    if not isinstance(generator, LikelihoodGenerator):
        raise UnavailableError(f"{loaded.package} gives no likelihoods of a text: score the model's file in an engine")
    if not loaded.text_tokens.size:
        raise UnavailableError(
            f"{loaded.package} does not tell the tokens of a text, which a perplexity needs: score the model's file in an engine"
        )
    first = list(loaded.first_tokens)
    encoded = generator.encode(material.text)
    tokens = encoded if first and encoded[: len(first)] == first else [*first, *encoded]
    return perplexity(
        material.text,
        tokens,
        generator.likelihoods,
        bos_token=first[0] if first else None,
        context_tokens=material.context_tokens,
    )
