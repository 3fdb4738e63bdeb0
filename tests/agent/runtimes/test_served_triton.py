"""A real Triton, over HTTP with JSON and with bytes: what it answers, and its errors."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError
from tests.fixtures.rows import table_row
from tools.peers.real_triton import TritonModel, real_triton

pytestmark = [pytest.mark.triton, pytest.mark.nightly]
X = np.array([[0, 1, 2, 3]], np.float32)
ROW = {"inputs": (("x", "FP32", (4,)),), "outputs": (("y", "FP32", (4,)),)}
SLEEP = "time.sleep(0.02)"
SENDS_TWO = (
    "[request.get_response_sender().send(pb.InferenceResponse([pb.Tensor('y', x(request))]), "
    "flags=1)]"
)
FAILS = "pb.InferenceResponse(error=pb.TritonError('the words of the model'))"
MODELS = {
    "double": TritonModel(),
    "slow": TritonModel(**ROW, configuration="max_batch_size: 8", before=SLEEP),
    "decoupled": TritonModel(
        configuration="model_transaction_policy { decoupled: true }", response=SENDS_TWO
    ),
    "failing": TritonModel(
        response=(
            f"{FAILS} if x(request)[0, 0] else pb.InferenceResponse([pb.Tensor('y', x(request))])"
        )
    ),
    # A data type that neither JSON nor numpy has.
    "bf16": TritonModel(
        inputs=(("x", "BF16", (2, 3)),),
        outputs=(("y", "BF16", (2, 3)),),
        output='pb.Tensor.from_dlpack("y", pb.get_input_tensor_by_name(request, "x").to_dlpack())',
    ),
}


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    with real_triton(tmp_path_factory.mktemp("triton"), MODELS) as server:
        yield server


@pytest.fixture
def described(triton, tmp_path):
    def write(model, transport):
        path = tmp_path / f"{model}.server"
        path.write_text(
            f'url = "{triton}"\nprotocol = "oip"\ntransport = "{transport}"\nmodel = "{model}"\n'
        )
        return path

    return write


@pytest.fixture
def loaded(described, opened):
    """Return a function that loads a model of it, each in a runtime of its own."""
    return lambda model, transport: opened("served", described(model, transport))


@pytest.mark.parametrize("transport", ["auto", "json", "binary"])
def test_triton_answers_what_its_model_computes(loaded, transport):
    """Batches follow its metadata, and binary tensors are chosen automatically."""
    runtime, facts = loaded("double", transport)
    assert (facts.package, facts.version) == ("triton", "2.51.0")
    assert facts.backend == f"oip,{'binary' if transport == 'auto' else transport}"
    assert facts.inputs[0].shape == (None, 4)
    for batch in (1, 3):
        inputs = np.repeat(X, batch, axis=0)
        runtime.bind([inputs])()
        np.testing.assert_array_equal(runtime.outputs()[0], inputs * 2 + 1)
    assert runtime.with_late_facts(facts).facts["served_model_version"] == "1"


def test_datatypes_of_its_own_come_back_as_they_were_sent(loaded):
    """The largest and smallest values are sent as bytes too."""
    runtime, facts = loaded("bf16", "binary")
    array = np.array([[-(2.0**127), 2.0**127, 0], [1, 0, 1]], np.float32)
    assert facts.inputs[0].dtype == "float32"
    runtime.bind([array])()
    np.testing.assert_array_equal(runtime.outputs()[0], array)
    with pytest.raises(ConfigError, match="is BF16, which JSON cannot represent"):
        loaded("bf16", "json")


def test_a_refused_query_is_one_clear_line(loaded):
    """The line says what to do."""
    for model, batch, message in [
        (
            "decoupled",
            1,
            "decoupled transaction policy.*choose a model that gives each request one answer",
        ),
        ("slow", 9, "batch-size must be <= 8.*the server does not accept these inputs"),
        ("failing", 2, "the words of the model.*read the server's log"),
    ]:
        runtime, _ = loaded(model, "binary")
        with table_row(model), pytest.raises(AnswerError, match=message) as failure:
            runtime.bind([np.ones((batch, 4), np.float32)])()
        assert not failure.value.is_busy
