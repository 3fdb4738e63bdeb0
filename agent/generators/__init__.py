"""Generators: what generates text from a language model, token by token. Their base class, and the table of names.

A runtime (`edgemeter.agent.runtimes`) is one call; a generator also stamps the arrival of each token. A generator is one file here, one
line in `GENERATORS` and one fixture under `tests/fixtures/generators/`. Others register theirs through the entry point group
`edgemeter.generators`.

A *prompt* is processed at once (*prefill*), then tokens are *decoded* one by one. TTFT is the time from handing over the prompt to the
first token. TPOT is the mean time of each further one: (last - first) / (n - 1).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.record_generation import TokenCounts
from edgemeter.agent.runtimes import Options

GENERATORS: Mapping[str, str] = {
    "llama": "edgemeter.agent.generators.local_server:LocalServer",
    "replay": "edgemeter.agent.generators.replay:ReplayGenerator",
    "server": "edgemeter.agent.generators.server:ServerGenerator",
}
ENTRY_POINTS = "edgemeter.generators"

# Why a query was over: it had the tokens that were asked for, or the model ended the text.
Ended = Literal["length", "end_of_text"]

# Called with n when n more tokens are in the generator's hands; takes about 1 us, never raises.
Stamp = Callable[[int], None]

# Tokens that one step gives at most, where some are guessed: they come in one piece.
LONGEST_STEP = 8
# Around what a reasoning model thinks before it answers.
THOUGHT_BEGIN, THOUGHT_END = "<think>", "</think>"


def without_thought(text: str) -> str:
    """Return the answer behind what a reasoning model thought; empty where it came to no end of that."""
    return "" if text.lstrip().startswith(THOUGHT_BEGIN) and THOUGHT_END not in text else text.rpartition(THOUGHT_END)[2]


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt that is a user's message, to which a server applies the model's template."""

    text: str


# Tokens, a text, or a message.
Prompt: TypeAlias = "Sequence[int] | str | Chat"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a query ends: after `output_tokens`; also at the model's end of text unless `ignore_end`.

    Sampling is greedy: always the likeliest token.
    """

    output_tokens: int
    ignore_end: bool = True


@dataclass(frozen=True, slots=True)
class GeneratorAbilities:
    """The abilities of a generator; for what it cannot do, a rule of the verdict applies or the record holds a reason.

    `counts`: `exact`, it hands over every token by itself; `usage`, a server states the total of each query; `estimated`, its chunks of
    text were counted, or tokenised again. `ignores_end`: it goes on after the model's end of text, so that lengths are exact.
    `chats`: a prompt may be a `Chat`. `is_local`: the run starts and ends the engine, so that memory and energy are known to be its own.
    """

    counts: TokenCounts = "exact"
    ignores_end: bool = True
    chats: bool = False
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class LoadedGenerator:
    """The facts that a generator learns when it loads a model; None is unknown.

    `name` is the one that the model has by itself. `precision` is the type of most weight bytes in lower case (f16, q4_0).
    `context_tokens` is what a query may take with its output, `trained_context_tokens` what the model was made for. `text_tokens` are the
    ids that stand for ordinary text, int32 [n], from which synthetic prompts are drawn; empty where the generator takes prompts as text
    only. `first_tokens` is what a prompt has to begin with (the begin-of-text token, where the model wants one). `speculative` says how
    several tokens a step are guessed, None if they are not. `template_tokens` is how many tokens at the beginning of each prompt are those
    of a chat template, which a server may take from its cache. `process` holds the model; None: this one, or a server's. `facts` are what
    else a record should hold of how it runs (the engine's own system info, the extra fields of requests).
    `import_ns` and `load_ns` are monotonic durations.
    """

    package: str
    version: str
    backend: str
    import_ns: int
    load_ns: int
    context_tokens: int
    text_tokens: NDArray[np.int32]
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
    """The result of a query.

    `output_tokens` counts the tokens generated, as `GeneratorAbilities.counts` tells. `prompt_tokens` is the whole prompt as the engine
    counted it, `cached_tokens` the part of it that was not processed again; None where a server states neither. `stamped_tokens` are the
    tokens of each stamp, where they are known only when the answer has ended. `unstreamed` is why the stamps are no moments of tokens: the
    answer came in one piece. `hidden_reasoning_tokens` came before the first stamp, which counts them; None where there are none, or none
    are stated. A server guessed `drafted_tokens`, `accepted_tokens` of them are in the answer; None where it states none.
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
    """Generates text from one model; used from one thread; constructed without arguments and without importing its library.

    The calls come in the order load, (bind, query)*, close; close may come twice, and after a failed load. The generator owns the
    loop, its caller owns the clock: each time that new tokens are in the generator's hands (accelerator synchronised, or bytes received) it
    calls `stamp`. This fits engines that are stepped, engines that call back, and servers that stream.
    """

    @abstractmethod
    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Import the library, load the model, allocate the cache for queries of `context_tokens` (prompt and output).

        For a server `model` is the file that describes it; nothing is loaded, but it is asked whether it is there.

        Raises:
            UnavailableError: the library is not installed (names the extra), the backend is not on this machine, no server answers.
            ConfigError: the file is not a model of this generator, is broken, or needs what this machine lacks: also more context than
                the model was trained for, or memory holds.
        """

    @abstractmethod
    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Drop every cache, make `prompt` ready, and return the bare query; it runs once.

        The query is what gets timed: it processes the prompt, generates, and calls `stamp(n)` when n more tokens are there. Its first stamp
        ends the prefill; decoding what comes into text may follow the last stamp only.

        Raises:
            ConfigError: the prompt with its output exceeds the context, holds ids that the model does not have, or has to be tokens here.
            AnswerError: (the query) the server did not answer it.
            MeasurementError: (the query) the engine failed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    def check(self, model: Path, options: Options) -> None:  # noqa: B027 - some have nothing to check
        """Raise as `load` what shows without loading the model; see `Runtime.check`."""


class ConcurrentGenerator(Generator):
    """A generator that answers several queries at once: a server."""

    @abstractmethod
    def bind_concurrent(self, prompt: Prompt, limits: Limits, user: int | None = None) -> Query:
        """Return a query that may run in any thread beside others, on a connection of its own, which it opens and closes.

        The queries of a `user` (0, 1, ...) come one after the other, and share a connection that stays open until the generator closes.

        No cache is dropped before it beyond what its own request asks for: that takes prompts which share no beginning.

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
        UnavailableError: it is another package's, and cannot be imported.
    """
    generator: Generator = find_plugin("generator", GENERATORS, name, ENTRY_POINTS)()
    return generator


def check_tokens(prompt: Prompt, limits: Limits, context_tokens: int, vocabulary: int) -> Sequence[int]:
    """Return the prompt of a generator that takes tokens: ids below `vocabulary`, with its output at most `context_tokens`.

    Raises:
        ConfigError: it is a text or empty, holds ids that the model does not have, or is too long; or no output is asked for.
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
            f"a prompt of {len(prompt)} tokens and {limits.output_tokens} of output need a context of {needed_tokens}, "
            f"{context_tokens} are allocated: shorten one of them"
        )
    return prompt
