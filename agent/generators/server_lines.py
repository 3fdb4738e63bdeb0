"""Lines of a streamed answer: OpenAI's pieces of completions and chats, with the timings that llama.cpp's server adds.

Source: OpenAI's API reference; llama.cpp tools/server/README.md.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.generators import Ended, EngineTimings


@dataclass(frozen=True, slots=True)
class Part:
    """The content of one line; None where the line does not state it.

    `thought` is what a reasoning model writes before its `text`. `total_tokens` counts all output so far, `output_tokens` and
    `prompt_tokens` the whole query, `reasoning_tokens` the thoughts among its output, streamed or not.
    """

    has_output: bool = False
    text: str = ""
    thought: str = ""
    total_tokens: int | None = None
    ended: Ended | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    own: EngineTimings | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    error: Any = None


class _Timings(msgspec.Struct):
    """The times of llama.cpp's engine; those of the prompt include the first token."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None

    @property
    def reasoning_tokens(self) -> int:
        """The tokens of thoughts; 0 where they are not stated."""
        return (self.completion_tokens_details and self.completion_tokens_details.reasoning_tokens) or 0

    @property
    def output_tokens(self) -> int:
        """All tokens that were generated: `completion_tokens` of xAI leave the thoughts out."""
        with_thoughts = self.completion_tokens + self.reasoning_tokens
        return with_thoughts if self.total_tokens == self.prompt_tokens + with_thoughts else self.completion_tokens

    def drafts(self) -> tuple[int | None, int | None]:
        """Return the tokens that speculation drafted, and those of them that were accepted; None where they are not stated."""
        details = self.completion_tokens_details or _Details()
        accepted, rejected = details.accepted_prediction_tokens, details.rejected_prediction_tokens
        # Servers without speculation state zeros.
        return (accepted + rejected, accepted) if accepted is not None and rejected is not None and accepted + rejected else (None, None)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Line(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


def read_line(content: bytes) -> Part:
    """Return what a line says, after `data:`; a chat's first line holds a role only, the last one the usage and often no choice.

    Raises:
        msgspec.MsgspecError: it is no part of an answer.
    """
    line = decode_json(content, _Line)
    choice = line.choices[0] if line.choices else _Choice()
    delta = choice.delta or choice.message or _Delta()
    text, thought = choice.text or delta.content or "", delta.reasoning_content or delta.reasoning or ""
    usage, timings = line.usage, line.timings
    drafts = (timings.draft_n, timings.draft_n_accepted) if timings and timings.draft_n else usage.drafts() if usage else (None, None)
    cached_tokens = usage.prompt_tokens_details.cached_tokens if usage and usage.prompt_tokens_details else None
    return Part(
        has_output=bool(text or thought or delta.tool_calls),
        text=text,
        thought=thought,
        total_tokens=timings.predicted_n if timings else None,
        ended=None if choice.finish_reason is None else "length" if choice.finish_reason == "length" else "end_of_text",
        # Proxies that do not count state 0.
        prompt_tokens=usage.prompt_tokens or None if usage else None,
        output_tokens=usage.output_tokens or None if usage else None,
        reasoning_tokens=usage.reasoning_tokens or None if usage else None,
        cached_tokens=timings.cache_n if timings and timings.cache_n is not None else cached_tokens,
        own=EngineTimings(timings.prompt_ms, timings.prompt_n, timings.predicted_ms, max(timings.predicted_n - 1, 0)) if timings else None,
        drafted_tokens=drafts[0],
        accepted_tokens=drafts[1],
        error=line.error,
    )
