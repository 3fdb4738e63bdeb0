"""A real Triton, over HTTP with JSON and with bytes: what it answers, and its errors."""

import json
from contextlib import closing

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.runtimes import Options, create
from tests.fixtures.command import edgemeter
from tests.fixtures.real_triton import TritonModel, real_triton
from tests.fixtures.rows import table_row

pytestmark = [pytest.mark.triton, pytest.mark.nightly]
X = np.array([[0, 1, 2, 3]], np.float32)
ROW = {"inputs": (("x", "FP32", (4,)),), "outputs": (("y", "FP32", (4,)),)}
SLEEP = "time.sleep(0.02)"
SENDS_TWO = "[request.get_response_sender().send(pb.InferenceResponse([pb.Tensor('y', x(request))]), flags=1)]"
FAILS = "pb.InferenceResponse(error=pb.TritonError('the words of the model'))"
MODELS = {
    "double": TritonModel(versions=(1, 3)),
    "slow": TritonModel(**ROW, configuration="max_batch_size: 8", before=SLEEP),
    "batching": TritonModel(**ROW, configuration="max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 5000 }", before=SLEEP),
    "full": TritonModel(
        **ROW, configuration="max_batch_size: 2 dynamic_batching { default_queue_policy { max_queue_size: 1 } }", before=SLEEP
    ),
    "decoupled": TritonModel(configuration="model_transaction_policy { decoupled: true }", response=SENDS_TWO),
    "failing": TritonModel(response=f"{FAILS} if x(request)[0, 0] else pb.InferenceResponse([pb.Tensor('y', x(request))])"),
    "broken": TritonModel(initialize="raise RuntimeError('no weights')"),
    # Of a datatype that JSON cannot hold, and numpy has not.
    "bf16": TritonModel(
        inputs=(("x", "BF16", (2, 3)),),
        outputs=(("y", "BF16", (2, 3)),),
        output='pb.Tensor.from_dlpack("y", pb.get_input_tensor_by_name(request, "x").to_dlpack())',
    ),
    "texts": TritonModel(inputs=(("x", "STRING", (2, 3)),), outputs=(("y", "STRING", (2, 3)),)),
}
each_transport = pytest.mark.parametrize("transport", ["json", "binary"])


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """Return a running Triton with all models; `broken` does not load."""
    with real_triton(tmp_path_factory.mktemp("triton"), MODELS) as server:
        yield server


@pytest.fixture
def described(triton, tmp_path):
    """Return a function that writes the file of a model."""

    def write(model, transport, keys=""):
        path = tmp_path / f"{model}.server"
        path.write_text(f'url = "{triton}"\nprotocol = "oip"\ntransport = "{transport}"\nmodel = "{model}"\n{keys}\n')
        return path

    return write


@pytest.fixture
def loaded(described):
    """Return a function that loads a model of it."""
    with closing(create("served")) as runtime:

        def load(model, transport, keys=""):
            return runtime, runtime.load(described(model, transport, keys), Options())

        yield load


@pytest.mark.parametrize("transport", ["auto", "json", "binary"])
def test_triton_answers_what_its_model_computes(loaded, transport):
    """By its metadata, in batches; by itself it chooses bytes, and of two versions Triton runs the later."""
    runtime, facts = loaded("double", transport)
    assert (facts.package, facts.version) == ("triton", "2.51.0")
    assert facts.backend == f"oip,{'binary' if transport == 'auto' else transport}"
    assert facts.inputs[0].shape == (None, 4)
    for batch in (1, 3):
        inputs = np.repeat(X, batch, axis=0)
        runtime.bind([inputs])()
        np.testing.assert_array_equal(runtime.outputs()[0], inputs * 2 + 1)
    assert runtime.served().model_version == "3"


def test_a_version_is_asked_for(loaded):
    """Of the two."""
    runtime, _ = loaded("double", "binary", 'version = "1"')
    runtime.bind([X])()
    runtime.outputs()
    assert runtime.served().model_version == "1"


def test_datatypes_of_its_own_come_back_as_they_were_sent(loaded):
    """The largest and smallest values too, as bytes; texts are refused."""
    runtime, facts = loaded("bf16", "binary")
    array = np.array([[-(2.0**127), 2.0**127, 0], [1, 0, 1]], np.float32)
    assert facts.inputs[0].dtype == "float32"
    runtime.bind([array])()
    np.testing.assert_array_equal(runtime.outputs()[0], array)
    for model, transport, words in (("bf16", "json", "of BF16, which JSON cannot hold"), ("texts", "binary", "of BYTES: texts cannot")):
        with pytest.raises(ConfigError, match=words):
            loaded(model, transport)


@each_transport
def test_a_refused_query_is_one_clear_line(loaded, transport):
    """With what to do."""
    for model, batch, message in [
        ("decoupled", 1, "decoupled transaction policy.*choose a model that gives each request one answer"),
        ("slow", 9, "batch-size must be <= 8.*the server does not take these inputs"),
        ("failing", 2, "the words of the model.*read the server's log"),
    ]:
        runtime, _ = loaded(model, transport)
        with table_row(model), pytest.raises(AnswerError, match=message) as failure:
            runtime.bind([np.ones((batch, 4), np.float32)])()
        assert not failure.value.is_busy


@pytest.mark.parametrize(("transport", "load"), [("json", ()), ("binary", ("--concurrency", "4")), ("binary", ("--rate", "20"))])
def test_a_run_is_a_record(described, transport, load):
    """In its sandbox: single stream, users in a batch, arrivals."""
    printed = edgemeter("run", described("batching", transport), "--mode", "rapid", "--repeats", "1", "--json", *load)
    assert printed.returncode == 0, printed.stderr
    run = contract_record.decode(json.dumps(json.loads(printed.stdout)["runs"][0]).encode())
    assert (run.runtime.package, run.runtime.backend, run.served.model) == ("triton", f"oip,{transport}", "batching")
    assert (run.served.failed_queries, run.output_check.differing) == (0, 0)
    assert run.latency.min_ms > 20
    if "4" in load:
        # One after the other they would be 48 a second at the most.
        assert run.throughput_per_s > 60


def test_users_whom_the_server_refuses_are_counted(described):
    """Its queue is full: the run is invalid for that."""
    printed = edgemeter("run", described("full", "binary"), "--mode", "rapid", "--repeats", "1", "--json", "--concurrency", "8")
    run = contract_record.decode(json.dumps(json.loads(printed.stdout)["runs"][0]).encode())
    assert run.served.failures == {"http 503": run.served.failed_queries}
    assert run.served.failed_queries > 0
    assert any(reason.startswith("failed-answers") for reason in run.verdict.reasons)
