"""Server: language models behind HTTP, on this device or elsewhere: llama-server, Ollama, vLLM, and any other with OpenAI's interface.

The model is a TOML file, by custom named `NAME.server` (sample: tests/fixtures/generators/server.server):

    url = "http://127.0.0.1:8080"      with or without /v1
    server = "auto"                    optional: llama-server, ollama, vllm, openai (any other); auto asks the server
    model = "qwen2.5:0.5b"             optional: as the server names it; default: the first that it lists
    endpoint = "completions"           optional: completions or chat (not of ollama)
    api_key_file = "~/.key"            optional
    ca_file = "~/ca.pem"               optional: authority of the server's certificate
    headers = { "X-Team" = "edge" }    optional: sent with each request
    extra = { ignore_eos = true }      optional: further fields of each query; min_tokens = true: as many as asked for
    timeout_s = 600                    optional: longest time without a token

Needs no library. What is timed: from the request on an open connection until the line that holds a token has arrived, so TTFT includes
network and queue; tokens are counted as the server counts them (`usage`), of
a server that does not by its pieces of text (`estimated`). What a server joins in one piece has one moment. Prompts are tokens for
llama-server and vLLM (exact lengths), texts for the others. The prompt cache is off for llama-server and vLLM; before each query to
another comes an untimed prompt that takes the place of what is kept; its energy is left out. A server that keeps several counts its
hits. LM Studio, TensorRT-LLM, SGLang and RKLLM servers are `openai`.
Scenarios poisson and concurrent: each user has a connection of its own, opened on arrival, or before the timed queries and kept open; no
untimed prompt comes before a query, which would be load.
Run here: llama-server (b11434, and that of xllamacpp 2026.10.11549), vLLM 0.32.0 on a CPU, llama-cpp-python 0.3.36, transformers serve 5.24
and LiteRT-LM 0.18.1 (chats only). Not run: Ollama, LM Studio, TensorRT-LLM, SGLang, RKLLM.
"""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.base.model_server import DONE, ModelServer
from edgemeter.agent.base.server_address import is_on_this_machine
from edgemeter.agent.base.toml import read_toml
from edgemeter.agent.contract import model_file
from edgemeter.agent.generators import (
    Chat,
    ChatMessage,
    Generated,
    GeneratorAbilities,
    Limits,
    LoadedGenerator,
    Prompt,
    Query,
    Stamp,
)
from edgemeter.agent.generators.adapter import ORDINARY_WORDS, check_tokens
from edgemeter.agent.generators.server_answer import ReceivedAnswer, TooLongError
from edgemeter.agent.generators.server_dialects import Dialect, OpenAi, Part
from edgemeter.agent.generators.server_facts import ServerFacts, ServerFile, ask_facts
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import check_options

_PINGS = 9
_EVICTION = "Another text, which shares no beginning with any other."
_OTHER = "Yet one text, which begins like none before it."
_SHORT = Limits(4)
_CHATML = "<|im_start|>"
_IGNORING_END = ("ignore_eos", "min_tokens")


class _PromptLikelihoods(msgspec.Struct):
    token_logprobs: list[float | None]


class _ScoredChoice(msgspec.Struct):
    logprobs: _PromptLikelihoods | None = None


class _ScoredAnswer(msgspec.Struct):
    choices: list[_ScoredChoice]


class ServerGenerator:
    """Generates by asking a server."""

    def __init__(self) -> None:
        self._open: tuple[ModelServer, Dialect] | None = None
        self._found: LoadedGenerator | None = None
        self._users: dict[int, ModelServer] = {}
        self._vocabulary = 0
        self._extra: Mapping[str, Any] = {}
        self._timeout_s = 0.0
        self._context_tokens = 0

    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Query the server's facts and send one query, which loads the model if necessary; see `Generator.load`."""
        check_options("server", options, backends=("http",))
        model_file.head(model)
        file = read_toml(model, ServerFile, "server's file")
        connection = ModelServer(file, "/v1")
        self._extra, self._timeout_s, self._context_tokens = file.extra, file.timeout_s, context_tokens
        began_ns = time.monotonic_ns()
        try:
            loaded = self._ask(connection, model, file, context_tokens)
            load_ns = time.monotonic_ns() - began_ns
            round_trip_ms = statistics.median(self._ping() for _ in range(_PINGS))
            self._found = replace(loaded, load_ns=load_ns, network_round_trip_ms=round_trip_ms)
        except (MeasurementError, UnavailableError) as error:
            raise UnavailableError(f"{str(model)!r}: {error}") from error
        finally:
            if self._found is None:
                connection.close()
        return self._found

    def _ask(self, connection: ModelServer, model: Path, file: ServerFile, context_tokens: int) -> LoadedGenerator:
        facts = ask_facts(connection, file)
        if facts.context_tokens is not None and context_tokens > facts.context_tokens:
            raise ConfigError(
                f"{str(model)!r}: the server has a context of {facts.context_tokens} tokens, {context_tokens} are needed: "
                "start it with a longer context, or shorten prompt or output"
            )
        self._open = connection, facts.dialect
        # A server that does not tell refuses an id that it does not have.
        self._vocabulary = facts.vocabulary or 1 << 31
        takes_tokens = facts.dialect.takes_tokens
        first = self._tokens("", special=True) or [] if takes_tokens else []
        words = self._tokens(ORDINARY_WORDS, special=False) or [] if takes_tokens else []
        # llama-server states this template of a model without one, whose vocabulary has no such token.
        if facts.chat_template and _CHATML in facts.chat_template and takes_tokens and len(self._tokens(_CHATML, special=False) or [0]) > 1:
            facts = replace(facts, chat_template=None)
        probe = self._probe()
        # Some servers end a connection behind an answer: opens it again.
        self._ping()
        # What two chats share that begin otherwise is their template.
        other = self._answer(_OTHER) if self._opened()[1].is_chat else None
        return replace(
            _loaded(facts, file, probe, context_tokens, is_here=bool(is_on_this_machine(file.url))),
            template_tokens=other.cached_tokens if other else 0,
            text_tokens=np.unique(np.asarray(words, np.int32)),
            first_tokens=tuple(first),
        )

    def _probe(self) -> ReceivedAnswer:
        """Return the answer to a short query; a server that does not know `max_tokens` is asked by its newer name from then on."""
        connection, dialect = self._opened()
        try:
            return self._answer(_EVICTION)
        except AnswerError as error:
            if not isinstance(dialect, OpenAi) or not (isinstance(error, TooLongError) or "max_completion_tokens" in str(error)):
                raise
            self._open = connection, dialect.renamed()
            return self._answer(_EVICTION)

    def _answer(self, text: str) -> ReceivedAnswer:
        """Return the answer to a short query that nobody times."""
        return self._stream(*self._post(text, _SHORT), _SHORT, lambda _: None)

    def encode(self, prompt: str | Sequence[ChatMessage]) -> list[int]:
        """Return the tokens that the server makes of a text; see `Generator.encode`."""
        self._loaded()
        text = prompt if isinstance(prompt, str) else self.render(prompt)
        tokens = self._tokens(text, special=True)
        if tokens is None:
            raise UnavailableError(f"{self._opened()[1].package} does not tell the tokens of a text: give the text itself")
        return tokens

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the messages as the server's chat template writes them; see `TemplateGenerator.render`."""
        connection, dialect = self._opened()
        request = dialect.render(messages)
        if request is None:
            raise UnavailableError(f"{dialect.package} applies its chat template itself: set endpoint to chat in the server's file")
        answer = connection.ask(request.path, request.content)
        rendered = answer.document.get("prompt")
        if not isinstance(rendered, str):
            reason = answer.reason or f"status {answer.status}"
            raise UnavailableError(f"{dialect.package} does not apply its chat template ({reason}): give a text")
        return rendered

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Make sure that the connection is open and nothing of the last query is kept, as far as the server can; see `Generator.bind`."""
        loaded, (_, dialect) = self._loaded(), self._opened()
        self._check_prompt(prompt, limits, loaded)
        self._part_from_users()
        # Opens the connection again if the server has closed it, which a query must not pay for.
        self._ping()
        if dialect.evicts:
            self._answer(_EVICTION)
            self._ping()
        path, content = self._post(prompt, limits)

        def query(stamp: Stamp) -> Generated:
            return self._stream(path, content, limits, stamp).generated(loaded.abilities)

        return query

    def bind_concurrent(self, prompt: Prompt, limits: Limits, user: int | None = None) -> Query:
        """Close the connection of the queries before, which takes a place in some servers; see `ConcurrentGenerator.bind_concurrent`."""
        loaded, (connection, dialect) = self._loaded(), self._opened()
        self._check_prompt(prompt, limits, loaded)
        connection.close()
        if user is None:
            return self._arrival(prompt, limits, connection.another())
        if user not in self._users:
            self._users[user] = connection.another()
        user_connection = self._users[user]
        # The query itself fails then, and is counted.
        with suppress(AnswerError):
            user_connection.make_ready(dialect.ping_path)
        path, content = self._post(prompt, limits)
        return lambda stamp: self._stream(path, content, limits, stamp, user_connection).generated(loaded.abilities)

    def _arrival(self, prompt: Prompt, limits: Limits, connection: ModelServer) -> Query:
        """Return a query with a connection of its own; it makes its content, as the pictures of all arrivals would not fit in memory."""

        def query(stamp: Stamp) -> Generated:
            try:
                return self._stream(*self._post(prompt, limits), limits, stamp, connection).generated(self._loaded().abilities)
            finally:
                connection.close()

        return query

    def likelihoods(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Return what the server says of each token but the first; see `LikelihoodGenerator`."""
        if not self._opened()[1].takes_tokens:
            raise UnavailableError(
                f"{self._loaded().package} takes texts and does not state their tokens, which a perplexity needs: score the "
                "model's file in an engine"
            )
        values = self._scored(tokens)
        return np.array([np.nan if value is None else value for value in values[1 : len(tokens)]], np.float64)

    def _scored(self, prompt: Sequence[int]) -> Sequence[float | None]:
        """Return the log likelihood of each token of a prompt."""
        connection, dialect = self._opened()
        request = dialect.scored(prompt)
        if request is None:
            raise UnavailableError(
                f"{dialect.package} tells how likely a token is only where it generates it: score the model's file in an engine"
            )
        answer = connection.ask(request.path, _with_extra(request.content, self._extra, Limits(1)))
        try:
            prompt_likelihoods = msgspec.convert(answer.document, _ScoredAnswer).choices[0].logprobs
        except (msgspec.ValidationError, IndexError):
            prompt_likelihoods = None
        if prompt_likelihoods is None or len(prompt_likelihoods.token_logprobs) < 2:
            reason = answer.reason or f"status {answer.status}"
            raise UnavailableError(f"{dialect.package} does not tell how likely a prompt is ({reason}): start it so that it does")
        return prompt_likelihoods.token_logprobs

    def close(self) -> None:
        """Close the connections."""
        self._part_from_users()
        if self._open is not None:
            self._open[0].close()
        self._open = self._found = None

    def _part_from_users(self) -> None:
        """Close their connections, each of which takes a place in some servers."""
        while self._users:
            self._users.popitem()[1].close()

    def _check_prompt(self, prompt: Prompt, limits: Limits, loaded: LoadedGenerator) -> None:
        if isinstance(prompt, Chat):
            if not self._opened()[1].chats:
                raise ConfigError(f"{loaded.package} takes no messages here: set endpoint to chat in the server's file, or give a text")
        elif not isinstance(prompt, str):
            if not self._opened()[1].takes_tokens:
                raise ConfigError(f"{loaded.package} takes a prompt as text: give the text itself")
            check_tokens(prompt, limits, loaded.context_tokens, self._vocabulary)
        elif not prompt or limits.output_tokens < 1:
            raise ConfigError(f"cannot generate {limits.output_tokens} tokens from {len(prompt)} characters: give 1 or more of each")

    def _post(self, prompt: Prompt, limits: Limits) -> tuple[str, bytes]:
        """Return path and content of the request for a query: pictures take time to encode."""
        request = self._opened()[1].request(prompt, limits, self._context_tokens)
        return request.path, json.dumps(_with_extra(request.content, self._extra, limits)).encode()

    def _stream(self, path: str, content: bytes, limits: Limits, stamp: Stamp, own_connection: ModelServer | None = None) -> ReceivedAnswer:
        """Ask, on its `own_connection` connection if there is one, stamp what comes, and return all of it."""
        shared, dialect = self._opened()
        connection, heard = own_connection or shared, ReceivedAnswer(stamp, limits.output_tokens)
        waits_until_s = time.monotonic() + self._timeout_s
        for line in connection.stream(path, content):
            data = _content(line)
            if data == DONE:
                heard.is_done = True
            elif data:
                part = _read(dialect, data)
                heard.take(part)
                if part.has_output:
                    waits_until_s = time.monotonic() + self._timeout_s
            if time.monotonic() > waits_until_s:
                connection.close()
                raise AnswerError(f"the server sent no token for {self._timeout_s:g} s: read its log, or raise timeout_s", kind="timeout")
        heard.check()
        return heard

    def _tokens(self, text: str, *, special: bool) -> list[int] | None:
        connection, dialect = self._opened()
        request = dialect.tokenise(text, special=special)
        if request is None:
            return None
        answer = connection.ask(request.path, request.content)
        tokens = answer.document.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
            reason = answer.reason or f"status {answer.status}"
            raise UnavailableError(f"{dialect.package} gives no tokens of a text ({reason}): check that it serves a language model")
        return tokens

    def _ping(self) -> float:
        """Return the time of a short request on the open connection, in ms."""
        connection, dialect = self._opened()
        return connection.ask(dialect.ping_path).took_ms

    def _opened(self) -> tuple[ModelServer, Dialect]:
        if self._open is None:
            raise ConfigError("no server is known: load its file first")
        return self._open

    def _loaded(self) -> LoadedGenerator:
        if self._found is None:
            raise ConfigError("no server is known: load its file first")
        return self._found


def _content(line: bytes) -> bytes:
    """Return what a line holds: of an event stream what follows `data:`, nothing of its comments and names; else the line."""
    if line.startswith(b"data:"):
        return line[5:].strip()
    return b"" if line.startswith((b":", b"event:", b"id:", b"retry:")) else line


def _with_extra(content: Mapping[str, Any], extra: Mapping[str, Any], limits: Limits) -> Mapping[str, Any]:
    """Return a request with the file's further fields; of one that is a number of tokens `true` stands for those asked for.

    Where an answer ends with the text, those that keep it from ending are left out.
    """
    extra = {key: value for key, value in extra.items() if limits.ignore_end or key not in _IGNORING_END}
    further = {key: limits.output_tokens if value is True and key.endswith("_tokens") else value for key, value in extra.items()}
    dropped = {"max_tokens"} if "max_completion_tokens" in extra else set()
    return {**{key: value for key, value in content.items() if key not in dropped}, **further}


def _read(dialect: Dialect, content: bytes) -> Part:
    try:
        return dialect.read(content)
    except msgspec.MsgspecError as error:
        raise AnswerError(
            f"{dialect.package} sends what is no part of an answer ({one_line(error)}): {content[:60].decode(errors='replace')!r}; "
            "check server and endpoint in the server's file",
            kind="no answer",
        ) from error


def _loaded(facts: ServerFacts, file: ServerFile, probe: ReceivedAnswer, context_tokens: int, *, is_here: bool) -> LoadedGenerator:
    return LoadedGenerator(
        package=facts.dialect.package,
        version=facts.version,
        backend="http",
        import_ns=0,
        load_ns=0,
        context_tokens=context_tokens,
        text_tokens=np.empty(0, np.int32),
        name=facts.model or None,
        precision=facts.precision,
        parameters=facts.parameters,
        digest_sha256=facts.digest_sha256,
        trained_context_tokens=facts.trained_context_tokens,
        chat_template=facts.chat_template,
        speculative=facts.speculative or probe.speculative,
        abilities=GeneratorAbilities(
            counts="estimated" if probe.output_tokens is None else "usage",
            ignores_end=facts.dialect.ignores_end or bool(file.extra.get("ignore_eos")),
            is_local=False,
            chats=facts.dialect.chats,
            likelihoods=facts.dialect.takes_tokens and facts.dialect.scored([0]) is not None,
        ),
        facts={
            "server_url": file.url,
            **({"server_machine": "this"} if is_here else {}),
            **({"extra": json.dumps(file.extra, sort_keys=True)} if file.extra else {}),
            **facts.facts,
        },
    )
