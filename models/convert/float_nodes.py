"""The float nodes of an int8 file: by kind, with their share of the multiply-adds, read from the file itself.

Nodes that only convert between float and int8 are none. In ONNX a node is int8 if an integer operator, or if what it reads comes from
DequantizeLinear and what it gives goes into QuantizeLinear, as runtimes fuse it; in LiteRT, if its weights are, or without weights all
its tensors.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgemeter.models.convert.converter_output import quiet
from edgemeter.models.convert.formats import ConversionFacts

_CONVERTING = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QUANTIZE", "DEQUANTIZE"})
# Where their weights are among the inputs.
_ONNX_WEIGHTS = {
    "Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1, "ConvInteger": 1, "MatMulInteger": 1, "QLinearConv": 3, "QLinearMatMul": 3,
}  # fmt: skip
# ONNX Runtime multiplies in int8 although the product stays float.
_FLOAT_PRODUCT = frozenset({"Gemm", "MatMul"})
_LITERT_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"})
_NAMED = 8


@dataclass(frozen=True, slots=True)
class CountedNode:
    """A node that computes: its operator, whether in int8, and its multiply-adds (0 if it has no weights)."""

    operator: str
    is_int8: bool
    multiply_adds: int = 0


def float_facts(nodes: Sequence[CountedNode]) -> ConversionFacts:
    """Return for the card how many nodes are float, of how many, of which kinds, and with which share of the multiply-adds."""
    float_nodes = [node for node in nodes if not node.is_int8]
    kinds = Counter(node.operator for node in float_nodes).most_common()
    names = [f"{count} {kind}" for kind, count in kinds[:_NAMED]]
    further = sum(count for _, count in kinds[_NAMED:])
    total = sum(node.multiply_adds for node in nodes)
    ratio = sum(node.multiply_adds for node in float_nodes) / total if total else None
    return {
        "nodes": len(nodes),
        "float_nodes": len(float_nodes),
        **({"float_operators": ", ".join([*names, *([f"{further} others"] if further else [])])} if float_nodes else {}),
        **({} if ratio is None else {"float_multiply_adds_ratio": round(ratio, 4)}),
    }


def float_words(facts: ConversionFacts) -> str:
    """Return the same facts in a sentence; empty without them. int8 in name only is called that."""
    if "float_nodes" not in facts:
        return ""
    words = f"{facts['float_nodes']} of {facts['nodes']} nodes in float"
    words += f" ({facts['float_operators']})" if "float_operators" in facts else ""
    ratio = float(facts.get("float_multiply_adds_ratio", 0))
    words += f", {ratio:.1%} of the multiply-adds" if ratio else ""
    return f"int8 in name only: {words}" if ratio > 0.5 else words


def onnx_nodes(path: Path) -> Iterator[CountedNode]:
    """Yield the nodes of an ONNX file that compute on values: not those on shapes, nor what only scales an integer product."""
    import onnx  # noqa: PLC0415 - extra `convert`

    graph = onnx.shape_inference.infer_shapes(onnx.load(str(path))).graph
    inferred = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.input, *graph.output)}
    shapes = {name: [max(dim.dim_value, 1) for dim in kind.shape.dim] for name, kind in inferred.items()}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    constants = {tensor.name for tensor in graph.initializer}
    scales = constants.union(name for node in graph.node if node.op_type == "DynamicQuantizeLinear" for name in node.output)
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.UNDEFINED)
    producers = {name: node.op_type for node in graph.node for name in node.output}
    consumers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            consumers[name].append(node.op_type)
    # The integer products, and what becomes of them until they are float numbers of the right size.
    scaled: set[str] = set()
    for node in graph.node:
        operator, weights = node.op_type, _ONNX_WEIGHTS.get(node.op_type)
        is_integer = operator.startswith("QLinear") or operator.endswith("Integer")
        if operator in {"Cast", "Mul", "Add", "Reshape"} and _only_scales(node, scaled, scales):
            scaled.update(node.output)
            continue
        if operator.endswith("Integer"):
            scaled.update(node.output)
        is_float = any(inferred[name].elem_type in floats if name in inferred else True for name in node.output)
        if operator in _CONVERTING or operator == "Constant" or not (is_float or is_integer):
            continue
        read = [name for name in node.input[: 2 if weights else None] if name and (weights or name not in constants)]
        is_fused = all(producers.get(name) == "DequantizeLinear" for name in read) and (
            operator in _FLOAT_PRODUCT or all(consumer == "QuantizeLinear" for name in node.output for consumer in consumers[name])
        )
        yield CountedNode(operator, is_integer or (bool(read) and is_fused), _onnx_multiply_adds(node, weights, shapes))


def _only_scales(node: Any, scaled: set[str], scales: set[str]) -> bool:
    """Return whether a node only scales an integer product or adds its bias; one that makes the scale or bias adds it to `scales`."""
    if all(name in scales for name in node.input):
        scales.update(node.output)
        return True
    return any(name in scaled for name in node.input) and all(name in scaled or name in scales for name in node.input)


def _onnx_multiply_adds(node: Any, weights: int | None, shapes: Mapping[str, Sequence[int]]) -> int:
    if weights is None:
        return 0
    weight, output = shapes.get(node.input[weights], ()), math.prod(shapes.get(node.output[0], (0,)))
    if node.op_type == "ConvTranspose":
        return math.prod(shapes.get(node.input[0], (0,))) * math.prod(weight[1:])
    if "Conv" in node.op_type:
        return output * math.prod(weight[1:])
    is_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return output * (weight[-1 if is_transposed else -2] if len(weight) > 1 else 1)


def litert_nodes(path: Path) -> Iterator[CountedNode]:
    """Yield the operations of a LiteRT file that compute on float or quantised values."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415 - extra `convert`

    with quiet():
        interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    tensors = {entry["index"]: entry for entry in interpreter.get_tensor_details()}
    # The library has no public API for its operations.
    for operation in interpreter._get_ops_details():  # noqa: SLF001
        operator = operation["op_name"]
        inputs, outputs = ([tensors[at] for at in operation[key].tolist() if at in tensors] for key in ("inputs", "outputs"))
        kinds = {str(tensor["dtype"].__name__) for tensor in (*inputs, *outputs)}
        if operator in _CONVERTING or not kinds.intersection({"float32", "float16", "int8", "uint8", "int16"}):
            continue
        if operator in _LITERT_WEIGHTED:
            yield CountedNode(
                operator, inputs[1]["dtype"].__name__ in {"int8", "uint8"}, _litert_multiply_adds(operator, inputs, outputs[0])
            )
        else:
            yield CountedNode(operator, not kinds.intersection({"float32", "float16"}))


def _litert_multiply_adds(operator: str, inputs: Sequence[Mapping[str, Any]], output: Mapping[str, Any]) -> int:
    (read, weight, *_), size = ([int(part) for part in tensor["shape"]] for tensor in inputs), math.prod(map(int, output["shape"]))
    if operator == "TRANSPOSE_CONV":
        return math.prod(map(int, inputs[2]["shape"])) * math.prod(weight[:3])
    if operator in {"CONV_2D", "DEPTHWISE_CONV_2D"}:
        return size * math.prod(weight[1:] if operator == "CONV_2D" else weight[1:3])
    return size * (weight if operator == "FULLY_CONNECTED" else read)[-1]
