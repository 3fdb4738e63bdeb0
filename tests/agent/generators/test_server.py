"""The generator that asks a server: written streams of each kind in this process, and llama.cpp's own server."""

import base64
import contextlib
import json
import ssl
import time
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError, UnavailableError
from edgemeter.agent.base.model_server import ModelServer
from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.generators import Chat, ChatMessage, EngineTimings, Limits, Picture, create
from edgemeter.agent.quality.answer_key import AnswerKey
from edgemeter.agent.runtimes import Options
from tests.fixtures.in_process_http import InProcessNetwork
from tests.fixtures.language_server import LanguageServer, Reply, events, llama_cpp_server, llama_server
from tests.fixtures.rows import table_row
from tests.fixtures.still_time import stop_time

CONTEXT = 64
MODEL = Path(__file__).resolve().parents[3] / "models" / "language" / "edgemeter-notes_q8_0.gguf"


def counted(completion, **details):
    """Return the chunk that counts tokens."""
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": completion, **details}}


USAGE = counted(3)
MODELS = Reply({"data": [{"id": "tiny"}]})


def text(words, reason=None):
    """Return a chunk of /v1/completions."""
    return {"choices": [{"text": words, "finish_reason": reason}]}


def chat(delta, reason=None):
    """Return a chunk of /v1/chat/completions."""
    return {"choices": [{"delta": delta, "finish_reason": reason}]}


WHOLE = events(text("a"), text("b"), text("c", "length"), USAGE)


@pytest.fixture
def network(monkeypatch):
    """Return a network that ends in this process."""
    return InProcessNetwork(monkeypatch)


@pytest.fixture
def serve(tmp_path, network):
    """Return what starts a server with routes and writes its file; `keys` are lines of the file."""
    started = []

    def start(routes, *keys):
        started.append(routes if isinstance(routes, LanguageServer) else LanguageServer(routes, network))
        path = tmp_path / f"{len(started)}.server"
        path.write_text("\n".join([f'url = "{started[-1].url}"', *keys]))
        return started[-1], path

    return start


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
    """Pings, empty lines, an empty piece and the usage in a chunk without choices are no tokens; all goes over one connection."""
    server, generator, facts = loaded(openai(events(text(""), text("a"), text("b"), text("c", "length"), USAGE)))
    answer, stamps = ask(generator)
    assert (answer.text, answer.ended, answer.prompt_tokens, answer.output_tokens, stamps) == ("abc", "length", 5, 3, [1, 1, 1])
    assert (facts.abilities.counts, facts.abilities.is_local, facts.abilities.ignores_end) == ("usage", False, False)
    assert facts.facts["server_machine"] == "this"
    assert server.contents("/v1/completions")[-1] == {
        "model": "tiny",
        "prompt": "the board",
        "max_tokens": 3,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert len(server.connections) == 1


def test_another_prompt_drops_what_a_server_keeps(loaded):
    """Before each query to a server without a switch comes a short one that shares no beginning with it."""
    server, generator, _ = loaded(openai(WHOLE))
    ask(generator)
    ask(generator)
    prompts = [(content["prompt"].split()[0], content["max_tokens"]) for content in server.contents("/v1/completions")]
    assert prompts == [("Another", 4), *[("Another", 4), ("the", 3)] * 2]


def test_thoughts_and_answers_are_kept_apart(loaded):
    """A server that parts the two has cut off the mark between them: a score needs it, and a thought alone is no answer."""
    for deltas, expected in [
        ([{"reasoning_content": "Okay, "}, {"reasoning": "so: ", "content": "Pa"}, {"content": "ris"}], "Okay, so: </think>Paris"),
        ([{"reasoning_content": "Okay, "}, {"reasoning_content": "the"}, {"reasoning_content": " user"}], "Okay, the user</think>"),
        # The role alone is no token, a call of a tool is one.
        ([{"role": "assistant", "content": None}, {"content": "Pa"}, {"content": "ris"}, {"tool_calls": [{}]}], "Paris"),
    ]:
        stream = events(*map(chat, deltas), chat({}, "stop"), USAGE)
        server, generator, _ = loaded(openai(stream, "/v1/chat/completions"), 'endpoint = "chat"')
        answer, stamps = ask(generator)
        assert (answer.text, answer.output_tokens, stamps) == (expected, 3, [1, 1, 1])
        assert server.contents("/v1/chat/completions")[-1]["messages"] == [{"role": "user", "content": "the board"}]
        assert AnswerKey(("Paris",)).accepts(answer.text) == expected.endswith("Paris")


def test_reasoning_that_is_not_streamed_is_with_the_first_piece(loaded):
    """Eight tokens of it came before any piece: the later ones are of the answer alone. What is streamed is not hidden."""
    three = [{"content": "a"}, {"content": "bcd"}, {"content": "e"}]
    for completion, total, deltas, stamped, hidden in [
        # OpenAI's count holds the reasoning, xAI's does not.
        (11, 16, three, (9, 1, 1), 8),
        (3, 16, three, (9, 1, 1), 8),
        (12, 17, [{"content": "a"}, {"content": "bc"}, {"content": "d"}], (9, 2, 1), 8),
        (11, 16, [{"content": "a"}], (11,), 8),
        (11, 16, [{"reasoning": "aaaaaaaa"}, {"content": "b"}, {"content": "cd"}], (8, 1, 2), None),
        (11, 16, [{"content": "hm</think>"}, {"content": "c"}], (10, 1), None),
    ]:
        counts = counted(completion, total_tokens=total, completion_tokens_details={"reasoning_tokens": 8})
        stream = events(*map(chat, deltas), chat({}, "length"), counts)
        routes = openai(stream, "/v1/chat/completions")
        routes["/v1/chat/completions"] = lambda content, stream=stream: stream if "the board" in str(content) else WHOLE
        answer, _ = ask(loaded(routes, 'endpoint = "chat"')[1], total - 5)
        with table_row(completion, deltas):
            assert (answer.stamped_tokens, answer.hidden_reasoning_tokens) == (stamped, hidden)
            assert (answer.output_tokens, answer.unstreamed) == (total - 5, None)


def test_without_counts_pieces_are_counted_as_estimated(loaded):
    """Of a server that never counts, and of proxies that state 0."""
    none = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    for pieces, usage in (("a", [none]), ("abc", [none]), ("ab", [])):
        stream = events(*map(text, pieces), text("", "stop"), *usage)
        _, generator, facts = loaded({"/v1/models": lambda _: MODELS, "/v1/completions": lambda _, stream=stream: stream})
        answer, stamps = ask(generator)
        assert (answer.output_tokens, answer.stamped_tokens, stamps) == (len(pieces), (), [1] * len(pieces))
        assert (answer.prompt_tokens, answer.cached_tokens, answer.ended) == (None, None, "end_of_text")
        assert facts.abilities.counts == "estimated"


def test_tokens_joined_in_one_piece_are_counted_from_the_usage(loaded):
    """Two pieces and three tokens: the longer piece has two, at its own moment. Cached tokens of the prompt are stated too."""
    usage = counted(3, prompt_tokens_details={"cached_tokens": 4})
    answer, stamps = ask(loaded(openai(events(text("a"), text("bc", "length"), usage)))[1])
    assert (stamps, answer.stamped_tokens, answer.output_tokens, answer.cached_tokens) == ([1, 1], (1, 2), 3, 4)
    # The token that ends a text shows nothing: two pieces are one token each.
    answer, stamps = ask(loaded(openai(events(text("a"), text("bc", "stop"), counted(3))))[1])
    assert (stamps, answer.stamped_tokens, answer.output_tokens) == ([1, 1], (), 2)


def test_llama_server_takes_tokens_and_reports_all(loaded, network):
    """Prompts are tokens, the cache is off, the end of text ignored, and timings are its own."""
    server, generator, facts = loaded(llama_server(network))
    answer, stamps = ask(generator, 4, [1, 50, 60])
    assert stamps == [1] * 4
    assert (answer.tokens, answer.prompt_tokens, answer.ended) == ((111, 112, 113, 114), 3, "length")
    assert answer.own == EngineTimings(prefill_ms=1.0, prefilled_tokens=3, decode_ms=2.0, decoded_tokens=3)
    assert (answer.drafted_tokens, answer.accepted_tokens, facts.speculative) == (3, 2, "draft")
    content = server.contents("/completion")[-1]
    assert [content[key] for key in ("prompt", "cache_prompt", "ignore_eos", "n_predict")] == [[1, 50, 60], False, True, 4]
    assert (facts.first_tokens, facts.precision, facts.trained_context_tokens, facts.version) == ((1,), "q8_0", 4096, "b1")


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
    assert [first[key] for key in ("prompt", "ignore_eos", "min_tokens")] == [[1, 2, 3], True, 3]
    assert first["stream_options"]["continuous_usage_stats"] is True
    assert first["cache_salt"] != other["cache_salt"]


def test_ollama_reports_durations_and_gets_the_context_it_needs(loaded):
    """Its lines are JSON without `data:`; cached prompt tokens are none that it processed. An older one does not state them: unknown."""
    last = {"done": True, "done_reason": "length", "prompt_eval_count": 9, "prompt_eval_cached_count": 2, "prompt_eval_duration": 7_000_000,
            "eval_count": 3, "eval_duration": 4_000_000}  # fmt: skip
    info = {"general.architecture": "llama", "llama.context_length": 2048}
    routes = {
        "/api/version": lambda _: Reply({"version": "0.9"}),
        "/v1/models": lambda _: Reply({"data": [{"id": "tiny:1b", "owned_by": "library"}]}),
        "/api/show": lambda _: Reply({"details": {"quantization_level": "Q4_K_M"}, "model_info": info}),
        "/api/tags": lambda _: Reply({"models": [{"name": "other:1b", "digest": "cd" * 32}, {"name": "tiny:1b", "digest": "ab" * 32}]}),
        "/api/generate": lambda _: Reply(lines=[json.dumps(line).encode() for line in (*({"response": text} for text in "abc"), last)]),
    }
    server, generator, facts = loaded(routes)
    answer, stamps = ask(generator)
    assert (answer.output_tokens, answer.prompt_tokens, answer.cached_tokens, stamps) == (3, 9, 2, [1, 1, 1])
    assert answer.own == EngineTimings(prefill_ms=7.0, prefilled_tokens=7, decode_ms=4.0, decoded_tokens=2)
    assert (facts.package, facts.version, facts.precision, facts.trained_context_tokens) == ("ollama", "0.9", "q4_k_m", 2048)
    assert facts.digest_sha256 == "ab" * 32
    content = server.contents("/api/generate")[-1]
    assert (content["raw"], content["options"]["num_ctx"], content["options"]["num_predict"]) == (True, CONTEXT, 3)
    del last["prompt_eval_cached_count"]
    answer, _ = ask(generator)
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens, answer.own) == (9, 3, None, None)


def test_a_lost_connection_fails_a_query_and_not_the_run(loaded, network):
    """Of a user, whose connection cannot be opened."""
    server, generator, _ = loaded(llama_server(network))
    server.close()
    query = generator.bind_concurrent([1, 50], Limits(2), 0)
    with pytest.raises(AnswerError, match="Connection refused"):
        query(lambda _: None)


def test_only_a_request_that_met_a_closed_connection_is_sent_again(network, monkeypatch):
    """One on which the server worked and then ended the connection has failed: the server has seen each request once."""
    stop_time(monkeypatch)
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n"
    for works, outcome in ((True, "broke off"), (False, [b"data: [DONE]"])):
        bodies, connections = [], []

        def serve(connection, peer, works=works, bodies=bodies, connections=connections):
            connections.append(peer)
            request = b""
            while not request.endswith(b"}"):
                request += connection.recv(65536)
            bodies.append(request.partition(b"\r\n\r\n")[2])
            connection.sendall(answer)
            if works and len(connections) == 1:
                bodies.append(connection.recv(65536).partition(b"\r\n\r\n")[2])
                time.sleep(0.3)

        with contextlib.closing(ModelServer(ServerAddress(url=network.serve(serve)))) as connection:
            assert list(connection.stream("/v1/completions", b'{"query": 1}')) == [b"data: [DONE]"]
            try:
                answered = list(connection.stream("/v1/completions", b'{"query": 2}'))
            except AnswerError as failure:
                answered = failure.kind
        assert answered == outcome
        assert bodies == [b'{"query": 1}', b'{"query": 2}']


def test_the_pings_are_no_part_of_loading(loaded, network, monkeypatch):
    """They are the benchmark's; their median is the round trip."""
    stop_time(monkeypatch)
    server = llama_server(network)
    server.routes["/health"] = lambda _: (time.sleep(0.05), Reply({"status": "ok"}))[1]
    _, _, facts = loaded(server)
    assert facts.load_ns <= 3 * 50e6
    assert facts.network_round_trip_ms == 50


def test_users_share_the_authorities_and_keep_their_connections(loaded, network, monkeypatch):
    """Reading the certificates of authorities takes ms, which would be think time of each query."""
    read = []
    default = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda **names: (read.append(1), default(**names))[1])
    secured = ModelServer(ServerAddress(url="https://127.0.0.1:1"))
    for _ in range(3):
        secured.another()
    assert len(read) == 1
    server, generator, _ = loaded(llama_server(network))
    for number in range(6):
        generator.bind_concurrent([1, 50 + number], Limits(2), number % 2)(lambda _: None)
    assert len(server.connections) == 1 + 2


def test_pictures_are_encoded_before_the_clock_runs(loaded, monkeypatch):
    """What a query sends is ready when it begins, of a single one and of a user's."""
    routes = openai(events(chat({"content": "a"}), chat({}, "length"), USAGE), "/v1/chat/completions")
    server, generator, _ = loaded(routes, 'endpoint = "chat"')
    prompt = Chat((ChatMessage("user", "What is it?", Picture("a.png", b"\x89PNG" * 100)),))
    encode = base64.b64encode
    for bind in (generator.bind, generator.bind_concurrent):
        query = bind(prompt, Limits(3), *([0] if bind == generator.bind_concurrent else []))
        with monkeypatch.context() as patch:
            patch.setattr(base64, "b64encode", lambda _: pytest.fail("it is encoded within the query"))
            assert query(lambda _: None).text == "a"
        url = server.contents("/v1/chat/completions")[-1]["messages"][0]["content"][0]["image_url"]["url"]
        assert url.partition(",")[2] == encode(b"\x89PNG" * 100).decode()


def test_a_bad_reply_is_one_line_and_the_next_query_works(loaded):
    """A query that fails leaves nothing behind: the connection is opened anew."""
    for reply, kind, match in [
        (Reply({"error": "no slot"}, status=429), "http 429", "no slot"),
        (Reply({"error": {"message": "model 'x' not found"}}, status=404), "http 404", "model 'x' not found; check url"),
        (Reply({"error": "out of\nmemory"}, status=500), "http 500", "out of memory; read the server's log"),
        (Reply({"detail": "no key"}, status=401), "http 401", "no key; give its key as api_key_file"),
        (Reply(b"<html>", status=400), "http 400", "the server does not take"),
        (Reply(b"<html>hello</html>"), "no answer", "no part of an answer"),
        (Reply(lines=[b"data: [1]"]), "no answer", "no part of an answer"),
        (events(text(""), text("", "stop"), counted(0)), "no token", ""),
        (events(text("a"), text("b"), has_end=False), "stopped in the middle", "after 2 tokens"),
        (Reply(lines=events(text("a"), has_end=False).lines, is_cut=True), "broke off|stopped in the middle", ""),
        (events(text("a"), text("b"), text("c", "length")), "no count", ""),
        (events(*[text("a")] * 4, text("b", "length"), USAGE), "too many tokens", "the 3 tokens that were asked for"),
        (events(text("a"), text("b", "length"), counted(9)), "too many tokens", "9 tokens where 3"),
        (events(text("a"), {"error": {"message": "out of memory"}}), "error in the stream", "after 1 tokens: .*out of memory"),
        (Reply(lines=[b"x" * (2 << 20)]), "no stream", "1 MiB"),
    ]:
        with table_row(kind, match):
            server, generator, _ = loaded(openai(reply))
            query = generator.bind("the board", Limits(3))
            with pytest.raises(AnswerError, match=match or None) as refusal:
                query(lambda _: None)
            assert refusal.value.kind in kind.split("|")
            assert "\n" not in str(refusal.value)
            server.routes |= openai(WHOLE)
            assert ask(generator)[0].text == "abc"


def test_a_server_that_cannot_generate_is_unavailable(serve):
    """It is asked for two tokens when it is loaded, so that a run does not begin; one that is gone refuses."""
    for routes, keys, match in [
        ({}, (), "lists no model under /v1/models"),
        ({"/v1/models": lambda _: MODELS}, ('model = "other"',), "has no model 'other': it has tiny"),
        ({"/v1/models": lambda _: MODELS}, (), "answers 404"),
        ({"/v1/models": lambda _: Reply(b"<html>")}, ('model = "x"',), "answers 404"),
        ({"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: Reply({}, status=500)}, (), "answers 500"),
        (None, (), "start the server, or correct its url"),
    ]:
        server, path = serve(routes or {}, *keys)
        if routes is None:
            server.close()
        with table_row(match), pytest.raises(UnavailableError, match=match) as refusal:
            create("server").load(path, Options(), CONTEXT)
        assert str(path) in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_wrong_file_is_a_config_error(tmp_path):
    """The wrong key or value is named."""
    for content, match in [
        ('url = "http://[::1"', "not the address of a server"),
        ('url = "http://x"\nendpoint = "talk"', "endpoint"),
        ('url = "http://x"\ncolour = "red"', "colour"),
        ("", "is empty"),
        ('url = "http://x"\napi_key_file = "/nowhere"', "api_key_file '/nowhere'"),
    ]:
        (tmp_path / "one.server").write_text(content)
        with table_row(content), pytest.raises(ConfigError, match=match):
            create("server").load(tmp_path / "one.server", Options(), CONTEXT)


def test_a_key_is_sent_and_not_kept_in_the_record(loaded, network, tmp_path):
    """It goes into the header only."""
    (tmp_path / "key").write_text("secret-of-mine\n")
    server, _, facts = loaded(llama_server(network), f'api_key_file = "{tmp_path / "key"}"')
    assert "secret-of-mine" not in str(facts)
    assert server.keys == {"Bearer secret-of-mine"}


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
        assert (answer.tokens, answer.text, answer.ended) == (expected.tokens, expected.text, "length")
        assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (16, 12, 0)
        assert (answer.own.prefilled_tokens, answer.own.decoded_tokens) == (16, 11)
    assert served.encode("the board") == inner.encode("the board")
    assert facts.package == "llama-server"
    assert facts.parameters == inside.parameters
    inner.close()
    served.close()
