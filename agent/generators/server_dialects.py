"""How servers of language models differ: the request for a query, and what each line of the streamed answer means.

| dialect | path | prompt | cache off by | length fixed by | tokens of a chunk | own timings |
| --- | --- | --- | --- | --- | --- | --- |
| llama-server | /completion | tokens | `cache_prompt: false` | `ignore_eos` | `tokens_predicted`, `tokens` | `timings` |
| llama-server, chat | /v1/chat/completions | text | `cache_prompt: false` | `ignore_eos` | from `usage` | `timings` |
| vllm | /v1/completions or chat | tokens or text | `cache_salt` | `ignore_eos`, `min_tokens` | `continuous_usage_stats` | none |
| ollama | /api/generate | text | another prompt before | not | counted, total from `eval_count` | durations in ns |
| openai | /v1/completions or chat | text | another prompt before | not (`extra`) | counted, total from `usage` | none |

Source: llama.cpp tools/server/README.md; vLLM's OpenAI-compatible server; Ollama docs/api.md; OpenAI's API reference.
"""

import base64
import mimetypes
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import msgspec

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.base.nanoseconds import NS_PER_MS
from edgemeter.agent.generators import Chat, ChatMessage, Ended, EngineTimings, Limits, Prompt

Endpoint = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class Request:
    """The request to post for a query."""

    path: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The content of one line; None where the line does not state it.

    `thought` is what a reasoning model writes before its `text`. `total_tokens` counts all output so far, `output_tokens` and
    `prompt_tokens` the whole query, `reasoning_tokens` the thoughts among its output, streamed or not.
    """

    has_output: bool = False
    text: str = ""
    thought: str = ""
    tokens: tuple[int, ...] = ()
    total_tokens: int | None = None
    ended: Ended | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    own: EngineTimings | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    speculative: str | None = None
    error: Any = None


class Dialect(Protocol):
    """One kind of server.

    `takes_tokens`: a prompt may be token ids. `chats`: it takes messages. `ignores_end`: it can be told to go on after the end of text.
    `evicts`: only another prompt drops what it keeps of the last one. `is_chat`: it puts a chat template around each prompt, text too.
    """

    package: str
    ping_path: str
    takes_tokens: bool = False
    chats: bool = False
    ignores_end: bool = False
    evicts: bool = True
    is_chat: bool = False

    def request(self, prompt: Prompt, limits: Limits, context_tokens: int) -> Request:
        """Return the request for a streamed query, greedy."""

    def tokenise(self, text: str, *, special: bool) -> Request | None:
        """Return the request whose answer holds the tokens of `text`, begun as the model wants if `special`; None: it has none."""
        del text, special
        return None

    def render(self, messages: Sequence[ChatMessage]) -> Request | None:
        """Return the request whose answer holds the text of `messages` by the chat template; None: it has none."""
        del messages
        return None

    def scored(self, prompt: Sequence[int]) -> Request | None:
        """Return the request whose answer holds the likelihood of each token of a prompt; None: only those of generated ones are told."""
        del prompt
        return None

    def read(self, line: bytes) -> Part:
        """Return what a line says, after `data:`.

        Raises:
            msgspec.MsgspecError: it is nothing that this server says.
        """


def _plain(prompt: Prompt) -> str | list[int]:
    """Return a prompt as it is sent where no template is applied."""
    if isinstance(prompt, Chat):
        raise ConfigError("messages are for a chat: set endpoint to chat, or give a text")
    return prompt if isinstance(prompt, str) else list(prompt)


def _messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    return [{"role": message.role, "content": _content(message)} for message in messages]


def _content(message: ChatMessage) -> str | list[dict[str, Any]]:
    """Return the text of a message; with a picture both as parts, the picture as a data URL."""
    if message.picture is None:
        return message.text
    kind = mimetypes.guess_type(message.picture.name)[0] or "image/jpeg"
    url = f"data:{kind};base64,{base64.b64encode(message.picture.content).decode()}"
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": message.text}]


class _Timings(msgspec.Struct):
    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None

    def own(self) -> EngineTimings:
        """Return the engine's timings; decoding excludes the first token, which the prompt's time includes."""
        return EngineTimings(self.prompt_ms, self.prompt_n, self.predicted_ms, max(self.predicted_n - 1, 0))


class _LlamaSettings(msgspec.Struct):
    speculative: str | None = msgspec.field(default=None, name="speculative.types")


class _LlamaLine(msgspec.Struct):
    content: str = ""
    tokens: tuple[int, ...] = ()
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None
    generation_settings: _LlamaSettings | None = None
    error: Any = None


class _LlamaTexts:
    """How llama.cpp's own server counts the tokens of texts and messages."""

    def tokenise(self, text: str, *, special: bool) -> Request:
        """Return the request for tokens."""
        return Request("/tokenize", {"content": text, "add_special": special})

    def render(self, messages: Sequence[ChatMessage]) -> Request:
        """Return the request for the text of messages."""
        return Request("/apply-template", {"messages": _messages(messages)})


class LlamaServer(_LlamaTexts, Dialect):
    """llama.cpp's own server, by its native endpoint."""

    package, ping_path = "llama-server", "/health"
    takes_tokens, ignores_end, evicts = True, True, False

    def request(self, prompt: Prompt, limits: Limits, context_tokens: int) -> Request:
        """Return a greedy query, with the prompt cache off."""
        del context_tokens
        lengths = {"n_predict": limits.output_tokens, "ignore_eos": limits.ignore_end}
        # Only what changes nothing about the likeliest token is left to compute.
        greedy = {"temperature": 0, "samplers": ["temperature"]}
        answer = {"stream": True, "return_tokens": True, "cache_prompt": False}
        return Request("/completion", {"prompt": _plain(prompt), **lengths, **answer, **greedy})

    def read(self, line: bytes) -> Part:
        """Return what a line says; the last one has no text, but all counters."""
        message = decode_json(line, _LlamaLine)
        ends: Mapping[str, Ended] = {"limit": "length", "eos": "end_of_text"}
        timings = message.timings if message.stop else None
        return Part(
            has_output=bool(message.content or message.tokens),
            text=message.content,
            tokens=message.tokens,
            total_tokens=message.tokens_predicted,
            ended=ends.get(message.stop_type, "length") if message.stop else None,
            prompt_tokens=message.tokens_evaluated if message.stop else None,
            output_tokens=message.tokens_predicted if message.stop else None,
            cached_tokens=timings.cache_n if timings else None,
            own=timings.own() if timings else None,
            drafted_tokens=timings.draft_n if timings else None,
            accepted_tokens=timings.draft_n_accepted if timings else None,
            speculative=message.generation_settings.speculative if message.generation_settings else None,
            error=message.error,
        )


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

    @property
    def thought(self) -> str:
        """The new part of the reasoning before the answer."""
        return self.reasoning_content or self.reasoning or ""


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _OpenAiLine(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


class OpenAi(Dialect):
    """Any server with OpenAI's interface, by what all of them know."""

    package, ping_path = "OpenAI-compatible server", "/v1/models"

    def __init__(self, model: str, endpoint: Endpoint, length_key: str = "max_tokens") -> None:
        self._model, self._endpoint, self._length_key = model, endpoint, length_key
        self.is_chat = self.chats = endpoint == "chat"

    def renamed(self) -> "OpenAi":
        """Return the dialect of servers that know the limit of an answer by its newer name."""
        return type(self)(self._model, self._endpoint, "max_completion_tokens")

    def request(self, prompt: Prompt, limits: Limits, context_tokens: int) -> Request:
        """Return a greedy query with usage at its end."""
        del context_tokens
        shared = {
            "model": self._model,
            self._length_key: limits.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._endpoint == "chat":
            if not isinstance(prompt, str | Chat):
                raise ConfigError("a chat takes a text, not tokens: set endpoint to completions, or give a text")
            messages = prompt.messages if isinstance(prompt, Chat) else (ChatMessage("user", prompt),)
            return Request("/v1/chat/completions", {**shared, "messages": _messages(messages)})
        return Request("/v1/completions", {**shared, "prompt": _plain(prompt)})

    def scored(self, prompt: Sequence[int]) -> Request | None:
        """Return the request for the prompt itself with its likelihoods, and one token more; a chat tells none of its prompt."""
        if self.is_chat:
            return None
        content = {"prompt": list(prompt), "echo": True, "logprobs": 1, "max_tokens": 1}
        return Request("/v1/completions", {"model": self._model, **content, "temperature": 0})

    def read(self, line: bytes) -> Part:
        """Return what a line says; a chat's first line holds a role only, the last one the usage and often no choice."""
        message = decode_json(line, _OpenAiLine)
        choice = message.choices[0] if message.choices else _Choice()
        delta = choice.delta or choice.message or _Delta()
        text = choice.text or delta.content or ""
        usage, details, timings = message.usage, message.usage and message.usage.prompt_tokens_details, message.timings
        drafts = (timings.draft_n, timings.draft_n_accepted) if timings and timings.draft_n else usage.drafts() if usage else (None, None)
        return Part(
            has_output=bool(text or delta.thought or delta.tool_calls),
            text=text,
            thought=delta.thought,
            ended=None if choice.finish_reason is None else "length" if choice.finish_reason == "length" else "end_of_text",
            # Proxies that do not count state 0.
            prompt_tokens=usage.prompt_tokens or None if usage else None,
            output_tokens=usage.output_tokens or None if usage else None,
            reasoning_tokens=usage.reasoning_tokens or None if usage else None,
            cached_tokens=details.cached_tokens if details else None,
            own=timings.own() if timings else None,
            drafted_tokens=drafts[0],
            accepted_tokens=drafts[1],
            error=message.error,
        )


class LlamaChat(_LlamaTexts, OpenAi):
    """llama.cpp's own server by OpenAI's interface for chats: its cache off, and lengths exact."""

    package, ping_path = "llama-server", "/health"
    ignores_end, evicts = True, False

    def request(self, prompt: Prompt, limits: Limits, context_tokens: int) -> Request:
        """Return a greedy query with the prompt cache off."""
        plain = super().request(prompt, limits, context_tokens)
        return Request(plain.path, {**plain.content, "cache_prompt": False, "ignore_eos": limits.ignore_end})


class Vllm(OpenAi):
    """vLLM: counts in every line, prompts as tokens, and a salt that keeps a query from the prefix cache."""

    package, ping_path = "vllm", "/health"
    ignores_end, evicts = True, False

    @property
    def takes_tokens(self) -> bool:  # type: ignore[override]
        """Whether a prompt may be token ids: not that of a chat."""
        return not self.is_chat

    def request(self, prompt: Prompt, limits: Limits, context_tokens: int) -> Request:
        """Return a greedy query of exact length that shares no prefix with another."""
        plain = super().request(prompt, limits, context_tokens)
        further = {
            "ignore_eos": limits.ignore_end,
            "min_tokens": limits.output_tokens if limits.ignore_end else 0,
            "cache_salt": secrets.token_hex(16),
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return Request(plain.path, {**plain.content, **further})

    def tokenise(self, text: str, *, special: bool) -> Request | None:
        """Return the request for tokens; the prompts of a chat are texts."""
        if self.is_chat:
            return None
        return Request("/tokenize", {"model": self._model, "prompt": text, "add_special_tokens": special})

    def read(self, line: bytes) -> Part:
        """Return what a line says, with the count so far."""
        plain = super().read(line)
        return replace(plain, total_tokens=plain.output_tokens)


class _OllamaMessage(msgspec.Struct, frozen=True):
    content: str = ""
    thinking: str = ""


class _OllamaLine(msgspec.Struct):
    message: _OllamaMessage = _OllamaMessage()
    response: str = ""
    thinking: str = ""
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int | None = None
    prompt_eval_cached_count: int | None = None
    prompt_eval_duration: int = 0
    eval_count: int | None = None
    eval_duration: int = 0
    error: Any = None


class Ollama(Dialect):
    """Ollama, by its native endpoints, which state durations; a text is raw, so that no template is put around it."""

    package, ping_path = "ollama", "/api/version"
    chats = True

    def __init__(self, model: str) -> None:
        self._model = model

    def request(self, prompt: Prompt, limits: Limits, context_tokens: int) -> Request:
        """Return a greedy query in a context that holds it: a shorter one would cut the prompt in silence."""
        options = {"num_predict": limits.output_tokens, "temperature": 0, "seed": 0, "num_ctx": context_tokens}
        shared = {"model": self._model, "stream": True, "options": options}
        if isinstance(prompt, Chat):
            messages = [
                {"role": message.role, "content": message.text}
                | ({"images": [base64.b64encode(message.picture.content).decode()]} if message.picture else {})
                for message in prompt.messages
            ]
            return Request("/api/chat", {**shared, "messages": messages})
        return Request("/api/generate", {**shared, "prompt": prompt, "raw": True})

    def read(self, line: bytes) -> Part:
        """Return what a line says; older servers do not count what was cached, so that their prefill is of an unknown number of tokens."""
        message = decode_json(line, _OllamaLine)
        evaluated, generated, cached = message.prompt_eval_count, message.eval_count or None, message.prompt_eval_cached_count
        text, thought = message.response or message.message.content, message.thinking or message.message.thinking
        timings = None
        if message.done and generated is not None and evaluated is not None and cached is not None:
            timings = EngineTimings(
                prefill_ms=message.prompt_eval_duration / NS_PER_MS,
                prefilled_tokens=evaluated - cached,
                decode_ms=message.eval_duration / NS_PER_MS,
                decoded_tokens=max(generated - 1, 0),
            )
        return Part(
            has_output=bool(text or thought),
            text=text,
            thought=thought,
            ended=("length" if message.done_reason == "length" else "end_of_text") if message.done else None,
            prompt_tokens=evaluated,
            output_tokens=generated,
            cached_tokens=cached,
            own=timings,
            error=message.error,
        )
