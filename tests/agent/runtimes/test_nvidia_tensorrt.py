"""TensorRT, played by a stand-in that does on a stream what the real one does: later.

Hashes, shapes, types, memory, errors.
"""

import ctypes
import hashlib
import json

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.nvidia_tensorrt import TensorRt
from tests.fixtures import stand_ins

pytestmark = pytest.mark.needs("gcc")


@pytest.fixture
def cuda(tmp_path, monkeypatch) -> ctypes.CDLL:
    """Put the stand-ins in place; return the one for CUDA."""
    return ctypes.CDLL(str(stand_ins.tensorrt(tmp_path / "cuda", monkeypatch)))


@pytest.fixture
def opened(cuda, tmp_path):
    """Return a function that loads an engine of these tensors and properties.

    A tensor is given as (name, mode, shape, dtype).
    """
    assert cuda
    runtimes = []

    def load(*tensors, front=b""):
        path = tmp_path / "model.engine"
        names = [name for name, *_ in tensors]
        entries = [
            {"mode": mode, "shape": shape, "dtype": dtype, **dict(*options)}
            for _, mode, shape, dtype, *options in tensors
        ]
        path.write_bytes(
            front + json.dumps({"tensors": dict(zip(names, entries, strict=True))}).encode()
        )
        runtimes.append(TensorRt())
        return runtimes[-1], runtimes[-1].load(
            path, Options(sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        )

    yield load
    for runtime in runtimes:
        runtime.close()


X = ("x", "INPUT", [1, 4], "FLOAT")
Y = ("y", "OUTPUT", [1, 4], "FLOAT")


def test_an_open_dimension_takes_what_the_profile_has(opened, x):
    """Memory grows and shrinks with the shape, and a shape beyond the profile is an error."""
    runtime, loaded = opened(
        ("x", "INPUT", [-1, 4], "FLOAT", {"most": 3}), ("y", "OUTPUT", [-1, 4], "FLOAT")
    )
    assert (loaded.inputs[0].shape, loaded.outputs[0].shape) == ((None, 4), (None, 4))
    for rows in (3, 1, 2):
        runtime.bind([np.repeat(x, rows, axis=0)])()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]] * rows)
    with pytest.raises(ConfigError, match=r"rejects 'x' as \[4, 4\]: build it with a profile"):
        runtime.bind([np.repeat(x, 4, axis=0)])


def test_outputs_come_in_the_engines_order(opened, x):
    """The order holds if an output precedes an input or an input is a shape on the host.

    Such an input's address is one of ours, not of the device.
    """
    host = ("x", "INPUT", [1, 4], "FLOAT", {"location": "HOST"})
    runtime, loaded = opened(
        ("b", "OUTPUT", [1, 4], "FLOAT"), host, ("a", "OUTPUT", [1, 4], "INT32")
    )
    runtime.bind([x])()
    assert [info.name for info in loaded.outputs] == ["b", "a"]
    assert [array.dtype.name for array in runtime.outputs()] == ["float32", "int32"]
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])


def test_tensors_without_an_array_are_refused(opened, x):
    """Tensors of bfloat16, of a packed layout or of unknown size are refused.

    NumPy has no bfloat16, a packed layout has no known order, and an output that depends on what is
    found has no size before the call.
    """
    for tensor in (
        ("y", "OUTPUT", [1, 4], "BF16"),
        ("y", "OUTPUT", [1, 4], "HALF", {"format": "CHW4"}),
    ):
        with pytest.raises(ConfigError, match="build it with linear float"):
            opened(X, tensor)
    runtime, _ = opened(X, ("y", "OUTPUT", [-1, 4], "FLOAT", {"by_content": True}))
    with pytest.raises(ConfigError, match="export the model with a fixed number"):
        runtime.bind([x])


def test_what_ultralytics_writes_in_front_is_taken_off_and_read(opened, x):
    """The file holds the length of a JSON document, the document and the engine."""
    metadata = json.dumps(
        {"task": "detect", "imgsz": [640, 640], "names": {"0": "person"}}
    ).encode()
    runtime, loaded = opened(X, Y, front=len(metadata).to_bytes(4, "little") + metadata)
    runtime.bind([x])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    assert dict(loaded.metadata) == {
        "task": "detect",
        "imgsz": "[640,640]",
        "names": '{"0":"person"}',
    }


def test_close_gives_all_memory_back(opened, cuda, x):
    """Memory of earlier shapes is freed too."""
    before = cuda.allocations_alive()
    runtime, _ = opened(("x", "INPUT", [-1, 4], "FLOAT"), ("y", "OUTPUT", [-1, 4], "FLOAT"))
    for rows in (1, 3):
        runtime.bind([np.repeat(x, rows, axis=0)])()
    assert cuda.allocations_alive() == before + 2
    runtime.close()
    runtime.close()
    assert cuda.allocations_alive() == before


def test_a_query_that_fails_is_an_error_at_once(opened, cuda, x):
    """A failed query is a fast one, and must not be timed."""
    runtime, _ = opened(X, Y)
    call = runtime.bind([x])
    cuda.set_failing(1)
    with pytest.raises(MeasurementError, match="failed to run the query"):
        call()


def test_an_engine_of_another_version_is_reported_in_tensorrts_words(cuda, tmp_path):
    """TensorRT writes the reason to a logger only."""
    assert cuda
    path = tmp_path / "model.plan"
    path.write_bytes(b"ftrt" + bytes(100))
    with pytest.raises(
        ConfigError, match=r"Version tag does not match.; build the engine on this device"
    ) as refusal:
        TensorRt().load(path, Options(sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    assert "\n" not in str(refusal.value)


def test_a_machine_without_a_device_is_reported(cuda, models):
    """The library may be installed while the GPU is absent."""
    cuda.set_devices(0)
    sha256 = hashlib.sha256((models / "tensorrt.engine").read_bytes()).hexdigest()
    with pytest.raises(
        UnavailableError, match="CUDA cannot see a device: no CUDA-capable device is detected"
    ):
        TensorRt().load(models / "tensorrt.engine", Options(sha256=sha256))
