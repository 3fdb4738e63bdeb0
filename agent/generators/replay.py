r"""Replay: plays the recorded moments of tokens, for demonstrations and tests.

Protocol: it runs no model. The model is a JSON file, usually named `NAME.replay.json`. A sample is
tests/fixtures/generators/replay.replay.json:

    {"format": "edgemeter-generation-replay", "schema": 1,
     "queries": [{"first_ms": 80.0, "steps_ms": [5.1, 5.0],
                  "step_tokens": 1}],        in turn; all below is optional
     "prefill_ms_per_token": 0.2,            added to `first_ms`
     "load_ms": 120.0, "vocabulary": 256, "context_tokens": 4096,
     "cached_tokens": 0, "precision": "q8_0",
     "end_after_tokens": 40,                 end of text, even if it is to be ignored
     "facts": {"n_ctx": "512"}}

`steps_ms` are the gaps between stamps of `step_tokens` tokens, played in turn. Token i of an answer
is (sum of the prompt + i) modulo the vocabulary, so the same prompt gives the same tokens. Waiting
is as in the runtime `replay`: `wait = "sleep"` never spins. It needs no library.
"""

import time
from itertools import cycle
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.base.types import Count, Positive
from edgemeter.agent.generators import (
    Generated,
    Generator,
    Limits,
    LoadedGenerator,
    Prompt,
    Query,
    Stamp,
    check_tokens,
)
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import check_options
from edgemeter.agent.runtimes.replay import Milliseconds, read_recording, spinning_ns, wait_until


class RecordedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The times of one query."""

    first_ms: Milliseconds
    steps_ms: Annotated[tuple[Milliseconds, ...], msgspec.Meta(min_length=1)]
    step_tokens: Positive = 1


class GenerationReplay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recorded queries and the model that they belong to."""

    format: Literal["edgemeter-generation-replay"]
    schema: Annotated[int, msgspec.Meta(ge=1, le=1)]
    queries: Annotated[tuple[RecordedQuery, ...], msgspec.Meta(min_length=1)]
    prefill_ms_per_token: Milliseconds = 0.0
    load_ms: Milliseconds = 0.0
    vocabulary: Annotated[int, msgspec.Meta(ge=2, le=1 << 20)] = 256
    context_tokens: Positive = 4096
    end_after_tokens: Positive | None = None
    cached_tokens: Count = 0
    precision: str | None = None
    facts: dict[str, str] = {}


class ReplayGenerator(Generator):
    """Plays the times of a recorded model."""

    def __init__(self) -> None:
        self._recorded: GenerationReplay | None = None
        self._queries: cycle[RecordedQuery] = cycle(())
        self._context_tokens = 0
        self._spin_ns = 0

    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Read the recording and wait for its load time; see `Generator.load`."""
        # A session reads this file too, and does not need it.
        from importlib.metadata import version  # noqa: PLC0415

        import numpy as np  # noqa: PLC0415 - as above

        check_options("replay", options, backends=("replay",), extra=("wait",))
        started_ns = time.monotonic_ns()
        self._spin_ns = spinning_ns(options.extra.get("wait", "spin"))
        recorded = read_recording(model, GenerationReplay, "replay of generation", __name__)
        if context_tokens > recorded.context_tokens:
            raise ConfigError(
                f"{str(model)!r} has a context of {recorded.context_tokens} tokens, "
                f"{context_tokens} are needed: shorten the prompt"
            )
        self._recorded, self._queries, self._context_tokens = (
            recorded,
            cycle(recorded.queries),
            context_tokens,
        )
        wait_until(started_ns + round(recorded.load_ms * NS_PER_MS), self._spin_ns)
        return LoadedGenerator(
            package="edgemeter",
            version=version("edgemeter"),
            backend="replay",
            import_ns=0,
            load_ns=time.monotonic_ns() - started_ns,
            context_tokens=context_tokens,
            text_tokens=np.arange(recorded.vocabulary, dtype=np.int32),
            precision=recorded.precision,
            trained_context_tokens=recorded.context_tokens,
            facts=recorded.facts,
        )

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Return a query with the times of the next recorded one; see `Generator.bind`."""
        recorded = self._recorded
        if recorded is None:
            raise ConfigError("the replay has no recording: load one first")
        tokens = (
            [byte % recorded.vocabulary for byte in prompt.encode()]
            if isinstance(prompt, str)
            else prompt
        )
        tokens = check_tokens(tokens, limits, self._context_tokens, recorded.vocabulary)
        played = next(self._queries)
        output_tokens = min(limits.output_tokens, recorded.end_after_tokens or limits.output_tokens)
        moments = _moments_ns(
            played.first_ms + len(tokens) * recorded.prefill_ms_per_token, played, output_tokens
        )
        vocabulary, spin = recorded.vocabulary, self._spin_ns
        answer = tuple((sum(tokens) + index) % vocabulary for index in range(output_tokens))

        def query(stamp: Stamp) -> Generated:
            started_ns = time.monotonic_ns()
            for moment_ns, count in moments:
                wait_until(started_ns + moment_ns, spin)
                stamp(count)
            return Generated(
                text="".join(chr(32 + token % 95) for token in answer),
                ended="length" if output_tokens == limits.output_tokens else "end_of_text",
                prompt_tokens=len(tokens),
                output_tokens=output_tokens,
                cached_tokens=recorded.cached_tokens,
            )

        return query

    def close(self) -> None:
        """Forget the recording."""
        self._recorded = None
        self._queries = cycle(())


def _moments_ns(
    first_ms: float, played: RecordedQuery, output_tokens: int
) -> list[tuple[int, int]]:
    """Return the times of stamps from the start, each with its number of tokens."""
    steps, remaining = cycle(played.steps_ms), output_tokens
    at_ms, moments = first_ms, []
    while remaining > 0:
        count = min(played.step_tokens, remaining)
        moments.append((round(at_ms * NS_PER_MS), count))
        remaining -= count
        at_ms += next(steps)
    return moments
