"""Real peers: MLServer over HTTP and gRPC, and tritonclient as a client of the server by which the rest is tested."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, MeasurementError, UnavailableError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.runtimes import Options, create
from edgemeter.agent.runtimes.served_tensors import DTYPES
from tests import requirements
from tests.fixtures.command import edgemeter
from tests.fixtures.oip_server import ServedModelScript, oip_server
from tests.fixtures.real_mlserver import real_mlserver
from tests.fixtures.servers import free_port

PROGRAM = Path(__file__).resolve().parents[2] / "fixtures" / "tritonclient_program.py"
TRITON = PROGRAM.with_name("triton_grpc_program.py")
X = np.array([[0, 1, 2, 3]], np.float32)
pytestmark = [pytest.mark.mlserver, pytest.mark.long]


@pytest.fixture(scope="module")
def mlserver(tmp_path_factory):
    """Return a running MLServer."""
    with real_mlserver(tmp_path_factory.mktemp("mlserver")) as server:
        yield server


@pytest.fixture(scope="module")
def triton():
    """Return the address of a server that speaks with Triton's own messages."""
    port = free_port()
    with subprocess.Popen([requirements.mlserver_python(), TRITON, str(port)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            process.kill()


def server_file(folder, url, keys=""):
    """Return a file that describes a server."""
    path = folder / "double.server"
    path.write_text(f'url = "{url}"\nprotocol = "oip"\n{keys}\n')
    return path


@pytest.mark.parametrize("transport", ["auto", "json", pytest.param("grpc", marks=pytest.mark.needs(module="grpc"))])
def test_mlserver_answers_what_its_model_computes(mlserver, tmp_path, transport):
    """By its metadata, in batches, over both of its ports; the version is that of its answers."""
    url = mlserver.grpc_url if transport == "grpc" else mlserver.url
    with closing(create("served")) as runtime:
        loaded = runtime.load(server_file(tmp_path, url, f'transport = "{transport}"\nmodel = "double"'), Options())
        assert (loaded.package, loaded.version) == ("mlserver", "1.7.1")
        assert loaded.inputs[0].shape == (None, 4)
        for batch in (1, 3):
            inputs = np.repeat(X, batch, axis=0)
            with runtime.window():
                runtime.bind([inputs])()
            np.testing.assert_array_equal(runtime.outputs()[0], inputs * 2 + 1)
        assert runtime.served().model_version == "v1"
        assert "states no statistics" in runtime.served().server_reason


def test_the_only_model_needs_no_name(mlserver, tmp_path):
    """MLServer lists what it has; a name that it has not is refused with the list."""
    with closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, mlserver.url), Options())
        with pytest.raises(UnavailableError, match=r"has no model 'yolo' .*it has double"):
            runtime.load(server_file(tmp_path, mlserver.url, 'model = "yolo"'), Options())


def test_binary_tensors_that_mlserver_refuses_are_one_line(mlserver, tmp_path):
    """HTTP 422 or 500, by what its JSON reader makes of the bytes."""
    with closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, mlserver.url, 'transport = "binary"'), Options())
        with pytest.raises(
            AnswerError, match=r"answers (422|500).*(check transport of the server's file|read the server's log)"
        ) as failure:
            runtime.bind([X + np.float32(0.3)])()
        assert failure.value.kind in ("http 422", "http 500")


@pytest.mark.needs(module="grpc")
def test_errors_over_grpc_are_named_as_over_http(mlserver, tmp_path):
    """An unknown model, and nobody who listens."""
    with pytest.raises(UnavailableError, match=r"has no model 'yolo' .*NOT_FOUND"):
        create("served").load(server_file(tmp_path, mlserver.grpc_url, 'transport = "grpc"\nmodel = "yolo"'), Options())
    with pytest.raises(UnavailableError, match=r"UNAVAILABLE.*start the server"):
        create("served").load(server_file(tmp_path, "http://127.0.0.1:9", 'transport = "grpc"\nmodel = "double"'), Options())


@pytest.mark.parametrize("transport", ["json", pytest.param("grpc", marks=pytest.mark.needs(module="grpc"))])
@pytest.mark.parametrize("load", [(), ("--concurrency", "2"), ("--rate", "40")])
def test_a_run_on_mlserver_is_a_record(mlserver, tmp_path, transport, load):
    """In its sandbox: single stream, users, arrivals; the case has the server's model in its key, and the runtime is `served`."""
    url = mlserver.grpc_url if transport == "grpc" else mlserver.url
    path = server_file(tmp_path, url, f'transport = "{transport}"\nmodel = "double"')
    printed = edgemeter("run", path, "--mode", "rapid", "--repeats", "1", "--json", *load)
    assert printed.returncode == 0, printed.stderr
    run = contract_record.decode(json.dumps(json.loads(printed.stdout)["runs"][0]).encode())
    assert (run.runtime.name, run.runtime.backend, run.runtime.package) == ("served", f"oip,{transport}", "mlserver")
    assert (run.served.model, run.served.model_version, run.served.failed_queries) == ("double", "v1", 0)
    assert run.output_check.differing == 0
    assert run.latency.count >= 50


@pytest.mark.needs(module="grpc")
@pytest.mark.parametrize("form", ["raw", "typed"])
@pytest.mark.parametrize("datatype", sorted({*DTYPES} - {"BF16"}))
def test_tensors_of_tritons_messages_are_read(triton, tmp_path, datatype, form):
    """Bytes, or lists of numbers, which have no half floats: the smallest and the largest too."""
    if (datatype, form) == ("FP16", "typed"):
        return
    with closing(create("served")) as runtime:
        loaded = runtime.load(server_file(tmp_path, triton, f'transport = "grpc"\nmodel = "{form}_{datatype}"'), Options())
        assert (loaded.package, loaded.version, loaded.inputs[0].shape) == ("triton", "2.73.0", (None, 3))
        dtype = np.dtype(loaded.inputs[0].dtype)
        limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype) if dtype.kind == "f" else None
        low, high = (limits.min, limits.max) if limits else (False, True)
        array = np.array([[low, high, 0], [1, 0, 1]], dtype)
        runtime.bind([array])()
        (output,) = runtime.outputs()
    assert output.dtype == dtype
    np.testing.assert_array_equal(output, array)


@pytest.mark.needs(module="grpc")
def test_tritons_statistics_over_grpc_are_those_of_the_timed_window(triton, tmp_path):
    """Queue and compute as it states them, per request of the window; those before it do not count."""
    with closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, triton, 'transport = "grpc"\nmodel = "raw_FP32"'), Options())
        call = runtime.bind([X[:, :3]])
        call()
        with runtime.window():
            for _ in range(5):
                call()
        part = runtime.served()
    assert (part.protocol, part.model_version, part.server_reason) == ("oip,grpc", "3", None)
    assert (part.server_queue_ms, part.server_compute_ms, part.requests_of_others) == (3.0, 6.0, 0)
    assert part.remainder_ms > 0


@pytest.mark.needs(module="grpc")
def test_a_response_cache_ends_the_run_over_grpc(triton, tmp_path):
    """By the count of its hits."""
    with closing(create("served")) as runtime:
        runtime.load(server_file(tmp_path, triton, 'transport = "grpc"\nmodel = "cached_FP32"'), Options())
        call = runtime.bind([X[:, :3]])
        with pytest.raises(MeasurementError, match="1 of 1 queries from its response cache"), runtime.window():
            call()


@pytest.mark.parametrize("form", ["binary", "json"])
def test_tritonclient_understands_the_test_server(form):
    """Metadata, tensors and statistics, so that what is tested against that server is the protocol."""
    script = ServedModelScript(queue_s=0.002, compute_s=0.003)
    with oip_server(script) as url:
        command = [requirements.mlserver_python(), PROGRAM, "http", url.removeprefix("http://"), form, "2,4"]
        completed = subprocess.run(command, input="", capture_output=True, text=True, check=True, timeout=120)
    facts = json.loads(completed.stdout.splitlines()[0])
    assert (facts["is_right"], facts["shape"], facts["dtype"], facts["ready"]) == (True, [2, 4], "float32", True)
    assert facts["model"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    counted = facts["statistics"]["model_stats"][0]["inference_stats"]
    assert counted["success"]["count"] == 1
    assert counted["queue"]["ns"] >= 2_000_000
    assert counted["compute_infer"]["ns"] >= 3_000_000
