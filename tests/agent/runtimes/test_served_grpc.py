"""gRPC: what its errors say, TLS, where its server runs, and what an arrival opens and reads. Servers of grpcio."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options, create, served_grpc
from edgemeter.agent.runtimes.served_grpc import _field, _varint
from tests.fixtures.certificates import Authority

pytestmark = pytest.mark.needs(module="grpc")
X = np.array([[0, 1, 2, 3]], np.float32)
SHAPE = _field(3, _varint(1) + _varint(4))
METADATA = _field(1, "m") + b"".join(_field(number, _field(1, name) + _field(2, "FP32") + SHAPE) for number, name in ((4, "x"), (5, "y")))
ANSWER = _field(1, "m") + _field(5, _field(1, "y") + _field(2, "FP32") + SHAPE) + _field(6, X.tobytes())
READY = _varint(8) + _varint(1)
ANSWERS = {
    "ServerMetadata": _field(1, "test server"), "ModelMetadata": METADATA, "ModelReady": READY, "ServerReady": READY, "ModelInfer": ANSWER,
}  # fmt: skip


@contextmanager
def grpc_server(instead, pair=None, peers=None, port=0):
    """Yield the port of a server that answers what `ANSWERS` has, or aborts with what `instead` has by name of the method.

    With a `pair` it speaks TLS; of each inference it adds the client's address to `peers`.
    """
    import grpc  # noqa: PLC0415

    def method(name):
        def answer(_, context):
            if peers is not None and name == "ModelInfer":
                peers.append(context.peer())
            if name in instead:
                context.abort(grpc.StatusCode[instead[name][0]], instead[name][1])
            return ANSWERS[name]

        return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {name: method(name) for name in ANSWERS}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    if pair is None:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        credentials = grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.certificate.read_bytes())])
        port = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def server_file(folder, url, keys=""):
    """Return a file that describes a server."""
    path = folder / "m.server"
    path.write_text(f'url = "{url}"\nprotocol = "oip"\ntransport = "grpc"\nmodel = "m"\n{keys}\n')
    return path


FULL = "[request id: <id_unknown>] Exceeds maximum queue size"
FAILED = [
    ("UNAVAILABLE", FULL, "grpc unavailable", True, "ask for less at once"),
    ("RESOURCE_EXHAUSTED", FULL, "grpc resource_exhausted", True, "ask for less at once"),
    ("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)", "grpc too large", False, "choose a smaller batch"),
    ("UNAVAILABLE", "Socket closed", "broke off", False, "read the server's log"),
    ("UNKNOWN", "", "grpc unknown", False, r"\(UNKNOWN: no details\)"),
    ("INVALID_ARGUMENT", "wrong shape", "grpc invalid_argument", False, "the server does not take these inputs"),
    ("UNAUTHENTICATED", "no token", "grpc unauthenticated", False, "give its key as api_key_file"),
    ("PERMISSION_DENIED", "not yours", "grpc permission_denied", False, "give its key as api_key_file"),
]


@pytest.mark.parametrize(("code", "details", "kind", "is_busy", "remedy"), FAILED)
def test_a_failed_query_states_whether_the_server_is_busy(tmp_path, code, details, kind, is_busy, remedy):
    """A full queue is no lost connection, and who tries again at once is refused again."""
    instead = {}
    with grpc_server(instead) as port, closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, f"http://127.0.0.1:{port}"), Options())
        instead["ModelInfer"] = code, details
        with pytest.raises(AnswerError, match=remedy) as failure:
            runtime.bind([X])()
    assert (failure.value.kind, failure.value.is_busy) == (kind, is_busy)


def test_a_server_that_is_gone_has_no_connection(tmp_path):
    """In the middle of a run."""
    with closing(create("served")) as runtime:
        with grpc_server({}) as port:
            runtime.load(server_file(tmp_path, f"http://127.0.0.1:{port}"), Options())
            call = runtime.bind([X])
        for _ in range(3):
            with pytest.raises(AnswerError, match="start the server, or correct its url") as failure:
                call()
    assert (failure.value.kind, failure.value.is_busy) == ("no connection", True)


def test_a_server_that_is_back_answers_at_once(tmp_path):
    """A channel of the library waits longer after each attempt, up to two minutes, and fails what is asked meanwhile."""
    with closing(create("served")) as runtime:
        with grpc_server({}) as port:
            runtime.load(server_file(tmp_path, f"http://127.0.0.1:{port}"), Options())
            call = runtime.bind([X])
        for _ in range(2):
            with pytest.raises(AnswerError, match="start the server"):
                call()
        with grpc_server({}, port=port):
            call()
        np.testing.assert_array_equal(runtime.outputs()[0], X)


def test_a_server_of_this_machine_is_known_by_any_of_its_names(tmp_path, monkeypatch):
    """By the addresses of the name; of a name without an address nothing is known."""
    resolve = socket.getaddrinfo

    def named(host, port, **options):
        return resolve("127.0.0.1" if host == "board.example" else host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", named)
    with grpc_server({}) as port, closing(create("served")) as runtime:
        # The library has its own names.
        monkeypatch.setattr(served_grpc.GrpcConnection, "_call", redirected(port))
        loaded = runtime.load(server_file(tmp_path, f"http://board.example:{port}"), Options())
        assert loaded.facts["server_machine"] == "this"
        loaded = runtime.load(server_file(tmp_path, f"http://board.invalid:{port}"), Options())
        assert "server_machine" not in loaded.facts
        assert runtime.served().is_here is None


def redirected(port):
    """Return the method that calls, to this port of this machine."""
    call = served_grpc.GrpcConnection._call

    def redirect(self, path, content):
        self._target = f"127.0.0.1:{port}"
        return call(self, path, content)

    return redirect


def test_an_arrival_reads_neither_key_nor_authority(tmp_path):
    """They were read with the model: it would be in the clock."""
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o600)
    with grpc_server({}) as port, closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, f"http://127.0.0.1:{port}", f'api_key_file = "{key}"'), Options())
        key.unlink()
        answered = runtime.bind_concurrent([X])()
        answered.end()
        np.testing.assert_array_equal(answered.outputs()[0], X)
        assert runtime.served().connect is None


def test_an_arrival_connects_within_its_latency_and_a_user_once(tmp_path):
    """By the addresses that the server sees; the library states no time of connecting."""
    peers = []
    with grpc_server({}, peers=peers) as port, closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, f"http://127.0.0.1:{port}"), Options())
        arrival, users = runtime.bind_concurrent([X]), [runtime.bind_concurrent([X], user) for user in (0, 1)]
        with runtime.window():
            for call in (arrival, arrival, arrival, *users, *users):
                call().end()
        assert runtime.served().connect is None
    assert len(set(peers[:3])) == 3
    assert peers[3:5] == peers[5:7]
    assert len(set(peers)) == 5


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return an authority."""
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.mark.needs("openssl")
def test_tls_needs_the_servers_authority(tmp_path, authority, monkeypatch):
    """That of the file, or one of this machine, as over HTTP; queries and arrivals use it."""
    with grpc_server({}, authority.signed("localhost", "DNS:localhost,IP:127.0.0.1")) as port, closing(create("served")) as runtime:
        url = f"grpcs://127.0.0.1:{port}"
        with pytest.raises(UnavailableError, match="of an authority that is unknown here: give that as ca_file"):
            runtime.load(server_file(tmp_path, url), Options())
        runtime.load(server_file(tmp_path, url, f'ca_file = "{authority.certificate}"'), Options())
        runtime.bind([X])()
        np.testing.assert_array_equal(runtime.outputs()[0], X)
        answered = runtime.bind_concurrent([X])()
        answered.end()
        np.testing.assert_array_equal(answered.outputs()[0], X)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        runtime.load(server_file(tmp_path, url), Options())


@pytest.mark.needs("openssl")
def test_each_failure_of_tls_has_its_remedy(tmp_path, authority):
    """Another name, no TLS on either side, and a file that holds no certificate."""
    ca_file = f'ca_file = "{authority.certificate}"'
    with grpc_server({}) as plain, grpc_server({}, authority.signed("board.example", "DNS:board.example")) as secured:
        for scheme, port, message in (
            ("grpcs", secured, "is for another name: set url to that name"),
            ("grpcs", plain, "does not speak TLS: set url to grpc://"),
            ("grpc", secured, "correct its url"),
        ):
            with pytest.raises(UnavailableError, match=message):
                create("served").load(server_file(tmp_path, f"{scheme}://127.0.0.1:{port}", ca_file), Options())
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"cannot read the ca_file .*give a certificate in PEM form"):
        create("served").load(server_file(tmp_path, "grpcs://127.0.0.1", f'ca_file = "{tmp_path / "none.pem"}"'), Options())


def test_addresses_are_checked_as_those_of_http(tmp_path):
    """A password would stand in every record; an authority that cannot be read is said when the model is loaded."""
    for url in ("http://alice:s3cret@127.0.0.1:8001", "ftp://127.0.0.1"):
        with pytest.raises(ConfigError, match="is not the address of a server: give grpc://HOST:PORT or grpcs://HOST") as failure:
            create("served").load(server_file(tmp_path, url), Options())
        assert "s3cret" not in str(failure.value)
    with pytest.raises(ConfigError, match="cannot read the ca_file"):
        create("served").load(server_file(tmp_path, "grpcs://127.0.0.1", f'ca_file = "{tmp_path / "none.pem"}"'), Options())


@pytest.mark.parametrize("header", ['"x y" = "a"', '"X!" = "a"', '"k-bin" = "a"', '"x" = "é"', '"x" = "a\\tb"'])
def test_a_header_that_cannot_be_sent_is_named(tmp_path, header):
    """Metadata takes less than HTTP does."""
    with pytest.raises(ConfigError, match=r"^header '.*cannot be sent: correct headers"):
        create("served").load(server_file(tmp_path, "http://127.0.0.1:9", f"headers = {{{header}}}"), Options())


def test_a_description_that_is_no_message_is_one_line_with_the_models_path(tmp_path, monkeypatch):
    """Whichever part of it is none."""
    with grpc_server({}) as port, closing(create("served")) as runtime:
        for method in ("ModelMetadata", "ModelReady", "ServerMetadata"):
            with monkeypatch.context() as patch:
                patch.setitem(ANSWERS, method, b"\xff")
                with pytest.raises(UnavailableError, match=r"^'.*m.server': the server answers what is no message"):
                    runtime.load(server_file(tmp_path, f"http://127.0.0.1:{port}"), Options())


def test_a_model_without_inputs_is_refused(tmp_path, monkeypatch):
    """With what to do."""
    monkeypatch.setitem(ANSWERS, "ModelMetadata", _field(1, "m"))
    with grpc_server({}) as port, pytest.raises(ConfigError, match="states no inputs of 'm'"):
        create("served").load(server_file(tmp_path, f"http://127.0.0.1:{port}"), Options())


def test_a_server_that_is_not_there_is_named(tmp_path):
    """As over HTTP."""
    with pytest.raises(UnavailableError, match=r"UNAVAILABLE.*start the server"):
        create("served").load(server_file(tmp_path, "http://127.0.0.1:9"), Options())
