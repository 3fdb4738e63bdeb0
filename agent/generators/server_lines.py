"""Lines of a streamed answer.

They are OpenAI's pieces of completions and chats, with timings of llama.cpp's server.

Source: OpenAI's API reference; llama.cpp tools/server/README.md.
"""

from typing import Any

import msgspec

from edgemeter.agent.base.foreign_text import decode_json


class Timings(msgspec.Struct):
    """The counts in the timings of llama.cpp's engine."""

    predicted_n: int
    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class Usage(msgspec.Struct):
    """The counts at the end of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None

    @property
    def reasoning_tokens(self) -> int:
        """The number of reasoning tokens; 0 if it is not reported."""
        return (
            self.completion_tokens_details and self.completion_tokens_details.reasoning_tokens
        ) or 0

    @property
    def output_tokens(self) -> int:
        """The number of all generated tokens; xAI leaves reasoning out of `completion_tokens`."""
        with_thoughts = self.completion_tokens + self.reasoning_tokens
        return (
            with_thoughts
            if self.total_tokens == self.prompt_tokens + with_thoughts
            else self.completion_tokens
        )

    def drafts(self) -> tuple[int | None, int | None]:
        """Return the numbers of drafted and accepted tokens; None if they are not reported."""
        details = self.completion_tokens_details or _Details()
        accepted, rejected = details.accepted_prediction_tokens, details.rejected_prediction_tokens
        return (
            (None, None)
            if accepted is None or rejected is None
            else (accepted + rejected, accepted)
        )


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

    @property
    def new_text(self) -> str:
        """The new part of the answer."""
        delta = self.delta or self.message
        return self.text or (delta and delta.content) or ""

    @property
    def thought(self) -> str:
        """The new part of the reasoning before the answer."""
        delta = self.delta or self.message
        return (delta and (delta.reasoning_content or delta.reasoning)) or ""

    @property
    def has_output(self) -> bool:
        """Whether there is new output: a tool call is, the role of a chat is not."""
        delta = self.delta or self.message
        return bool(self.new_text or self.thought or (delta and delta.tool_calls))


class Line(msgspec.Struct):
    """One line of an answer; the last one has the usage, and often no choice."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    error: Any = None

    @property
    def choice(self) -> _Choice:
        """The one choice, empty if there is none."""
        return self.choices[0] if self.choices else _Choice()


def read_line(content: bytes) -> Line:
    """Return the line after `data:`; raises msgspec.MsgspecError if it is not part of an answer."""
    return decode_json(content, Line)
