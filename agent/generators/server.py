"""Server: language models behind HTTP with OpenAI's interface.

Such servers are llama-server, Ollama and vLLM. Describe the server in a TOML file, such as
`model.server`. Only `url` is required.

    url = "http://127.0.0.1:8080"      # with or without /v1
    model = "qwen2.5:0.5b"             # default: the first that the server lists
    endpoint = "completions"           # or chat
    api_key_file = "~/.key"
    ca_file = "~/ca.pem"               # authority of the server's certificate
    headers = { "X-Team" = "edge" }    # sent with each request
    extra = { ignore_eos = true }      # further fields of each query
    timeout_s = 600                    # longest time without a token

- Timed: from the request on an open connection to the line with a token. TTFT includes network and
  queue.
- Lengths: llama-server gets tokens, so lengths are exact. Other servers get text, and count tokens
  themselves (`usage`), or the tokens are estimated from pieces of text. For exact lengths give vLLM
  `extra = { ignore_eos = true, min_tokens = true }`.
- Caches: llama-server's prompt cache is off. For other servers, an untimed prompt before each query
  displaces the cached one, except in `poisson` and `concurrent`.

Protocol: llama-server states the tokens of each line. The energy of an untimed prompt is left out;
with `poisson` and `concurrent` it would be load. Tokens that a server joins in one piece have one
moment. A server that caches several prompts counts its hits. With `poisson` and `concurrent` each
user has a connection of its own, opened on arrival, or before the timed queries and kept open.
`min_tokens = true` becomes the number of tokens that the case asks for. A sample is
tests/fixtures/generators/server.server.

Tested with: llama-server b11434 and that of xllamacpp 2026.10.11549; vLLM 0.32.0 on a CPU,
llama-cpp-python 0.3.36, transformers serve 5.24, LiteRT-LM 0.18.1 (chats only); not Ollama, LM
Studio, TensorRT-LLM, SGLang, RKLLM.
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from edgemeter.agent import generators
from edgemeter.agent.base.errors import (
    AnswerError,
    ConfigError,
    MeasurementError,
    UnavailableError,
    one_line,
)
from edgemeter.agent.base.model_server import DONE, ModelServer
from edgemeter.agent.base.server_address import is_on_this_machine
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.generators import (
    Chat,
    Generated,
    GeneratorAbilities,
    Limits,
    LoadedGenerator,
    Prompt,
    Query,
    Stamp,
)
from edgemeter.agent.generators.server_answer import ReceivedAnswer, TooLongError
from edgemeter.agent.generators.server_facts import (
    ORDINARY_WORDS,
    ServerFacts,
    ServerFile,
    ask_facts,
    tokens_of,
)
from edgemeter.agent.generators.server_lines import Line, read_line
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import check_options

_EVICTION = "Another text, which shares no beginning with any other."
_OTHER = "Yet one text, which begins like none before it."
_SHORT = Limits(4)
_IGNORING_END = ("ignore_eos", "min_tokens")
_UNKNOWN_LIMIT = 1 << 31


class ServerGenerator(generators.ConcurrentGenerator):
    """Generates text by a server."""

    _file: ServerFile
    _facts: ServerFacts

    def __init__(self) -> None:
        self._connection: Any = None
        self._loaded: Any = None
        self._users: dict[int, ModelServer] = {}
        self._length_key = "max_tokens"

    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Ask for the server's facts, and send one query.

        The query loads the model if necessary. See `Generator.load`.
        """
        check_options("server", options, backends=("http",))
        model_file.head(model)
        file = read_toml(model, ServerFile, "server's file")
        try:
            return self.connect(ModelServer(file, "/v1"), file, context_tokens)
        except (MeasurementError, UnavailableError) as error:
            raise UnavailableError(f"{str(model)!r}: {error}") from error

    def connect(
        self, connection: ModelServer, file: ServerFile, context_tokens: int
    ) -> LoadedGenerator:
        """Return the facts about the server behind a connection.

        The connection is closed if the server does not generate.
        """
        began_ns = time.monotonic_ns()
        self._connection, self._file = connection, file
        try:
            facts = self._facts = ask_facts(connection, file)
            probe = self._probe()
            # Some servers close a connection after an answer: this opens it again.
            self._ping()
            # The cached part of a chat with another beginning is the template.
            template_tokens = (
                0
                if facts.is_llama or file.endpoint != "chat"
                else self._answer(_OTHER).cached_tokens or 0
            )
            load_ns = time.monotonic_ns() - began_ns
            loaded = self._loaded_with(probe, facts.context_tokens or context_tokens)
            self._loaded = loaded = replace(
                loaded, load_ns=load_ns, template_tokens=template_tokens
            )
        finally:
            if self._loaded is None:
                connection.close()
        return loaded

    def _loaded_with(self, probe: ReceivedAnswer, context_tokens: int) -> LoadedGenerator:
        import numpy as np  # noqa: PLC0415 - a session reads this file too, and needs no NumPy

        connection, file, facts = self._connection, self._file, self._facts
        words = tokens_of(connection, ORDINARY_WORDS, special=False) if self._takes_tokens else []
        url_facts = {"server_url": file.url} | (
            {"server_machine": "this"} if is_on_this_machine(file.url) else {}
        )
        extra_facts = {"extra": json.dumps(file.extra, sort_keys=True)} if file.extra else {}
        return LoadedGenerator(
            package="llama-server" if facts.is_llama else "OpenAI-compatible server",
            version=facts.version,
            backend="http",
            import_ns=0,
            load_ns=0,
            context_tokens=context_tokens,
            text_tokens=np.unique(np.asarray(words, np.int32)),
            first_tokens=tuple(tokens_of(connection, "", special=True))
            if self._takes_tokens
            else (),
            name=facts.model or None,
            precision=facts.precision,
            parameters=facts.parameters,
            trained_context_tokens=facts.trained_context_tokens,
            speculative=facts.speculative or ("draft" if probe.drafts[0] else None),
            abilities=GeneratorAbilities(
                counts="estimated" if probe.output_tokens is None else "usage",
                ignores_end=facts.is_llama or bool(file.extra.get("ignore_eos")),
                is_local=False,
                chats=file.endpoint == "chat" or facts.has_template,
            ),
            facts={**url_facts, **extra_facts, **facts.facts},
        )

    def _probe(self) -> ReceivedAnswer:
        """Return the answer to a short query.

        For servers that do not know `max_tokens`, use its newer name from now on.
        """
        try:
            return self._answer(_EVICTION)
        except AnswerError as error:
            if not isinstance(error, TooLongError) and "max_completion_tokens" not in str(error):
                raise
            self._length_key = "max_completion_tokens"
            return self._answer(_EVICTION)

    def _answer(self, text: str) -> ReceivedAnswer:
        """Return the answer to a short query, untimed."""
        return self._stream(*self._post(text, _SHORT), _SHORT, lambda _: None)

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Open the connection, and clear the server's cache if possible; see `Generator.bind`."""
        self._check_prompt(prompt, limits)
        self._part_from_users()
        if not self._facts.is_llama:
            self._answer(_EVICTION)
        # If the server has closed the connection, this opens it outside the query's time.
        self._ping()
        path, content = self._post(prompt, limits)
        return lambda stamp: self._stream(path, content, limits, stamp).generated(
            self._loaded.abilities
        )

    def bind_concurrent(self, prompt: Prompt, limits: Limits, user: int | None = None) -> Query:
        """Close the connection of earlier queries, because some servers accept few.

        See `ConcurrentGenerator.bind_concurrent`.
        """
        self._check_prompt(prompt, limits)
        self._connection.close()
        path, content = self._post(prompt, limits)
        if user is not None:
            user_connection = self._users.setdefault(user, self._connection.another())
            # If this fails, the query fails, and is counted.
            with suppress(AnswerError):
                user_connection.make_ready(self._ping_path)
            return lambda stamp: self._stream(
                path, content, limits, stamp, user_connection
            ).generated(self._loaded.abilities)
        arrival_connection = self._connection.another()

        def query(stamp: Stamp) -> Generated:
            try:
                return self._stream(path, content, limits, stamp, arrival_connection).generated(
                    self._loaded.abilities
                )
            finally:
                arrival_connection.close()

        return query

    def close(self) -> None:
        """Close the connections."""
        self._part_from_users()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._loaded = None

    def _part_from_users(self) -> None:
        """Close the users' connections, because some servers accept few."""
        while self._users:
            self._users.popitem()[1].close()

    @property
    def _takes_tokens(self) -> bool:
        return self._facts.is_llama and self._file.endpoint != "chat"

    def _check_prompt(self, prompt: Prompt, limits: Limits) -> None:
        loaded, text = self._loaded, prompt.text if isinstance(prompt, Chat) else prompt
        if not isinstance(text, str):
            if not self._takes_tokens:
                raise ConfigError(f"{loaded.package} takes a prompt as text: give the text itself")
            generators.check_tokens(
                text, limits, loaded.context_tokens, self._facts.vocabulary or _UNKNOWN_LIMIT
            )
        elif isinstance(prompt, Chat) and not loaded.abilities.chats:
            raise ConfigError(
                f"{loaded.package} applies no chat template here: set endpoint to chat in the "
                "server's file, or give a text"
            )
        elif not text or limits.output_tokens < 1:
            raise ConfigError(
                f"cannot generate {limits.output_tokens} tokens from {len(text)} characters: "
                "give 1 or more of each"
            )

    def _post(self, prompt: Prompt, limits: Limits) -> tuple[str, bytes]:
        """Return path and content of the request for a greedy query with counts at its end."""
        file, facts = self._file, self._facts
        content: dict[str, Any] = {
            "model": facts.model,
            self._length_key: limits.output_tokens,
            "temperature": 0,
        }
        content |= {"stream": True, "stream_options": {"include_usage": True}}
        if facts.is_llama:
            # Samplers that do not change the likeliest token are left out.
            content |= {
                "cache_prompt": False,
                "ignore_eos": limits.ignore_end,
                "timings_per_token": True,
                "samplers": ["temperature"],
            }
        text = prompt.text if isinstance(prompt, Chat) else prompt
        if isinstance(prompt, Chat) or file.endpoint == "chat":
            path, content["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
        else:
            path, content["prompt"] = (
                "/v1/completions",
                text if isinstance(text, str) else list(text),
            )
        return path, json.dumps(_with_extra(content, file.extra, limits)).encode()

    def _stream(
        self,
        path: str,
        content: bytes,
        limits: Limits,
        stamp: Stamp,
        own_connection: ModelServer | None = None,
    ) -> ReceivedAnswer:
        """Send a request, stamp the tokens that come, and return the answer.

        By default it is sent on the common connection.
        """
        file, connection, heard = (
            self._file,
            own_connection or self._connection,
            ReceivedAnswer(stamp, limits.output_tokens),
        )
        waits_until_s = time.monotonic() + file.timeout_s
        for line in connection.stream(path, content):
            data = _content(line)
            if data == DONE:
                heard.is_done = True
            elif data:
                content_line = _read(data)
                heard.take(content_line)
                if content_line.choice.has_output:
                    waits_until_s = time.monotonic() + file.timeout_s
            if time.monotonic() > waits_until_s:
                connection.close()
                raise AnswerError(
                    f"the server sent no token for {file.timeout_s:g} s: read its log, "
                    "or raise timeout_s",
                    kind="timeout",
                )
        heard.check()
        return heard

    @property
    def _ping_path(self) -> str:
        return "/health" if self._facts.is_llama else "/v1/models"

    def _ping(self) -> None:
        """Open the connection again if the server has closed it."""
        self._connection.ask(self._ping_path)


def _content(line: bytes) -> bytes:
    """Return the content of a line.

    In an event stream it is the text after `data:`, empty for comments and names; else the line.
    """
    if line.startswith(b"data:"):
        return line[5:].strip()
    return b"" if line.startswith((b":", b"event:", b"id:", b"retry:")) else line


def _with_extra(
    content: Mapping[str, Any], extra: Mapping[str, Any], limits: Limits
) -> Mapping[str, Any]:
    """Return a request with the file's further fields.

    `true` for a number of tokens means the requested number. If the answer ends with the text,
    fields that keep it from ending are left out.
    """
    extra = {
        key: value for key, value in extra.items() if limits.ignore_end or key not in _IGNORING_END
    }
    further = {
        key: limits.output_tokens if value is True and key.endswith("_tokens") else value
        for key, value in extra.items()
    }
    dropped = {"max_tokens"} if "max_completion_tokens" in extra else set()
    return {**{key: value for key, value in content.items() if key not in dropped}, **further}


def _read(content: bytes) -> Line:
    try:
        return read_line(content)
    except msgspec.MsgspecError as error:
        raise AnswerError(
            f"the server sent a line that is not part of an answer ({one_line(error)}): "
            f"{content[:60].decode(errors='replace')!r}; "
            "check url and endpoint of the server's file",
            kind="no answer",
        ) from error
