"""What of an int8 file is float, counted again by others: ONNX Runtime's own fusion, the schema of LiteRT's files, and by hand."""

import re
from collections import Counter
from importlib import import_module

import numpy as np
import pytest

from edgemeter.models.catalogue.shipped_models import SHIPPED_FOLDER
from edgemeter.models.convert.float_nodes import float_facts, float_words, litert_nodes, onnx_nodes
from edgemeter.models.convert.litert_quantise import litert_int8, litert_int8_dynamic
from edgemeter.models.convert.onnx_quantise import Int8Recipe, OnnxInt8

pytestmark = [pytest.mark.convert, pytest.mark.nightly]

IMAGES = [np.random.default_rng(number).random((1, 3, 160, 160), dtype=np.float32) for number in range(2)]
FP32 = SHIPPED_FOLDER / "edgemeter-shapes_fp32.onnx"


def quantised(folder, keep, blamed=()):
    """Return the shipped detector in int8, with what matches in float."""
    (folder / "made").mkdir()
    OnnxInt8(FP32, folder / "made", lambda: IMAGES, keep, symmetric=False).write(folder / "int8.onnx", Int8Recipe("min-max", tuple(blamed)))
    return folder / "int8.onnx"


def fused(path, folder):
    """Return how many nodes of each operator ONNX Runtime runs, without those that only convert; `Fused` in names is left out."""
    onnx, onnxruntime = map(import_module, ("onnx", "onnxruntime"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(str(folder / "optimised.onnx")).graph.node
    return Counter(node.op_type.removeprefix("Fused") for node in nodes)


def test_convolutions_in_float_are_those_that_onnx_runtime_does_not_fuse(tmp_path):
    """None by default, so that int8 is int8; those of a stretch that is left in float."""
    onnx = import_module("onnx")
    nodes = onnx.load(str(FP32)).graph.node
    start, end = [index for index, node in enumerate(nodes) if node.op_type == "Conv"][3:7:3]
    stretch = [node.name for node in nodes[start : end + 1]]
    for label, keep, least in (("none", (), 0), ("stretch", tuple(f"^{re.escape(name)}$" for name in stretch), 4)):
        (tmp_path / label).mkdir()
        path = quantised(tmp_path / label, keep)
        counts = Counter(node.is_int8 for node in onnx_nodes(path) if node.operator == "Conv")
        by_runtime = fused(path, tmp_path / label)
        assert (counts[True], counts[False]) == (by_runtime["QLinearConv"], by_runtime["Conv"]), label
        assert counts[False] == least, label


def test_the_share_of_the_multiply_adds_is_that_by_hand(tmp_path):
    """Of the shapes that ONNX Runtime shows for the outputs; a file of which most is float is not called int8."""
    onnx, onnxruntime = map(import_module, ("onnx", "onnxruntime"))
    model = onnx.load(str(FP32))
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    opened.graph.output.extend(onnx.helper.make_empty_tensor_value_info(node.output[0]) for node in convolutions)
    session = onnxruntime.InferenceSession(opened.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run([node.output[0] for node in convolutions], {session.get_inputs()[0].name: IMAGES[0]})
    sizes = [int(np.prod(value.shape[1:]) * np.prod(weights[node.input[1]][1:])) for node, value in zip(convolutions, values, strict=True)]
    facts = float_facts(list(onnx_nodes(quantised(tmp_path, [f"^{node.name}$" for node in convolutions[:5]]))))
    assert facts["float_multiply_adds_ratio"] == pytest.approx(sum(sizes[:5]) / sum(sizes), abs=1e-4)
    assert "5 Conv" in facts["float_operators"]
    assert float_words(facts).startswith("int8 in name only: ") == (sum(sizes[:5]) > 0.5 * sum(sizes))


def by_schema(path):
    """Return how many operations of a LiteRT file have a float tensor, and how many there are, as its schema shows them."""
    schema = import_module("ai_edge_litert.schema_py_generated")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(path.read_bytes(), 0))
    (graph,) = model.subgraphs
    converting = {schema.BuiltinOperator.QUANTIZE, schema.BuiltinOperator.DEQUANTIZE}
    operations = [operation for operation in graph.operators if model.operatorCodes[operation.opcodeIndex].builtinCode not in converting]
    are_float = [
        any(graph.tensors[at].type == schema.TensorType.FLOAT32 for at in (*operation.inputs, *operation.outputs) if at >= 0)
        for operation in operations
    ]
    return sum(are_float), len(operations)


def test_operations_in_float_are_those_with_float_tensors_in_the_file(tmp_path):
    """The shipped one has none; what --exclude names stays; and of int8 weights the products are int8 in spite of float tensors."""
    shipped = SHIPPED_FOLDER / "edgemeter-shapes_fp32.tflite"
    images = [np.ascontiguousarray(image.transpose(0, 2, 3, 1)) for image in IMAGES]
    path = tmp_path / "int8.tflite"
    interpreter = import_module("ai_edge_litert.interpreter").Interpreter(str(shipped))
    (convolution,) = [operation for operation in interpreter._get_ops_details() if operation["op_name"] == "CONV_2D"][3:4]
    (name,) = [entry["name"] for entry in interpreter.get_tensor_details() if entry["index"] == convolution["outputs"][0]]
    litert_int8(shipped, path, images, (re.escape(name),))
    for file in (SHIPPED_FOLDER / "edgemeter-shapes_int8.tflite", path):
        facts = float_facts(list(litert_nodes(file)))
        assert (facts["float_nodes"], facts["nodes"]) == by_schema(file), file
    assert facts["float_nodes"] > 0
    litert_int8_dynamic(shipped, tmp_path / "dynamic.tflite", ())
    assert float_facts(list(litert_nodes(tmp_path / "dynamic.tflite")))["float_multiply_adds_ratio"] == 0
    assert float_facts(list(litert_nodes(shipped)))["float_multiply_adds_ratio"] == 1
