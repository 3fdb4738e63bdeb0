"""A model behind a server is described, queried and read by protocol and form.

The server's facts and its failures are tested too.
"""

import json
import math
import ssl
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base import model_server
from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.contract.model_formats import runtime_for
from edgemeter.agent.runtimes import Options, create
from tests.fixtures.certificates import Authority
from tests.fixtures.in_process_http import InProcessNetwork
from tests.fixtures.oip_server import ServedModelScript, oip_server
from tests.fixtures.rows import table_row

X = np.array([[0, 1, 2, 3]], np.float32)
Y = [[1, 3, 5, 7]]


@pytest.fixture
def network(monkeypatch):
    return InProcessNetwork(monkeypatch)


@pytest.fixture
def served(tmp_path, network):
    """Return a function that serves a model and loads it.

    It returns the runtime, what was loaded and the script.
    """
    with ExitStack() as stack:

        def load(script=None, keys='protocol = "oip"', **changes):
            script = script or ServedModelScript(**changes)
            url = stack.enter_context(oip_server(script, network=network))
            runtime = stack.enter_context(closing(create("served")))
            return runtime, runtime.load(server_file(tmp_path, url, keys), Options()), script

        yield load


def server_file(folder, url, keys='protocol = "oip"'):
    path = folder / "m.server"
    path.write_text(f'url = "{url}"\n{keys}\n')
    return path


def outputs_for(runtime, *inputs):
    runtime.bind(list(inputs))()
    return runtime.outputs()


def test_a_served_model_is_described_and_run(served):
    """Inputs and outputs are as the server declares them, with an open batch.

    The outputs keep their order.
    """
    every_form = ("binary_tensor_data", "model_repository")
    for keys, extensions, form in (
        ('protocol = "oip"', every_form, "oip,binary"),
        ('protocol = "oip"\ntransport = "json"', every_form, "oip,json"),
        # Binary tensors are chosen where the server states them.
        ('protocol = "oip"', (), "oip,json"),
    ):
        runtime, loaded, _ = served(keys=keys, extensions=extensions)
        assert loaded.backend == form
        assert [(info.name, info.shape, info.dtype) for info in loaded.inputs] == [
            ("x", (None, 4), "float32")
        ]
        assert loaded.facts["server_machine"] == "this"
        np.testing.assert_array_equal(outputs_for(runtime, X)[0], Y)
        np.testing.assert_array_equal(outputs_for(runtime, np.repeat(X, 3, axis=0))[0], Y * 3)


def test_a_version_in_the_file_is_a_part_of_each_path(served):
    """A query's path has the version too."""
    runtime, _, script = served(keys='protocol = "oip"\nversion = "3"\nmodel = "double"')
    outputs_for(runtime, X)
    assert script.requests[-1][0] == "/v2/models/double/versions/3/infer"


def test_several_inputs_and_outputs_go_by_name(served):
    """The order of outputs in the answer does not matter."""
    script = ServedModelScript(
        inputs=[("a", "FP32", [1, 2]), ("b", "INT32", [1])],
        outputs=[("sum", "FP32", [1, 2]), ("b", "INT32", [1])],
        compute=lambda arrays: {"b": arrays["b"], "sum": arrays["a"] + arrays["b"]},
    )
    for keys in ('protocol = "oip"', 'protocol = "oip"\ntransport = "json"'):
        runtime, _, _ = served(script, keys)
        total, b = outputs_for(runtime, np.array([[1, 2]], np.float32), np.array([5], np.int32))
        np.testing.assert_array_equal(total, [[6, 7]])
        np.testing.assert_array_equal(b, [5])


def test_an_arrival_connects_within_its_latency_and_is_closed_outside(served, network):
    """A user's connection stays open, so that no query of a user connects."""
    runtime, loaded, _ = served()
    arrival, user = runtime.bind_concurrent([X]), runtime.bind_concurrent([X], 0)
    user().end()
    for _ in range(3):
        answered = arrival()
        assert network.open_connections == 2
        answered.end()
        assert network.open_connections == 1
    assert "connection" not in loaded.facts


def test_a_server_that_closes_after_each_answer_is_named_and_not_pinged(served):
    """Each query connects within its timed latency, so that a ping before it would be of no use."""
    runtime, loaded, script = served(ServedModelScript(closes=True))
    outputs_for(runtime, X)
    before = len(script.requests)
    for _ in range(5):
        outputs_for(runtime, X)
    assert len(script.requests) - before == 5
    assert loaded.facts["connection"] == "closed by the server after each answer"


def reply(content, status=200, **headers):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda _, path: (status, headers, text) if path.endswith("/infer") else None


def output(**changes):
    return {
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [1, 3, 5, 7]} | changes
        ]
    }


def test_an_answer_that_is_not_as_declared_is_one_line(served):
    """Reading the outputs raises it; without reading, the next query ends the run."""
    for answer, message in [
        (
            output(shape=[1, 2, 2]),
            (
                r"'y' of the served model is float32 \[1, 2, 2\], the server "
                r"declares float32 \[\?, 4\]"
            ),
        ),
        (output(datatype="INT32"), "comes as INT32, the server declares FP32"),
        (output(name="z"), "'y' of the served model is not in the answer"),
        (output(parameters={"binary_data_size": 8}), "holds 0 bytes for the shape"),
        (b"<html>", "does not follow the protocol .*'<html>'; check url"),
    ]:
        runtime, _, script = served()
        script.instead = reply(answer)
        with table_row(message), pytest.raises(AnswerError, match=message) as failure:
            outputs_for(runtime, X)
        assert failure.value.kind == "no answer"
        assert "\n" not in str(failure.value)
        runtime.bind([X])()
        with pytest.raises(AnswerError, match=message):
            runtime.bind([X])


def test_an_answer_unlike_those_before_it_has_to_be_read(served):
    """The first answer, one of another size and an error with status 200 have to be read.

    Others to the same request are as before.
    """
    runtime, _, script = served(keys='protocol = "oip"\ntransport = "json"')
    script.instead = reply(output())
    user = runtime.bind_concurrent([X], 0)
    answered = user()
    assert answered.is_unlike
    answered.outputs()
    assert not user().is_unlike
    size = len(json.dumps(output()).encode())
    for answer in (output() | {"more": "x" * size}, {"error": "x" * (size - len('{"error": ""}'))}):
        script.instead = reply(answer)
        with table_row(answer):
            assert user().is_unlike


def test_who_asks_alone_has_the_only_connection(served, network):
    """Connections of users take places in some servers, so they are closed."""
    runtime, _, _ = served()
    for user in range(2):
        runtime.bind_concurrent([X], user)().end()
    assert network.open_connections == 2
    np.testing.assert_array_equal(outputs_for(runtime, X)[0], Y)
    assert network.open_connections == 1


def test_inputs_that_the_server_does_not_declare_are_not_sent(served):
    """The error says which inputs the server takes."""
    runtime, _, script = served()
    before = len(script.requests)
    with pytest.raises(ConfigError, match=r"'x' takes float32 \[\?, 4\]"):
        runtime.bind([np.zeros((1, 5), np.float32)])
    assert len(script.requests) == before


def test_a_model_that_is_not_ready_is_not_loaded(served):
    """The error gives the server's reason."""
    script = ServedModelScript(
        instead=lambda _, path: (
            (503, {}, b'{"error": "loading"}') if path.endswith("double/ready") else None
        )
    )
    with pytest.raises(UnavailableError, match=r"not ready \(loading\): wait"):
        served(script)


def test_an_arrival_that_is_refused_closes_its_connection(served, network):
    """Some servers have few places for connections."""
    runtime, _, script = served()
    script.instead = reply({"error": "busy"}, 503)
    with pytest.raises(AnswerError):
        runtime.bind_concurrent([X])()
    assert network.open_connections == 0


def test_what_is_no_number_is_nan(served):
    """JSON has no NaN, so some servers write it nevertheless and others write null.

    A NaN input is not sent, since in JSON it would be null.
    """
    for value in (b"NaN", b"null"):
        runtime, _, script = served()
        script.instead = reply(
            json.dumps(output(data=[0, 3, 5, 7])).encode().replace(b"[0,", b"[" + value + b",")
        )
        np.testing.assert_array_equal(outputs_for(runtime, X)[0], [[math.nan, 3, 5, 7]])
    keys = 'protocol = "oip"\ntransport = "json"'
    with pytest.raises(ConfigError, match="FP16, which JSON cannot represent"):
        served(ServedModelScript(inputs=[("x", "FP16", [2, 3])]), keys)
    runtime, _, _ = served(keys=keys)
    with pytest.raises(ConfigError, match="'x' has NaN or infinity, which JSON cannot represent"):
        runtime.bind([np.full((1, 4), np.nan, np.float32)])


def test_a_refused_query_names_its_status_and_what_to_do(served):
    """It counts as one failed query, and the next one uses the same connection."""
    runtime, _, script = served()
    for status, headers, wait_s, message in [
        (429, {"Retry-After": "2"}, 2.0, "answers 429"),
        (500, {}, None, "answers 500: busy; read the server's log"),
        (400, {}, None, "the server does not accept this request"),
    ]:
        script.instead = reply({"error": "busy"}, status, **headers)
        with table_row(status), pytest.raises(AnswerError, match=message) as failure:
            runtime.bind([X])()
        assert (failure.value.kind, failure.value.retry_after_s) == (f"http {status}", wait_s)
        assert failure.value.is_busy == (status in (429, 503))
        script.instead = lambda *_: None
        np.testing.assert_array_equal(outputs_for(runtime, X)[0], Y)


@pytest.mark.services
def test_a_slow_server_is_given_up_after_timeout_s(tmp_path):
    """The next query has a connection of its own and does not get the late answer."""
    script = ServedModelScript(compute_s=0.6)
    with oip_server(script) as url, closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, url, 'protocol = "oip"\ntimeout_s = 0.2'), Options())
        with pytest.raises(AnswerError, match=r"timeout_s = 0\.2") as failure:
            runtime.bind([X])()
        assert failure.value.kind == "timeout"
        script.compute_s = 0.0
        np.testing.assert_array_equal(outputs_for(runtime, X)[0], Y)


def test_a_server_that_is_gone_is_named(tmp_path, network):
    """The server may be gone before the model is loaded or during the run."""
    with closing(create("served")) as runtime:
        with oip_server(ServedModelScript(closes=True), network=network) as url:
            path = server_file(tmp_path, url)
            runtime.load(path, Options())
        with pytest.raises(AnswerError, match=r"Connection refused.*start the server") as failure:
            runtime.bind([X])
        assert (failure.value.kind, failure.value.is_busy) == ("no connection", True)
    with pytest.raises(
        UnavailableError, match=r"Connection refused.*start the server, or correct its url"
    ):
        create("served").load(path, Options())


def test_more_than_fits_is_not_read(served, monkeypatch):
    """An answer without an end would fill the memory."""
    runtime, _, script = served()
    monkeypatch.setattr(model_server, "LARGEST_TENSORS_BYTES", 1 << 20)
    script.instead = reply(b" " * (1 << 20) + b"{}")
    with pytest.raises(AnswerError, match="answers more than 1 MiB"):
        runtime.bind([X])()


INDEX = [
    {"name": f"m{number}", "version": "1", "state": "READY", "reason": ""}
    for number in range(10)
] + [
    {"name": "broken", "version": "1", "state": "UNAVAILABLE", "reason": "no weights"},
    {"name": "unloaded", "version": None, "state": None, "reason": None},
]  # fmt: skip


def test_of_what_triton_lists_the_ready_models_are_those_it_has(served):
    """Triton also lists models that failed to load, with the reason, and those it did not try."""
    listed = {"/v2/repository/index": (200, {}, json.dumps(INDEX).encode())}
    for keys, message in [
        (
            'model = "yolo"',
            r"has no model 'yolo' \(.*\): it has m0, .*, m7 and 2 more; set model in",
        ),
        ('model = "broken"', r"has the model 'broken', but it is not ready \(no weights\): wait"),
        ("", "does not serve exactly one model.*it has m0"),
    ]:
        with table_row(keys), pytest.raises(UnavailableError, match=message) as failure:
            served(
                ServedModelScript(instead=lambda _, path: listed.get(path)),
                f'protocol = "oip"\n{keys}',
            )
        assert "broken," not in str(failure.value)


def test_a_server_that_does_not_describe_its_model_has_the_remedy_of_its_status(served):
    """A model's name does not help if the server wants a key, has moved or is another one."""
    moved = {"Location": "https://a.example/v2/models/double"}
    for keys, status, headers, content, remedy in [
        ("", 301, moved, b"", "it moved to 'https://a.example/v2/models/double': correct url"),
        (
            "",
            401,
            {},
            b'{"error": "no token"}',
            "answers 401: no token; give its key as api_key_file",
        ),
        (
            "",
            404,
            {},
            b"",
            r"has no model 'double' \(status 404\): it has double; check url and version",
        ),
        ('version = "9"', 404, {}, b"", "has no version '9' of the model 'double' .*set version"),
    ]:
        script = ServedModelScript()
        script.instead = lambda _, path, answer=(status, headers, content): (
            answer if path.startswith("/v2/models") else None
        )
        with table_row(keys, status), pytest.raises(UnavailableError, match=remedy):
            served(script, f'protocol = "oip"\nmodel = "double"\n{keys}')


def test_a_header_that_cannot_be_sent_is_named(tmp_path):
    """The error comes before anything is sent."""
    for headers in ('"X-Key\\n" = "a"', '"X-Key" = "a\\r\\nb"', '"X-Key" = "\u2713"'):
        path = server_file(
            tmp_path, "http://127.0.0.1:9", f'protocol = "oip"\nheaders = {{{headers}}}'
        )
        with table_row(headers), pytest.raises(ConfigError, match=r"header 'X-Key.*cannot be sent"):
            create("served").load(path, Options())


@pytest.mark.needs("openssl")
def test_an_unknown_authority_names_ca_file(tmp_path):
    """With `ca_file` the server is trusted."""
    authority = Authority(tmp_path / "ca")
    pair = authority.signed("localhost", "DNS:localhost,IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with oip_server(tls=context) as url, closing(create("served")) as runtime:
        with pytest.raises(
            UnavailableError, match="from an unknown authority: give that authority as ca_file"
        ):
            runtime.load(server_file(tmp_path, url), Options())
        runtime.load(
            server_file(tmp_path, url, f'protocol = "oip"\nca_file = "{authority.certificate}"'),
            Options(),
        )
        np.testing.assert_array_equal(outputs_for(runtime, X)[0], Y)


def test_the_file_shows_which_runtime_reads_it(models):
    """A file with a protocol is a served model's; without one it is a language model server's."""
    assert runtime_for(models / "served.server") == "served"
    assert runtime_for(models.parent / "generators" / "server.server") == "server"
    assert runtime_for(Path("absent.server")) == "server"


def test_a_model_that_changes_in_a_run_ends_it(served):
    """Figures of two versions would belong to neither."""
    runtime, _, script = served()
    outputs_for(runtime, X)
    script.version = "4"
    script.instead = reply(output() | {"model_version": "4"})
    with pytest.raises(MeasurementError, match="went from version 3 of the model to 4"):
        outputs_for(runtime, X)
