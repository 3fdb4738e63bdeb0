"""Generators: what generates text from a language model, token by token.

Their base class, and the table of names.

A runtime (`edgemeter.agent.runtimes`) is one call; a generator also stamps the arrival of each
token. A generator is one file here, one line in `GENERATORS` and one fixture under
`tests/fixtures/generators/`. Others register theirs through the entry point group
`edgemeter.generators`.

A *prompt* is processed at once (*prefill*), then tokens are *decoded* one by one. TTFT is the time
from handing over the prompt to the first token. TPOT is the mean time of each further one: (last -
first) / (n - 1).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.record_generation import TokenCounts
from edgemeter.agent.runtimes import Options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GENERATORS: Mapping[str, str] = {
    "llama": "edgemeter.agent.generators.local_server:LocalServer",
    "replay": "edgemeter.agent.generators.replay:ReplayGenerator",
    "server": "edgemeter.agent.generators.server:ServerGenerator",
}
ENTRY_POINTS = "edgemeter.generators"

# Why a query ended: it had the requested tokens, or the model ended the text.
Ended = Literal["length", "end_of_text"]

# Called with n when n more tokens have arrived; takes about 1 us, never raises.
Stamp = Callable[[int], None]

# The most tokens of one step of speculative decoding, which come in one piece.
LONGEST_STEP = 8
# The marks around the reasoning before an answer.
THOUGHT_BEGIN, THOUGHT_END = "<think>", "</think>"


def without_thought(text: str) -> str:
    """Return the answer after a reasoning model's thoughts; empty if these have no end."""
    return (
        ""
        if text.lstrip().startswith(THOUGHT_BEGIN) and THOUGHT_END not in text
        else text.rpartition(THOUGHT_END)[2]
    )


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt that is a user's message, to which a server applies the model's template."""

    text: str


# Tokens, a text, or a message.
Prompt: TypeAlias = "Sequence[int] | str | Chat"


@dataclass(frozen=True, slots=True)
class Limits:
    """The end of a query, whose sampling is greedy.

    It is after `output_tokens`, and at the model's end of text unless `ignore_end`.
    """

    output_tokens: int
    ignore_end: bool = True


@dataclass(frozen=True, slots=True)
class GeneratorAbilities:
    """The abilities of a generator.

    If one is missing, a rule of the verdict applies, or the record has a reason.

    Attributes:
        counts: `exact`, every token arrives by itself; `usage`, a server reports the total of each
            query; `estimated` from chunks of text.
        ignores_end: it generates beyond the model's end of text, so that lengths are exact.
        chats: a prompt may be a `Chat`.
        is_local: the run starts and ends the engine, so that memory and energy are its own.
    """

    counts: TokenCounts = "exact"
    ignores_end: bool = True
    chats: bool = False
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class LoadedGenerator:
    """The facts that a generator learns when it loads a model; None is unknown.

    Attributes:
        context_tokens: the longest query with its output.
        trained_context_tokens: the longest query with its output in the model's training.
        text_tokens: ids of ordinary text for synthetic prompts, int32 [n]; empty if prompts are
            texts.
        first_tokens: the beginning of each prompt (the begin-of-text token, if the model needs
            one).
        name: the model's own name.
        precision: the type of most weight bytes in lower case (f16, q4_0).
        speculative: the method that guesses several tokens a step, None without one.
        template_tokens: the number of tokens of the chat template at the beginning of a prompt,
            which a server may have cached.
        process: the process with the model; None: this one, or a server's.
        facts: further facts for the record (the engine's system info, the extra fields of
            requests).
    """

    package: str
    version: str
    backend: str
    import_ns: int
    load_ns: int
    context_tokens: int
    text_tokens: "NDArray[np.int32]"
    first_tokens: tuple[int, ...] = ()
    name: str | None = None
    precision: str | None = None
    parameters: int | None = None
    trained_context_tokens: int | None = None
    kv_type: str | None = None
    speculative: str | None = None
    template_tokens: int = 0
    process: int | None = None
    abilities: GeneratorAbilities = GeneratorAbilities()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generated:
    """The result of a query; None is unknown.

    Attributes:
        output_tokens: the generated tokens, counted as `GeneratorAbilities.counts` says.
        prompt_tokens: the prompt by the engine's count.
        cached_tokens: the part of the prompt that was not processed again.
        stamped_tokens: the tokens of each stamp, if they are known only at the end of the answer.
        unstreamed: why the stamps are not the times of tokens: the answer came in one piece.
        drafted_tokens: the tokens that a server guessed.
        accepted_tokens: the guessed tokens that are in the answer.
        hidden_reasoning_tokens: tokens before the first stamp, which counts them.
    """

    text: str
    ended: Ended
    prompt_tokens: int | None
    output_tokens: int
    cached_tokens: int | None
    stamped_tokens: tuple[int, ...] = ()
    unstreamed: str | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    hidden_reasoning_tokens: int | None = None


Query = Callable[[Stamp], Generated]


class Generator(ABC):
    """Generates text from one model.

    It is used from one thread, and constructed without arguments and without importing its library.

    The calls come in the order load, (bind, query)*, close; close may be called twice, and after a
    failed load. The generator owns the loop, its caller owns the clock: the generator calls `stamp`
    each time that new tokens have arrived (accelerator synchronised, or bytes received). This fits
    engines that are stepped, engines that call back, and servers that stream.
    """

    @abstractmethod
    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Import the library, load the model, and allocate the cache.

        The cache is for queries of `context_tokens` (prompt and output).

        For a server, `model` is the file with its address, and the server is asked for its facts.

        Raises:
            UnavailableError: the library is not installed (names the extra), the backend is not on
                this machine, no server answers.
            ConfigError: the file is not a model of this generator, is broken, or needs something
                that this machine lacks, such as memory, or a longer context than the model has.
        """

    @abstractmethod
    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Clear every cache, prepare `prompt`, and return the bare query, which is called once.

        The query is timed: it processes the prompt, generates, and calls `stamp(n)` when n more
        tokens have arrived. The first stamp ends the prefill. Tokens may be decoded to text only
        after the last stamp.

        Raises:
            ConfigError: the prompt with its output exceeds the context, has unknown ids, or must be
                tokens.
            AnswerError: (by the query) the server did not answer.
            MeasurementError: (by the query) the engine failed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    # Some have nothing to check.
    def check(self, model: Path, options: Options) -> None:  # noqa: B027
        """Raise the errors of `load` that can be found without loading the model.

        See `Runtime.check`.
        """


class ConcurrentGenerator(Generator):
    """A generator that answers several queries at once: a server."""

    @abstractmethod
    def bind_concurrent(self, prompt: Prompt, limits: Limits, user: int | None = None) -> Query:
        """Return a query that may run in any thread at the same time as others.

        It has a connection of its own, which it opens and closes.

        The queries of a `user` (0, 1, ...) come one after the other, and share a connection that
        stays open until the generator closes.

        Caches are cleared only as the request itself asks, so prompts must not share their
        beginnings.

        Raises:
            ConfigError: see `Generator.bind`.
        """


def names() -> list[str]:
    """Return the names of all known generators, ours first."""
    return plugin_names(GENERATORS, ENTRY_POINTS)


def create(name: str) -> Generator:
    """Return a generator that has loaded nothing yet.

    Raises:
        ConfigError: no generator has that name.
        UnavailableError: its package cannot be imported.
    """
    generator: Generator = find_plugin("generator", GENERATORS, name, ENTRY_POINTS)()
    return generator


def check_tokens(
    prompt: Prompt, limits: Limits, context_tokens: int, vocabulary: int
) -> Sequence[int]:
    """Return the prompt as tokens, with ids below `vocabulary`.

    With the output they are at most `context_tokens`.

    Raises:
        ConfigError: it is a text or empty, has unknown ids, or is too long; or no output is asked
            for.
    """
    if isinstance(prompt, str | Chat):
        raise ConfigError("this generator takes a prompt as tokens: encode the text first")
    if limits.output_tokens < 1:
        raise ConfigError(f"cannot generate {limits.output_tokens} tokens: ask for 1 or more")
    if not prompt:
        raise ConfigError("cannot generate from an empty prompt: give 1 token or more")
    wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise ConfigError(f"the model has no token {wrong}: its ids are 0 to {vocabulary - 1}")
    needed_tokens = len(prompt) + limits.output_tokens
    if needed_tokens > context_tokens:
        raise ConfigError(
            f"a prompt of {len(prompt)} tokens and {limits.output_tokens} of output need a "
            f"context of {needed_tokens}, "
            f"{context_tokens} are allocated: shorten one of them"
        )
    return prompt
