"""One-operator TFLite models compute what the operator computes in its model, bit for bit; the lists' int8 operators as numpy does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.profile import operator_cutting, operator_models, tflite_operators
from edgemeter.agent.profile.operator_models import DEEPBENCH, PEAKS, Shape
from edgemeter.agent.profile.profiler import ProfileEvent, inference

interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra `litert`")
FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes" / "litert.tflite"
REAL = ("mobilenet_v1_0.25_128_quant.tflite", "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite", "yolov8n_full_integer_quant.tflite")


def plain(path):
    """Return a bare interpreter with the builtin kernels, its tensors kept."""
    resolver = interpreters.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = interpreters.Interpreter(str(path), experimental_op_resolver_type=resolver, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    return interpreter


def check_operators(path, folder):
    """Check each operator of a model alone against the tensors inside the model; return the kinds that were compared."""
    cutter, inside, draw, kinds = tflite_operators.open_model(path, folder / "whole.tflite"), plain(path), np.random.RandomState(0), []
    for details in inside.get_input_details():
        kind = np.dtype(details["dtype"])
        noise = draw.randint(0, 100, details["shape"]) if kind.kind in "iu" else draw.standard_normal(details["shape"])
        inside.set_tensor(details["index"], noise.astype(kind))
    inside.invoke()
    for node, operator in enumerate(inside._get_ops_details()):
        if operator["op_name"] == "DELEGATE" or cutter.obstacle(node):
            continue
        alone = plain(cutter.write([node], 0.5, folder).file)
        moving = [index for index in operator["inputs"] if index >= 0]
        names = {details["name"]: details["index"] for details in inside.get_tensor_details() if details["index"] in moving}
        for details in alone.get_input_details():
            alone.set_tensor(details["index"], inside.get_tensor(names[details["name"]]))
        alone.invoke()
        for details, index in zip(alone.get_output_details(), operator["outputs"], strict=True):
            np.testing.assert_array_equal(alone.get_tensor(details["index"]), inside.get_tensor(index), err_msg=operator["op_name"])
        kinds.append(operator["op_name"])
    return kinds


def test_an_operator_alone_computes_what_it_computes_in_its_model(tmp_path):
    """Of the tiny model, each."""
    assert check_operators(FIXTURE, tmp_path)


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_an_operator_of_a_real_int8_model_computes_the_same_alone(realdata, tmp_path, name):
    """Its quantisation comes with it: every value is equal."""
    kinds = check_operators(realdata / "models" / name, tmp_path)
    assert len(kinds) > 25
    assert "CONV_2D" in kinds


def test_the_slowest_are_chosen_by_the_number_of_their_kind(tmp_path):
    """`CONV_2D #1` is the first convolution; what is no operator of the model is the runtime's own."""
    cutter = tflite_operators.open_model(FIXTURE, tmp_path / "whole.tflite")
    kind = cutter.describe(0).split()[0]
    events = [
        inference(0, 100),
        ProfileEvent(name=f"{kind} #1", type=kind, start_us=0, duration_us=70),
        ProfileEvent(name="Copy #1", type="Copy", start_us=70, duration_us=20),
        ProfileEvent(name=f"{kind} #99", type=kind, start_us=90, duration_us=5),
    ]
    (slowest,), left_out = operator_cutting.cut_slowest(cutter, events, 100.0, 5, tmp_path)
    assert (slowest.kind, slowest.profiled_ratio, slowest.count) == (kind, pytest.approx(0.7), 1)
    assert left_out == [f"what the runtime fused or added itself (Copy, {kind}): 25.0% of the time"]


def test_flops_are_those_of_the_definition():
    """By hand, with weights as TFLite lays them out; what has no formula is unknown."""
    for kind, inputs, output, flops in [
        ("CONV_2D", [(1, 224, 224, 3), (64, 7, 7, 3), (64,)], (1, 112, 112, 64), 236_027_904),
        ("DEPTHWISE_CONV_2D", [(1, 8, 8, 96), (1, 3, 3, 96)], (1, 8, 8, 96), 2 * 96 * 64 * 9),
        ("FULLY_CONNECTED", [(2, 5), (7, 5)], (2, 7), 2 * 2 * 5 * 7),
        ("FULLY_CONNECTED", [(1, 2, 2, 5), (7, 20)], (1, 7), 2 * 20 * 7),
        ("TRANSPOSE_CONV", [(4,), (2, 2, 2, 8), (1, 4, 4, 8)], (1, 8, 8, 2), 2 * 8 * 16 * 2 * 4),
        ("SOFTMAX", [(1, 10)], (1, 10), None),
    ]:
        assert tflite_operators.tflite_flops(kind, inputs, output) == flops, kind


def test_what_is_no_tflite_model_is_refused(tmp_path):
    """In one line, with what to do; other formats by their ending."""
    (tmp_path / "broken.tflite").write_bytes(b"\x08\x07broken")
    for name, reason in (("broken.tflite", "give a whole TFLite file"), ("model.pte", "convert it first")):
        with pytest.raises(ConfigError, match=reason):
            operator_cutting.cut_in_sandbox(tmp_path / name, pytest.fail, 1, tmp_path)


INT8 = (
    Shape("Gemm", (3, 64), (64, 16), precision="int8"),
    Shape("Conv", (1, 8, 9, 9), (16, 8, 3, 3), precision="int8"),
    Shape("Conv", (1, 8, 9, 9), (8, 1, 3, 3), groups=8, precision="int8"),
)


def expected_int8(shape, x):
    """Return the real values of an int8 operator of a list by numpy: whole numbers multiplied, scaled, rounded and clipped."""
    weights = np.random.default_rng(0).standard_normal(shape.second).astype(np.float32)
    quantised = np.clip(np.rint(weights * 42), -127, 127).astype(np.int64)
    if shape.kind == "Gemm":
        total = x @ quantised
    else:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        by_channel = shape.groups > 1
        total = np.einsum("nchwij,cij->nchw" if by_channel else "nchwij,ocij->nohw", windows, quantised[:, 0] if by_channel else quantised)
    return np.clip(np.rint(total / 42), -128, 127)


@pytest.mark.parametrize("shape", INT8, ids=lambda shape: shape.name)
@pytest.mark.parametrize(("suffix", "runtime", "backends"), [(".tflite", "litert", ("xnnpack", "builtin")), (".onnx", "onnx", ("cpu",))])
def test_an_int8_operator_of_a_list_computes_in_int8(tmp_path, shape, suffix, runtime, backends):
    """As numpy's whole numbers do, to one step of rounding, on every kernel; the weights are int8 in the file."""
    if suffix == ".onnx":
        pytest.importorskip("onnx")
    (model,) = operator_cutting.write_shapes([shape], suffix, tmp_path)
    x = np.random.RandomState(1).randint(-20, 20, shape.first)
    expected = expected_int8(shape, x)
    assert np.std(expected) > 5
    for backend in backends:
        library = runtimes.create(runtime)
        (info,) = library.load(model.file, runtimes.Options(backend=backend)).inputs
        laid_out = x.transpose(0, 2, 3, 1) if suffix == ".tflite" and x.ndim == 4 else x
        shift = 128 if np.dtype(info.dtype) == np.uint8 else 0
        library.bind([(laid_out + shift).astype(info.dtype)])()
        result = library.outputs()[0].astype(np.int64) - shift
        library.close()
        result = result.transpose(0, 3, 1, 2) if suffix == ".tflite" and x.ndim == 4 else result
        assert np.abs(result - expected).max() <= 1
    assert model.precision == "int8"
    assert model.bytes == sum(int(np.prod(sizes)) for sizes in (shape.first, shape.second, shape.output))


def test_deepbenchs_list_is_in_fp32_and_int8():
    """13 products and 14 convolutions of its device set, twice, after the two that give the peaks."""
    assert DEEPBENCH[:2] == PEAKS
    for precision in operator_models.PRECISIONS:
        shapes = [shape for shape in DEEPBENCH[2:] if shape.precision == precision]
        assert [sum(shape.kind == kind for shape in shapes) for kind in ("Gemm", "Conv")] == [13, 14]
        assert shapes[0].first == (700, 2048)
        assert shapes[0].output == (700, 5124)
    assert len({shape.name for shape in DEEPBENCH}) == len(DEEPBENCH)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["litert.tflite", pytest.param("pytorch.pt2", marks=pytest.mark.torch)])
def test_the_operators_of_a_model_are_measured_on_its_runtime(tmp_path, name):
    """By the command: the row, its share, and the peak in the model's precision."""
    environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    arguments = ("--model", FIXTURE.with_name(name), "--operators", "--top", "1", "--queries", "5", "--power", "none", "--json")
    command = [sys.executable, "-m", "edgemeter.agent.cli.main", "models", "profile", *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    assert completed.returncode == 0, completed.stderr
    document = json.loads(completed.stdout)
    (row,) = document["operators"]
    assert document["runtime"].startswith({"litert.tflite": "ai-edge-litert", "pytorch.pt2": "torch"}[name])
    assert row["share_ratio"] == pytest.approx(row["count"] * row["p50_ms"] / document["whole_p50_ms"])
    assert document["peaks_gflop_per_s"] or "GFLOP/s of Gemm" in str(document["doubts"])
