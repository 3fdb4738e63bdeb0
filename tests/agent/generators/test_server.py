"""The generator that asks a server, against written streams of each kind and against llama.cpp's own server."""

import base64
import contextlib
import importlib
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError, EdgemeterError, MeasurementError, UnavailableError
from edgemeter.agent.base.server_connection import ServerConnection
from edgemeter.agent.generators import Chat, ChatMessage, EngineTimings, Limits, Picture, create
from edgemeter.agent.generators.server import ServerGenerator
from edgemeter.agent.quality.answer_key import AnswerKey
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import LanguageServer, Reply, events, llama_cpp_server, llama_server
from tests.fixtures.rows import table_row
from tests.fixtures.still_time import stop_time

CONTEXT = 64
MODEL = Path(__file__).resolve().parents[3] / "models" / "language" / "edgemeter-notes_q8_0.gguf"
USAGE = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
SHORT = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
LONG = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}
MODELS = Reply({"data": [{"id": "tiny"}]})


def text(words, reason=None):
    """Return a chunk of /v1/completions."""
    return {"choices": [{"text": words, "finish_reason": reason}]}


def chat(delta, reason=None):
    """Return a chunk of /v1/chat/completions."""
    return {"choices": [{"delta": delta, "finish_reason": reason}]}


WHOLE = events(text("a"), text("b"), text("c", "length"), USAGE)


@pytest.fixture
def serve(tmp_path):
    """Return what starts a server with routes and writes its file; `keys` are lines of the file."""
    started = []

    def start(routes, *keys):
        server = routes if isinstance(routes, LanguageServer) else LanguageServer(routes)
        started.append(server)
        path = tmp_path / f"{len(started)}.server"
        path.write_text("\n".join([f'url = "{server.url}"', *keys]))
        return server, path

    yield start
    for server in started:
        server.close()


@pytest.fixture
def loaded(serve):
    """Return what loads a server with routes: server, generator, what was found."""
    opened = []

    def load(routes, *keys):
        server, path = serve(routes, *keys)
        generator = create("server")
        opened.append(generator)
        return server, generator, generator.load(path, Options(), CONTEXT)

    yield load
    for generator in opened:
        generator.close()


def openai(stream, path="/v1/completions"):
    """Return the routes of a server with OpenAI's interface that answers `stream` to all but the generator's own short questions."""
    return {"/v1/models": lambda _: MODELS, path: lambda content: WHOLE if "Another" in str(content) else stream}


def ask(generator, output=3, prompt="the board"):
    """Return an answer and its stamps."""
    stamps = []
    query = generator.bind(prompt, Limits(output))
    return query(stamps.append), stamps


def test_a_stream_is_stamped_and_counted_by_usage(loaded):
    """Pings, empty lines, an empty piece and the usage in a chunk without choices are no tokens."""
    server, generator, facts = loaded(openai(events(text(""), text("a"), text("b"), text("c", "length"), USAGE)))
    answer, stamps = ask(generator)
    assert answer.text == "abc"
    assert answer.ended == "length"
    assert answer.prompt_tokens == 5
    assert answer.output_tokens == 3
    assert stamps == [1, 1, 1]
    assert (facts.abilities.counts, facts.abilities.is_local, facts.abilities.ignores_end) == ("usage", False, False)
    assert server.contents("/v1/completions")[-1] == {
        "model": "tiny",
        "prompt": "the board",
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_all_requests_go_over_one_connection(loaded):
    """The round trip is measured where the queries go, and no query pays for opening a connection."""
    server, generator, facts = loaded(openai(WHOLE))
    for _ in range(3):
        ask(generator)
    assert len(server.connections) == 1
    assert facts.network_round_trip_ms > 0


def test_another_prompt_drops_what_a_server_keeps(loaded):
    """Before each query to a server without a switch comes a short one that shares no beginning with it."""
    server, generator, _ = loaded(openai(WHOLE))
    ask(generator)
    ask(generator)
    prompts = [(content["prompt"].split()[0], content["max_tokens"]) for content in server.contents("/v1/completions")]
    assert prompts == [("Another", 4), *[("Another", 4), ("the", 3)] * 2]


def test_a_chat_begins_with_its_first_content(loaded):
    """The role alone is no token; reasoning and tool calls are, and the text tells where the reasoning ends."""
    stream = events(chat({"role": "assistant", "content": None}), chat({"reasoning_content": "hm"}), chat({"content": "on"}),
                    chat({"tool_calls": [{}]}, "tool_calls"), USAGE)  # fmt: skip
    server, generator, _ = loaded(openai(stream, "/v1/chat/completions"), 'endpoint = "chat"')
    answer, stamps = ask(generator)
    assert (answer.text, stamps) == ("hm</think>on", [1, 1, 1])
    assert server.contents("/v1/chat/completions")[-1]["messages"] == [{"role": "user", "content": "the board"}]


@pytest.mark.parametrize(
    ("deltas", "text", "tokens"),
    [
        ([{"reasoning_content": "Okay, "}, {"reasoning": "the user"}, {"content": "Paris"}], "Okay, the user</think>Paris", 3),
        ([{"reasoning_content": "Okay, "}, {"reasoning": "so: ", "content": "Pa"}, {"content": "ris"}], "Okay, so: </think>Paris", 3),
        ([{"reasoning_content": "Okay, "}, {"reasoning_content": "the"}, {"reasoning_content": " user"}], "Okay, the user</think>", 3),
        ([{"content": "Pa"}, {"content": "ri"}, {"content": "s"}], "Paris", 3),
    ],
)
def test_thoughts_and_answers_are_kept_apart(loaded, deltas, text, tokens):
    """A server that parts the two has cut off the mark between them: a score needs it, and a thought alone is no answer."""
    stream = events(*map(chat, deltas), chat({}, "stop"), USAGE)
    answer, _ = ask(loaded(openai(stream, "/v1/chat/completions"), 'endpoint = "chat"')[1])
    assert (answer.text, answer.output_tokens) == (text, tokens)
    assert AnswerKey(("Paris",)).accepts(answer.text) == text.endswith("Paris")


@pytest.mark.parametrize(
    ("completion", "total", "deltas", "stamped", "hidden"),
    [
        # OpenAI's count holds the reasoning, xAI's does not.
        (11, 16, [{"content": "a"}, {"content": "bcd"}, {"content": "e"}], (9, 1, 1), 8),
        (3, 16, [{"content": "a"}, {"content": "bcd"}, {"content": "e"}], (9, 1, 1), 8),
        (12, 17, [{"content": "a"}, {"content": "bc"}, {"content": "d"}], (9, 2, 1), 8),
        (11, 16, [{"content": "a"}], (11,), 8),
        # What is streamed is not hidden.
        (11, 16, [{"reasoning": "aaaaaaaa"}, {"content": "b"}, {"content": "cd"}], (8, 1, 2), None),
        (11, 16, [{"content": "hm</think>"}, {"content": "c"}], (10, 1), None),
    ],
)
def test_reasoning_that_is_not_streamed_is_with_the_first_piece(loaded, completion, total, deltas, stamped, hidden):
    """Eight tokens of it came before any piece: the later ones are of the answer alone."""
    counts = {
        "prompt_tokens": 5,
        "completion_tokens": completion,
        "total_tokens": total,
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    stream = events(*map(chat, deltas), chat({}, "length"), {"choices": [], "usage": counts})
    routes = openai(stream, "/v1/chat/completions")
    routes["/v1/chat/completions"] = lambda content: stream if "the board" in str(content) else WHOLE
    answer, _ = ask(loaded(routes, 'endpoint = "chat"')[1], total - 5)
    assert (answer.stamped_tokens, answer.hidden_reasoning_tokens) == (stamped, hidden)
    assert answer.output_tokens == total - 5
    assert answer.unstreamed is None


@pytest.mark.parametrize("pieces", ["a", "abc"])
def test_a_count_of_zero_is_none(loaded, pieces):
    """Proxies that do not count state 0: what came is counted by its pieces, and marked as estimated."""
    none = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    stream = events(*map(text, pieces), text("", "length"), none)
    _, generator, facts = loaded({"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: stream})
    answer, stamps = ask(generator)
    assert (answer.output_tokens, answer.stamped_tokens, stamps) == (len(pieces), (), [1] * len(pieces))
    assert (answer.prompt_tokens, facts.abilities.counts) == (None, "estimated")


def test_tokens_joined_in_one_piece_are_counted_from_the_usage(loaded):
    """Two pieces and three tokens: the longer piece has two, at its own moment."""
    answer, stamps = ask(loaded(openai(events(text("a"), text("bc", "length"), USAGE)))[1])
    assert (stamps, answer.stamped_tokens) == ([1, 1], (1, 2))
    assert answer.output_tokens == 3


def test_without_usage_pieces_are_counted_as_estimated(loaded):
    """A server that never reports its count is measured, and marked."""
    stream = events(text("a"), text("b", "stop"))
    _, generator, facts = loaded({"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: stream})
    answer, _ = ask(generator)
    assert facts.abilities.counts == "estimated"
    assert answer.output_tokens == 2
    assert answer.prompt_tokens is None
    assert answer.cached_tokens is None
    assert answer.ended == "end_of_text"


def test_cached_tokens_are_reported(loaded):
    """What the server did not process again is part of the answer."""
    usage = {"choices": [], "usage": {**USAGE["usage"], "prompt_tokens_details": {"cached_tokens": 4}}}
    answer, _ = ask(loaded(openai(events(text("a"), text("b"), text("c", "length"), usage)))[1])
    assert answer.cached_tokens == 4


def test_llama_server_takes_tokens_and_reports_all(loaded):
    """Prompts are tokens, the cache is off, the end of text ignored, and timings are its own."""
    server, generator, facts = loaded(llama_server())
    answer, stamps = ask(generator, 4, [1, 50, 60])
    assert stamps == [1] * 4
    assert (answer.tokens, answer.prompt_tokens, answer.ended) == ((111, 112, 113, 114), 3, "length")
    assert answer.own == EngineTimings(prefill_ms=1.0, prefilled_tokens=3, decode_ms=2.0, decoded_tokens=3)
    content = server.contents("/completion")[-1]
    assert content["prompt"] == [1, 50, 60]
    assert content["cache_prompt"] is False
    assert content["ignore_eos"] is True
    assert content["n_predict"] == 4
    assert facts.first_tokens == (1,)
    assert facts.precision == "q8_0"
    assert facts.trained_context_tokens == 4096
    assert facts.version == "b1"


def test_vllm_counts_in_every_chunk(loaded):
    """A chunk of two tokens is stamped as two; each query has a salt of its own, exact length, and tokens as prompt."""
    stream = events(*({**text("x" * n), "usage": {"prompt_tokens": 3, "completion_tokens": n}} for n in (1, 3)), text("", "length"))
    routes = {
        "/health": lambda _: Reply({}),
        "/version": lambda _: Reply({"version": "0.12"}),
        "/v1/models": lambda _: Reply({"data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 4096}]}),
        "/tokenize": lambda content: Reply({"tokens": ([1] if content["add_special_tokens"] else []) + list(content["prompt"].encode())}),
        "/v1/completions": lambda _: stream,
    }
    server, generator, facts = loaded(routes)
    answer, stamps = ask(generator, 3, [1, 2, 3])
    assert (stamps, answer.output_tokens) == ([1, 2], 3)
    assert (facts.package, facts.version, generator.encode("ab")) == ("vllm", "0.12", [1, 97, 98])
    ask(generator, 3, [1, 2, 3])
    first, other = server.contents("/v1/completions")[-2:]
    assert first["prompt"] == [1, 2, 3]
    assert first["ignore_eos"] is True
    assert first["min_tokens"] == 3
    assert first["stream_options"]["continuous_usage_stats"] is True
    assert first["cache_salt"] != other["cache_salt"]


def test_ollama_reports_durations_and_gets_the_context_it_needs(loaded):
    """Its lines are JSON without `data:`; cached prompt tokens are none that it processed."""
    last = {"done": True, "done_reason": "length", "prompt_eval_count": 9, "prompt_eval_cached_count": 2, "prompt_eval_duration": 7_000_000,
            "eval_count": 3, "eval_duration": 4_000_000}  # fmt: skip
    lines = [b'{"response": "a"}', b'{"response": "b"}', b'{"response": "c"}', str(last).replace("'", '"').replace("True", "true").encode()]
    info = {"general.architecture": "llama", "llama.context_length": 2048}
    routes = {
        "/api/version": lambda _: Reply({"version": "0.9"}),
        "/v1/models": lambda _: Reply({"data": [{"id": "tiny:1b", "owned_by": "library"}]}),
        "/api/show": lambda _: Reply({"details": {"quantization_level": "Q4_K_M"}, "model_info": info}),
        "/api/tags": lambda _: Reply({"models": [{"name": "other:1b", "digest": "cd" * 32}, {"name": "tiny:1b", "digest": "ab" * 32}]}),
        "/api/generate": lambda _: Reply(lines=lines),
    }
    server, generator, facts = loaded(routes)
    answer, stamps = ask(generator)
    assert answer.output_tokens == 3
    assert answer.prompt_tokens == 9
    assert answer.cached_tokens == 2
    assert stamps == [1, 1, 1]
    assert answer.own == EngineTimings(prefill_ms=7.0, prefilled_tokens=7, decode_ms=4.0, decoded_tokens=2)
    assert facts.package == "ollama"
    assert facts.version == "0.9"
    assert facts.precision == "q4_k_m"
    assert facts.trained_context_tokens == 2048
    assert facts.digest_sha256 == "ab" * 32
    content = server.contents("/api/generate")[-1]
    assert (content["raw"], content["options"]["num_ctx"], content["options"]["num_predict"]) == (True, CONTEXT, 3)


def test_an_older_ollama_does_not_state_what_it_cached(loaded):
    """Its field is absent then: unknown is not nothing, and its prefill is of an unknown number of tokens."""
    last = (
        b'{"done": true, "done_reason": "length", "prompt_eval_count": 9, "prompt_eval_duration": 70, "eval_count": 2, "eval_duration": 40}'
    )
    routes = {
        "/v1/models": lambda _: Reply({"data": [{"id": "tiny:1b"}]}),
        "/api/generate": lambda _: Reply(lines=[b'{"response": "a"}', b'{"response": "b"}', last]),
    }
    answer, _ = ask(loaded(routes, 'server = "ollama"')[1])
    assert (answer.prompt_tokens, answer.output_tokens) == (9, 2)
    assert answer.cached_tokens is answer.own is None


def test_a_lost_connection_fails_a_query_and_not_the_run(loaded):
    """Of a user, whose connection cannot be opened."""
    server, generator, _ = loaded(llama_server())
    server.close()
    generator._open[0].close()
    query = generator.bind_concurrent([1, 50], Limits(2), 0)
    with pytest.raises(AnswerError, match="Connection refused"):
        query(lambda _: None)


@pytest.mark.parametrize(("worked_s", "outcome"), [(0.3, "broke off"), (None, [b"data: [DONE]"])])
def test_only_a_request_that_met_a_closed_connection_is_sent_again(worked_s, outcome):
    """One on which the server worked and then ended the connection has failed: the server has seen each request once."""
    bodies = []

    def receive(client):
        head, _, body = client.recv(65536).partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        while len(body) < length:
            body += client.recv(65536)
        bodies.append(body)

    def serve():
        with listener.accept()[0] as client:
            receive(client)
            client.sendall(answer)
            if worked_s:
                receive(client)
                time.sleep(worked_s)
        with contextlib.suppress(OSError), listener.accept()[0] as client:
            receive(client)
            client.sendall(answer)

    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n"
    listener = socket.create_server(("127.0.0.1", 0))
    server = threading.Thread(target=serve)
    server.start()
    with contextlib.closing(ServerConnection(f"http://127.0.0.1:{listener.getsockname()[1]}", None, 60.0)) as connection:
        assert list(connection.stream("/v1/completions", b'{"query": 1}')) == [b"data: [DONE]"]
        try:
            answered = list(connection.stream("/v1/completions", b'{"query": 2}'))
        except AnswerError as failure:
            answered = failure.kind
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    server.join()
    assert answered == outcome
    assert bodies == [b'{"query": 1}', b'{"query": 2}']


def test_the_pings_are_no_part_of_loading(loaded, monkeypatch):
    """They are the benchmark's."""
    stop_time(monkeypatch)
    ping = ServerGenerator._ping
    monkeypatch.setattr(ServerGenerator, "_ping", lambda self: (time.sleep(0.05), ping(self))[1])
    assert loaded(llama_server())[2].load_ns < 9 * 50e6


def test_users_share_the_authorities_and_keep_their_connections(loaded, monkeypatch):
    """Reading the certificates of authorities takes ms, which would be think time of each query."""
    read, opened = [], []
    default, another = ssl.create_default_context, ServerConnection.another
    monkeypatch.setattr(ssl, "create_default_context", lambda **names: (read.append(1), default(**names))[1])
    secured = ServerConnection("https://127.0.0.1:1", None, 1.0)
    further = [secured.another() for _ in range(3)]
    assert len({id(connection._connection) for connection in (secured, *further)}) == 4
    assert len(read) == 1
    monkeypatch.setattr(ServerConnection, "another", lambda self: (opened.append(1), another(self))[1])
    _, generator, _ = loaded(llama_server())
    for number in range(6):
        generator.bind_concurrent([1, 50 + number], Limits(2), number % 2)(lambda _: None)
    assert len(opened) == 2


@pytest.mark.parametrize("user", [None, 0])
def test_pictures_are_encoded_before_the_clock_runs(loaded, monkeypatch, user):
    """What a query sends is ready when it begins, of a single one and of a user's."""
    routes = openai(events(chat({"content": "a"}), chat({}, "length"), USAGE), "/v1/chat/completions")
    server, generator, _ = loaded(routes, 'endpoint = "chat"')
    prompt = Chat((ChatMessage("user", "What is it?", Picture("a.png", b"\x89PNG" * 100)),))
    query = generator.bind(prompt, Limits(3)) if user is None else generator.bind_concurrent(prompt, Limits(3), user)
    encodings = []
    encode = base64.b64encode
    monkeypatch.setattr(base64, "b64encode", lambda content: (encodings.append(1), encode(content))[1])
    assert query(lambda _: None).text == "a"
    assert encodings == []
    url = server.contents("/v1/chat/completions")[-1]["messages"][0]["content"][0]["image_url"]["url"]
    assert base64.b64decode(url.partition(",")[2]) == b"\x89PNG" * 100


@pytest.mark.parametrize(
    ("reply", "kind", "match"),
    [
        (Reply({"error": {"message": "model 'x' not found"}}, status=404), AnswerError, "answers 404: model 'x' not found; check url"),
        (Reply({"error": "out of\nmemory"}, status=500), MeasurementError, "answers 500: out of memory; read the server's log"),
        (Reply({"detail": "no key"}, status=401), AnswerError, "answers 401: no key; give its key as api_key_file"),
        (Reply(b"<html>", status=400), AnswerError, "answers 400; the server does not take"),
        (Reply(b"<html>hello</html>"), MeasurementError, "no part of an answer .*'<html>hello</html>'"),
        (Reply(lines=[b"data: {", b""]), MeasurementError, "no part of an answer"),
        (Reply(lines=[b"\xff\xfe\x00"]), MeasurementError, "no part of an answer"),
        (Reply(lines=[b"data: [1]"]), MeasurementError, "no part of an answer"),
        (events(text(""), text("", "stop"), {"usage": {"prompt_tokens": 5, "completion_tokens": 0}}), MeasurementError, "without a token"),
        (events(text("a"), text("b"), has_end=False), MeasurementError, "stopped in the middle of an answer, after 2 tokens"),
        (Reply(lines=events(text("a"), has_end=False).lines, is_cut=True), MeasurementError, "after 1 tokens|broke off"),
        (events(text("a"), text("b"), text("c", "length")), MeasurementError, "left out how many tokens"),
        (events(*[text("a")] * 4, text("b", "length"), USAGE), MeasurementError, "more than the 3 tokens that were asked for"),
        (events(text("a"), text("b", "length"), LONG), MeasurementError, "counts 9 tokens where 3 were asked for"),
        (events(text("a"), {"error": {"message": "out of memory"}}), MeasurementError, "failed after 1 tokens: .*out of memory"),
        (Reply(lines=[b"x" * (2 << 20)]), MeasurementError, "a line of 1 MiB or more"),
    ],
    ids=[
        "404",
        "500",
        "401",
        "400",
        "html",
        "garbled",
        "binary",
        "array",
        "empty",
        "middle",
        "cut",
        "usage",
        "more",
        "counts",
        "error",
        "endless",
    ],
)
def test_a_bad_reply_is_one_line_and_the_next_query_works(loaded, reply, kind, match):
    """A query that fails leaves nothing behind: the connection is opened anew."""
    routes = openai(reply)
    server, generator, _ = loaded(routes)
    query = generator.bind("the board", Limits(3))
    with pytest.raises(kind, match=match) as refusal:
        query(lambda _: None)
    assert "\n" not in str(refusal.value)
    server.routes |= openai(WHOLE)
    assert ask(generator)[0].text == "abc"


@pytest.mark.parametrize(
    ("routes", "keys", "match"),
    [
        ({}, (), "lists no model under /v1/models"),
        ({"/v1/models": lambda _: MODELS}, ('model = "other"',), "has no model 'other': it has tiny"),
        ({"/v1/models": lambda _: MODELS}, (), "answers 404"),
        ({"/v1/models": lambda _: Reply(b"<html>")}, ('model = "x"',), "answers 404"),
        ({"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: Reply({}, status=500)}, (), "answers 500"),
    ],
)
def test_a_server_that_cannot_generate_is_unavailable(serve, routes, keys, match):
    """It is asked for two tokens when it is loaded, so that a run does not begin."""
    _, path = serve(routes, *keys)
    with pytest.raises(UnavailableError, match=match) as refusal:
        create("server").load(path, Options(), CONTEXT)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_no_server_is_unavailable(serve):
    """A refused connection names the address."""
    server, path = serve({})
    server.close()
    with pytest.raises(UnavailableError, match=r"no answer from http://127\.0\.0\.1:.* start the server, or correct its url"):
        create("server").load(path, Options(), CONTEXT)


def test_a_wrong_file_is_a_config_error(tmp_path):
    """The wrong key or value is named."""
    for content, match in [
        ('url = "ftp://x"', "not the address of a server"),
        ('url = "http://user:word@x"', "not the address of a server"),
        ('url = "http://[::1"', "not the address of a server"),
        ('url = "http://x"\nendpoint = "talk"', "endpoint"),
        ('url = "http://x"\ncolour = "red"', "colour"),
        ("", "is empty"),
        ('url = "http://x"\napi_key_file = "/nowhere"', "cannot read the api_key_file '/nowhere'"),
    ]:
        (tmp_path / "one.server").write_text(content)
        with table_row(content), pytest.raises(ConfigError, match=match):
            create("server").load(tmp_path / "one.server", Options(), CONTEXT)


def test_a_key_is_sent_and_not_kept_in_the_record(serve, tmp_path):
    """It goes into the header only."""
    (tmp_path / "key").write_text("secret-of-mine\n")
    _, path = serve(llama_server(), f'api_key_file = "{tmp_path / "key"}"')
    generator = create("server")
    assert "secret-of-mine" not in str(generator.load(path, Options(), CONTEXT))
    assert generator._open[0]._headers["Authorization"] == "Bearer secret-of-mine"
    generator.close()


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory):
    """Yield the file of llama.cpp's own server, which serves the shipped model."""
    with llama_cpp_server(MODEL, tmp_path_factory.mktemp("server")) as path:
        yield path


@pytest.mark.needs(module="xllamacpp")
def test_llama_cpp_behind_http_generates_what_it_does_in_this_process(llama_cpp):
    """The same prompt as tokens gives the same tokens, exact in length, with nothing cached, and timings that the stamps enclose."""
    inner, served = create("llama"), create("server")
    inside, facts = inner.load(MODEL, Options(), CONTEXT), served.load(llama_cpp, Options(), CONTEXT)
    prompt = [*inside.first_tokens, *inside.text_tokens[5:20].tolist()]
    expected = inner.bind(prompt, Limits(12))(lambda _: None)
    for _ in range(2):
        answer = served.bind(prompt, Limits(12))(lambda _: None)
        assert answer.tokens == expected.tokens
        assert answer.text == expected.text
        assert answer.prompt_tokens == 16
        assert answer.output_tokens == 12
        assert answer.cached_tokens == 0
        assert answer.ended == "length"
        assert (answer.own.prefilled_tokens, answer.own.decoded_tokens) == (16, 11)
    assert served.encode("the board") == inner.encode("the board")
    assert facts.package == "llama-server"
    assert facts.parameters == inside.parameters
    inner.close()
    served.close()


@pytest.mark.needs(module="xllamacpp")
def test_llama_cpp_by_openais_interface_counts_by_usage(llama_cpp):
    """A prompt of text, counted by the server."""
    path = llama_cpp.with_name("openai.server")
    path.write_text(llama_cpp.read_text() + 'server = "openai"\n')
    generator = create("server")
    facts = generator.load(path, Options(), CONTEXT)
    answer, stamps = ask(generator, 5)
    assert (answer.output_tokens, sum(stamps), facts.abilities.counts) == (5, 5, "usage")
    assert answer.prompt_tokens > 1
    assert answer.cached_tokens <= 1
    generator.close()


@pytest.mark.needs(module="xllamacpp")
def test_a_server_that_dies_is_one_line(llama_cpp):
    """Its end during a query is no number and no traceback."""
    generator = create("server")
    generator.load(llama_cpp, Options(), CONTEXT)
    query = generator.bind([1, 70, 71], Limits(20))
    generator._open[0]._connection.sock.close()
    with pytest.raises(EdgemeterError, match="broke off"):
        query(lambda _: None)
    generator.close()


@pytest.mark.needs(module="gguf")
@pytest.mark.needs(module="xllamacpp")
def test_a_server_states_what_its_draft_model_guessed_and_what_of_that_was_right(tmp_path):
    """A model that drafts for itself is always right, one of other weights hardly ever; the tokens are those without a draft."""
    make_llama = importlib.import_module("tests.fixtures.generators.make_llama")
    answers = {}
    make_llama.write(tmp_path / "model.gguf", seed=20)
    make_llama.write(tmp_path / "same.gguf", seed=20)
    make_llama.write(tmp_path / "other.gguf", seed=7)
    for name in ("none", "same", "other"):
        draft = None if name == "none" else tmp_path / f"{name}.gguf"
        with llama_cpp_server(tmp_path / "model.gguf", tmp_path, draft=draft) as path:
            generator = create("server")
            facts = generator.load(path, Options(), CONTEXT)
            answers[name] = generator.bind([1, *range(70, 78)], Limits(24))(lambda _: None)
            assert facts.speculative == (None if name == "none" else "draft-simple")
            generator.close()
    assert answers["none"].tokens == answers["same"].tokens == answers["other"].tokens
    assert answers["none"].drafted_tokens is None
    assert answers["same"].accepted_tokens == answers["same"].drafted_tokens > 15
    assert answers["other"].accepted_tokens < answers["other"].drafted_tokens / 4


def test_a_server_at_any_address_of_this_machine_is_known_to_be_on_it(serve):
    """Its joules are drawn here, whether it is asked by localhost or by the address in the network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as routed:
        try:
            # Sends nothing.
            routed.connect(("192.0.2.99", 9))
        except OSError:
            pytest.skip("this machine has no address in a network")
        address = routed.getsockname()[0]
    for host in ("127.0.0.1", address):
        _, path = serve(LanguageServer(openai(WHOLE), host))
        generator = create("server")
        assert generator.load(path, Options(), CONTEXT).facts["server_machine"] == "this"
        generator.close()
