"""The server generator is tested against scripted streams of each kind and llama.cpp's server.

The streams are written in this process.
"""

import contextlib
import ssl
import time

import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError, UnavailableError
from edgemeter.agent.base.model_server import ModelServer
from edgemeter.agent.base.server_address import ServerAddress
from edgemeter.agent.engine.prompts.answer_key import AnswerKey
from edgemeter.agent.generators import Chat, Limits, create
from edgemeter.agent.runtimes import Options
from tests.fixtures.in_process_http import InProcessNetwork
from tests.fixtures.language_server import LanguageServer, Reply, events, llama_server
from tests.fixtures.rows import table_row
from tests.fixtures.still_time import stop_time

CONTEXT = 64


def counted(completion, **details):
    return {
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": completion, **details},
    }


USAGE = counted(3)
MODELS = Reply({"data": [{"id": "tiny"}]})


def text(words, reason=None):
    return {"choices": [{"text": words, "finish_reason": reason}]}


def chat(delta, reason=None):
    return {"choices": [{"delta": delta, "finish_reason": reason}]}


WHOLE = events(text("a"), text("b"), text("c", "length"), USAGE)


@pytest.fixture
def network(monkeypatch):
    return InProcessNetwork(monkeypatch)


@pytest.fixture
def serve(tmp_path, network):
    """Return a function that starts a server with routes and writes its file.

    `keys` are lines of the file.
    """
    started = []

    def start(routes, *keys):
        started.append(
            routes if isinstance(routes, LanguageServer) else LanguageServer(routes, network)
        )
        path = tmp_path / f"{len(started)}.server"
        path.write_text("\n".join([f'url = "{started[-1].url}"', *keys]))
        return started[-1], path

    return start


@pytest.fixture
def loaded(serve):
    """Return a function that loads a server with routes.

    It returns the server, the generator and what was found.
    """
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
    """Return the routes of a server with OpenAI's interface that answers queries with `stream`.

    The generator's own short questions get a fixed answer.
    """
    return {
        "/v1/models": lambda _: MODELS,
        path: lambda content: WHOLE if "Another" in str(content) else stream,
    }


def ask(generator, output=3, prompt="the board"):
    stamps = []
    query = generator.bind(prompt, Limits(output))
    return query(stamps.append), stamps


def test_a_stream_is_stamped_and_counted_by_usage(loaded):
    """Pings, empty lines, an empty piece and the usage chunk without choices are no tokens.

    All requests go over one connection.
    """
    server, generator, facts = loaded(
        openai(events(text(""), text("a"), text("b"), text("c", "length"), USAGE))
    )
    answer, stamps = ask(generator)
    assert (answer.text, answer.ended, answer.prompt_tokens, answer.output_tokens, stamps) == (
        "abc",
        "length",
        5,
        3,
        [1, 1, 1],
    )
    assert (facts.abilities.counts, facts.abilities.is_local, facts.abilities.ignores_end) == (
        "usage",
        False,
        False,
    )
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
    """Before each query, a server without a cache switch gets a short, unrelated prompt."""
    server, generator, _ = loaded(openai(WHOLE))
    ask(generator)
    ask(generator)
    prompts = [
        (content["prompt"].split()[0], content["max_tokens"])
        for content in server.contents("/v1/completions")
    ]
    assert prompts == [("Another", 4), *[("Another", 4), ("the", 3)] * 2]


def test_a_query_finds_its_connection_open(loaded, network):
    """A short request just before each query reopens a connection that the server has closed."""
    for routes, prompt, ping in (
        (llama_server(network), [1, 50], "/health"),
        (openai(WHOLE), "the board", "/v1/models"),
    ):
        server, generator, _ = loaded(routes)
        ask(generator, 3, prompt)
        assert [path for path, _ in server.asked][-2:] == [ping, "/v1/completions"]


def test_an_arrival_closes_its_connection(loaded, network):
    """The connection is closed whether the query is answered or fails."""
    server, generator, _ = loaded(llama_server(network))
    query = generator.bind_concurrent([1, 50], Limits(2))
    for _ in range(2):
        query(lambda _: None)
        assert network.open_connections == 0
    server.routes["/v1/completions"] = lambda _: events(text("a"), has_end=False)
    with pytest.raises(AnswerError):
        query(lambda _: None)
    assert network.open_connections == 0


def test_extra_fields_fit_the_query(loaded):
    """`true` stands for the number of tokens asked for, and only one field states the limit.

    A query that may end with its text is not forced to go on.
    """
    extra = (
        "extra = { ignore_eos = true, min_tokens = true, max_completion_tokens = true, seed = 1 }"
    )
    server, generator, _ = loaded(openai(WHOLE), extra)
    for limits, not_ending in (
        (Limits(3), {"ignore_eos": True, "min_tokens": 3}),
        (Limits(3, ignore_end=False), {}),
    ):
        generator.bind("the board", limits)(lambda _: None)
        content = server.contents("/v1/completions")[-1]
        names = ("ignore_eos", "min_tokens", "max_completion_tokens", "seed", "max_tokens")
        assert {name: content[name] for name in names if name in content} == {
            **not_ending,
            "max_completion_tokens": 3,
            "seed": 1,
        }


def test_thoughts_and_answers_are_kept_apart(loaded):
    """The mark between thought and answer is restored where the server has removed it.

    A score needs the mark, and a thought alone is no answer.
    """
    for deltas, expected in [
        (
            [
                {"reasoning_content": "Okay, "},
                {"reasoning": "so: ", "content": "Pa"},
                {"content": "ris"},
            ],
            "Okay, so: </think>Paris",
        ),
        (
            [
                {"reasoning_content": "Okay, "},
                {"reasoning_content": "the"},
                {"reasoning_content": " user"},
            ],
            "Okay, the user</think>",
        ),
        # The role alone is no token, a call of a tool is one.
        (
            [
                {"role": "assistant", "content": None},
                {"content": "Pa"},
                {"content": "ris"},
                {"tool_calls": [{}]},
            ],
            "Paris",
        ),
    ]:
        stream = events(*map(chat, deltas), chat({}, "stop"), USAGE)
        server, generator, _ = loaded(openai(stream, "/v1/chat/completions"), 'endpoint = "chat"')
        answer, stamps = ask(generator)
        assert (answer.text, answer.output_tokens, stamps) == (expected, 3, [1, 1, 1])
        assert server.contents("/v1/chat/completions")[-1]["messages"] == [
            {"role": "user", "content": "the board"}
        ]
        assert AnswerKey(("Paris",)).accepts(answer.text) == expected.endswith("Paris")


def test_reasoning_that_is_not_streamed_is_with_the_first_piece(loaded):
    """Eight tokens came before any piece, so the later ones belong to the answer alone.

    Reasoning that is streamed is not counted as hidden.
    """
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
        counts = counted(
            completion, total_tokens=total, completion_tokens_details={"reasoning_tokens": 8}
        )
        stream = events(*map(chat, deltas), chat({}, "length"), counts)
        routes = openai(stream, "/v1/chat/completions")
        routes["/v1/chat/completions"] = lambda content, stream=stream: (
            stream if "the board" in str(content) else WHOLE
        )
        answer, _ = ask(loaded(routes, 'endpoint = "chat"')[1], total - 5)
        with table_row(completion, deltas):
            assert (answer.stamped_tokens, answer.hidden_reasoning_tokens) == (stamped, hidden)
            assert (answer.output_tokens, answer.unstreamed) == (total - 5, None)


def test_without_counts_pieces_are_counted_as_estimated(loaded):
    """Pieces are counted for a server that never counts and for proxies that state 0 tokens."""
    none = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    for pieces, usage in (("a", [none]), ("abc", [none]), ("ab", [])):
        stream = events(*map(text, pieces), text("", "stop"), *usage)
        _, generator, facts = loaded(
            {"/v1/models": lambda _: MODELS, "/v1/completions": lambda _, stream=stream: stream}
        )
        answer, stamps = ask(generator)
        assert (answer.output_tokens, answer.stamped_tokens, stamps) == (
            len(pieces),
            (),
            [1] * len(pieces),
        )
        assert (answer.prompt_tokens, answer.cached_tokens, answer.ended) == (
            None,
            None,
            "end_of_text",
        )
        assert facts.abilities.counts == "estimated"


def test_tokens_joined_in_one_piece_are_counted_from_the_usage(loaded):
    """Of three tokens in two pieces, the longer piece has two, both at its own moment.

    Cached tokens of the prompt are stated too.
    """
    usage = counted(3, prompt_tokens_details={"cached_tokens": 4})
    answer, stamps = ask(loaded(openai(events(text("a"), text("bc", "length"), usage)))[1])
    assert (stamps, answer.stamped_tokens, answer.output_tokens, answer.cached_tokens) == (
        [1, 1],
        (1, 2),
        3,
        4,
    )
    # The token that ends a text shows nothing: two pieces are one token each.
    answer, stamps = ask(loaded(openai(events(text("a"), text("bc", "stop"), counted(3))))[1])
    assert (stamps, answer.stamped_tokens, answer.output_tokens) == ([1, 1], (), 2)


def test_an_answer_in_one_piece_has_no_times_of_tokens(loaded):
    """A piece with all tokens has no times unless one step of speculative decoding gave them."""
    for details, is_streamed in (
        ({}, False),
        ({"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 1}, True),
    ):
        stream = events(text("abc", "length"), counted(3, completion_tokens_details=details))
        answer, _ = ask(loaded(openai(stream))[1])
        assert (answer.unstreamed is None) == is_streamed


def test_llama_server_takes_tokens_and_reports_all(loaded, network):
    """The prompt is sent as tokens, without cache and end of text; each line states its tokens."""
    server, generator, facts = loaded(llama_server(network))
    answer, stamps = ask(generator, 4, [1, 50, 60])
    assert stamps == [1] * 4
    assert (answer.text, answer.prompt_tokens, answer.ended, answer.output_tokens) == (
        "HIJK",
        3,
        "length",
        4,
    )
    assert (
        answer.drafted_tokens,
        answer.accepted_tokens,
        answer.cached_tokens,
        facts.speculative,
    ) == (3, 2, 0, "draft")
    content = server.contents("/v1/completions")[-1]
    assert [content[key] for key in ("prompt", "cache_prompt", "ignore_eos", "max_tokens")] == [
        [1, 50, 60],
        False,
        True,
        4,
    ]
    assert (facts.first_tokens, facts.precision, facts.trained_context_tokens, facts.version) == (
        (1,),
        "q8_0",
        4096,
        "b1",
    )
    with pytest.raises(ConfigError, match="2048 are allocated"):
        generator.bind([1] * 2048, Limits(1))


@pytest.mark.parametrize("mark_tokens", [1, 6])
def test_a_question_goes_as_a_chat_where_the_model_has_a_template(loaded, network, mark_tokens):
    """A template counts only if the model knows its mark as a single token.

    llama.cpp also states a template for a model without one. There the mark is several tokens, and
    a chat is refused.
    """
    server = llama_server(network)
    props = server.routes["/props"](None).document | {"chat_template": "<|im_start|>{{ messages }}"}
    server.routes["/props"] = lambda _: Reply(props)
    server.routes["/tokenize"] = lambda content: Reply(
        {"tokens": [7] * (mark_tokens if "<|im_start|>" in content["content"] else 1)}
    )
    server.routes["/v1/chat/completions"] = lambda _: events(
        chat({"content": "a"}), chat({}, "stop"), counted(1)
    )
    _, generator, facts = loaded(server)
    assert facts.abilities.chats == (mark_tokens == 1)
    if facts.abilities.chats:
        assert ask(generator, 3, Chat("6 * 7?"))[0].text == "a"
        content = server.contents("/v1/chat/completions")[-1]
        assert (content["messages"], content["ignore_eos"]) == (
            [{"role": "user", "content": "6 * 7?"}],
            True,
        )
    else:
        with pytest.raises(ConfigError, match="no chat template"):
            generator.bind(Chat("6 * 7?"), Limits(3))


def test_a_lost_connection_fails_a_query_and_not_the_run(loaded, network):
    """A user's query fails when its connection cannot be opened."""
    server, generator, _ = loaded(llama_server(network))
    server.close()
    query = generator.bind_concurrent([1, 50], Limits(2), 0)
    with pytest.raises(AnswerError, match="Connection refused"):
        query(lambda _: None)


def test_only_a_request_that_met_a_closed_connection_is_sent_again(network, monkeypatch):
    """A request on which the server worked before it closed the connection has failed.

    The server sees each request once.
    """
    stop_time(monkeypatch)
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 14\r\n\r\n"
        b"data: [DONE]\n\n"
    )
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


def test_users_share_the_authorities_and_keep_their_connections(loaded, network, monkeypatch):
    """Reading the certificate authorities takes milliseconds, which would delay each query."""
    read = []
    default = ssl.create_default_context
    monkeypatch.setattr(
        ssl, "create_default_context", lambda **names: (read.append(1), default(**names))[1]
    )
    secured = ModelServer(ServerAddress(url="https://127.0.0.1:1"))
    for _ in range(3):
        secured.another()
    assert len(read) == 1
    server, generator, _ = loaded(llama_server(network))
    for number in range(6):
        generator.bind_concurrent([1, 50 + number], Limits(2), number % 2)(lambda _: None)
    assert len(server.connections) == 1 + 2


def test_a_bad_reply_is_one_line_and_the_next_query_works(loaded):
    """A failed query leaves nothing behind, because the connection is opened again."""
    for reply, kind, match in [
        (Reply({"error": "no slot"}, status=429), "http 429", "no slot"),
        (
            Reply({"error": {"message": "model 'x' not found"}}, status=404),
            "http 404",
            "model 'x' not found; check url",
        ),
        (
            Reply({"error": "out of\nmemory"}, status=500),
            "http 500",
            "out of memory; read the server's log",
        ),
        (
            Reply({"detail": "no key"}, status=401),
            "http 401",
            "no key; give its key as api_key_file",
        ),
        (Reply(b"<html>", status=400), "http 400", "the server does not accept"),
        (Reply(b"<html>hello</html>"), "no answer", "not part of an answer"),
        (Reply(lines=[b"data: [1]"]), "no answer", "not part of an answer"),
        (events(text(""), text("", "stop"), counted(0)), "no token", ""),
        (events(text("a"), text("b"), has_end=False), "stopped in the middle", "after 2 tokens"),
        (
            Reply(lines=events(text("a"), has_end=False).lines, is_cut=True),
            "broke off|stopped in the middle",
            "",
        ),
        (events(text("a"), text("b"), text("c", "length")), "no count", ""),
        (
            events(*[text("a")] * 4, text("b", "length"), USAGE),
            "too many tokens",
            "the 3 tokens that were asked for",
        ),
        (events(text("a"), text("b", "length"), counted(9)), "too many tokens", "9 tokens where 3"),
        (
            events(text("a"), {"error": {"message": "out of memory"}}),
            "error in the stream",
            "after 1 tokens: .*out of memory",
        ),
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
    """Loading asks for two tokens, so that no run starts on a server that cannot generate.

    A server that does not reply is refused too.
    """
    for routes, keys, match in [
        ({}, (), "lists no model under /v1/models"),
        (
            {"/v1/models": lambda _: MODELS},
            ('model = "other"',),
            "has no model 'other': it has tiny",
        ),
        ({"/v1/models": lambda _: MODELS}, (), "answers 404"),
        ({"/v1/models": lambda _: Reply(b"<html>")}, ('model = "x"',), "answers 404"),
        (
            {"/v1/models": lambda _: MODELS, "/v1/completions": lambda _: Reply({}, status=500)},
            (),
            "answers 500",
        ),
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
    """The error names the wrong key or value."""
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
    """The key is sent in the header and appears nowhere else."""
    (tmp_path / "key").write_text("secret-of-mine\n")
    server, _, facts = loaded(llama_server(network), f'api_key_file = "{tmp_path / "key"}"')
    assert "secret-of-mine" not in str(facts)
    assert server.keys == {"Bearer secret-of-mine"}
