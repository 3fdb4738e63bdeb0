"""Operators of ONNX models: cut out of a model, and written from the list of shapes.

An operator between DequantizeLinear and QuantizeLinear is int8 only together with them, so models with QuantizeLinear are refused.
Needs the package onnx (`pip install 'edgemeter[operators]'`), which this module imports when it is used.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, one_line
from edgemeter.agent.base.plugins import ModuleOfExtra
from edgemeter.agent.engine.loading import OPERATOR_MARK
from edgemeter.agent.profile.operator_models import (
    INT8_SCALE,
    OperatorModel,
    Shape,
    int8_weights,
    operator_file,
    operator_flops,
    operator_name,
)
from edgemeter.agent.profile.profiler import ProfileEvent

_onnx = ModuleOfExtra("onnx", "operators", "one-operator models are written with onnx")
OPSET, IR_VERSION = 17, 8
# What ONNX Runtime appends to the names of convolutions whose layout it changes, and how many nodes it fuses into one at most.
_REARRANGED = "_nchwc"
_FUSED_NODES = 4
_FLOATS = {1: 4, 10: 2}


def _prepared(model: Path, target: Path) -> Any:
    """Write the model with every node named, and return it (onnx.ModelProto) with all shapes that are known, batch 1."""
    load, broken = _onnx.load, import_module("google.protobuf.message").DecodeError
    try:
        named_model = load(str(model))
        for index, node in enumerate(named_model.graph.node):
            node.name = node.name or f"{node.op_type}_{index}"
        _onnx.save(named_model, str(target))
        constants = {tensor.name for tensor in named_model.graph.initializer}
        for entry in named_model.graph.input:
            first = entry.type.tensor_type.shape.dim[:1]
            if entry.name not in constants and first and not first[0].dim_value:
                first[0].dim_value = 1
        # Sizes that were computed for an open batch would contradict the batch of 1.
        del named_model.graph.value_info[:]
        for entry in named_model.graph.output:
            entry.type.tensor_type.ClearField("shape")
        named_model = _onnx.shape_inference.infer_shapes(named_model, data_prop=True)
    except (OSError, ValueError, RuntimeError, _onnx.shape_inference.InferenceError, broken) as error:
        raise ConfigError(f"cannot cut operators out of {str(model)!r}: {one_line(error)}; give a whole ONNX file") from error
    if any(node.op_type == "QuantizeLinear" for node in named_model.graph.node):
        raise ConfigError(f"{str(model)!r} is int8 by QuantizeLinear, and its layers alone would be float: give the fp32 or fp16 model")
    return named_model


class OnnxCutter:
    """Cuts nodes out of a model, which it writes to `target` with every node named.

    Raises:
        ConfigError: it is no ONNX model, or one with int8 layers.
        UnavailableError: the package onnx is not installed.
    """

    def __init__(self, model: Path, target: Path) -> None:
        self._whole = _prepared(model, target)
        graph = self._whole.graph
        self._nodes = list(graph.node)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                tensor = _onnx.TensorProto()
                tensor.CopyFrom(node.attribute[0].t)
                tensor.name = node.output[0]
                self._constants[tensor.name] = tensor
        self._values = {entry.name: entry for entry in (*graph.value_info, *graph.input, *graph.output)}
        self._numbers = {node.name: number for number, node in enumerate(self._nodes)}
        self._by_output = {name: node for node in self._nodes for name in node.output}

    def nodes_of(self, _events: Sequence[ProfileEvent]) -> Callable[[ProfileEvent], int | None]:
        """Return what finds the node of an event, by its name.

        ONNX Runtime names a node that it rearranges by its output, which is that of the activation where it fused one into it.
        """
        return self._node_of

    def _node_of(self, event: ProfileEvent) -> int | None:
        base = event.name.removesuffix(_REARRANGED)
        node = self._nodes[self._numbers[base]] if base in self._numbers else self._by_output.get(base)
        for _ in range(_FUSED_NODES):
            if node is None or node.op_type == event.type.removeprefix("Fused"):
                break
            node = self._by_output.get(node.input[0]) if node.input else None
        return self._numbers[node.name] if node is not None and node.op_type == event.type.removeprefix("Fused") else None

    def describe(self, number: int) -> str:
        """Return its kind and its name."""
        return f"{self._nodes[number].op_type} {self._nodes[number].name!r}"

    def signature(self, number: int) -> Hashable:
        """Return kind, attributes, and shapes and types of inputs."""
        node = self._nodes[number]
        attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
        inputs = tuple((self._shape(name), self._dtype(name), name in self._constants) for name in node.input)
        return node.op_type, node.domain, attributes, inputs

    def obstacle(self, number: int) -> str | None:
        """Return why it cannot be cut out, None if it can."""
        node = self._nodes[number]
        if any(attribute.type in (_onnx.AttributeProto.GRAPH, _onnx.AttributeProto.GRAPHS) for attribute in node.attribute):
            return "it holds a graph of its own"
        for name in (*filter(None, node.input), *filter(None, node.output)):
            if self._shape(name) is None:
                return f"the shape of {name!r} is not known before the model runs"
        moving = [name for name in node.input if name and name not in self._constants]
        if not moving or any(self._dtype(name) not in _FLOATS for name in moving):
            return "it computes on whole numbers, for which noise will not do"
        return None

    def write(self, nodes: Sequence[int], ratio: float, folder: Path) -> OperatorModel:
        """Write the node with its constants alone."""
        node = self._nodes[nodes[0]]
        moving = list(dict.fromkeys(name for name in node.input if name and name not in self._constants))
        ends = [
            [_onnx.helper.make_tensor_value_info(name, self._dtype(name), self._shape(name)) for name in names]
            for names in (moving, [name for name in node.output if name])
        ]
        fixed = [self._constants[name] for name in dict.fromkeys(node.input) if name in self._constants]
        graph = _onnx.helper.make_graph([node], "operator", *ends, fixed)
        opsets = list(self._whole.opset_import)
        used = [name for name in dict.fromkeys((*node.input, *node.output)) if name]
        attributes = {attribute.name: _onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        shapes = [self._shape(name) or () for name in node.input]
        output = self._shape(node.output[0]) or ()
        name = operator_name(node.op_type, shapes, max(attributes.get("strides", [1])), attributes.get("group", 1))
        return OperatorModel(
            name=name,
            kind=node.op_type,
            file=_save(graph, opsets, self._whole.ir_version, name, folder),
            count=len(nodes),
            flops=operator_flops(node.op_type, shapes, output, attributes),
            bytes=sum(math.prod(self._shape(name) or ()) * self._bytes(name) for name in used),
            profiled_ratio=ratio,
        )

    def _shape(self, name: str) -> tuple[int, ...] | None:
        if name in self._constants:
            return tuple(self._constants[name].dims)
        entry = self._values.get(name)
        if entry is None or not entry.type.tensor_type.HasField("shape"):
            return None
        dimensions = entry.type.tensor_type.shape.dim
        return tuple(size.dim_value for size in dimensions) if all(size.HasField("dim_value") for size in dimensions) else None

    def _dtype(self, name: str) -> int:
        if name in self._constants:
            return int(self._constants[name].data_type)
        return int(self._values[name].type.tensor_type.elem_type) if name in self._values else 0

    def _bytes(self, name: str) -> int:
        return int(_onnx.helper.tensor_dtype_to_np_dtype(self._dtype(name)).itemsize)


open_model = OnnxCutter


def write_shape(shape: Shape, folder: Path) -> OperatorModel:
    """Write an operator of a list as a model, with seeded weights."""
    helper = _onnx.helper
    is_int8 = shape.precision == "int8"

    def info(name: str, sizes: Sequence[int]) -> Any:
        return helper.make_tensor_value_info(name, _onnx.TensorProto.UINT8 if is_int8 else _onnx.TensorProto.FLOAT, sizes)

    inputs = [info("x", shape.first)]
    fixed: dict[str, Any]
    if shape.kind == "Attention":
        inputs += [info("key", shape.second), info("value", shape.second)]
        fixed = {"scale": np.array(1 / math.sqrt(shape.first[-1]), np.float32)}
        nodes = [
            helper.make_node("Transpose", ["key"], ["turned"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["x", "turned"], ["scores"]),
            helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
            helper.make_node("Softmax", ["scaled"], ["weights"], axis=-1),
            helper.make_node("MatMul", ["weights", "value"], ["y"]),
        ]
    else:
        weights = shape.weights()
        attributes = {"strides": [shape.stride] * 2, "pads": [shape.pad] * 4, "group": shape.groups} if shape.kind == "Conv" else {}
        if is_int8:
            scale, zero = np.array(INT8_SCALE, np.float32), np.array(128, np.uint8)
            fixed = {"w": int8_weights(weights), "s": scale, "z": zero, "wz": np.array(0, np.int8)}
            kind = {"Gemm": "QLinearMatMul", "Conv": "QLinearConv"}[shape.kind]
            nodes = [helper.make_node(kind, ["x", "s", "z", "w", "s", "wz", "s", "z"], ["y"], **attributes)]
        else:
            fixed, nodes = {"w": weights}, [helper.make_node(shape.kind, ["x", "w"], ["y"], **attributes)]
    graph = helper.make_graph(
        nodes, "operator", inputs, [info("y", shape.output)], [_onnx.numpy_helper.from_array(array, name) for name, array in fixed.items()]
    )
    return shape.model(_save(graph, [helper.make_opsetid("", OPSET)], IR_VERSION, shape.name, folder))


def _save(graph: Any, opsets: Sequence[Any], ir_version: int, name: str, folder: Path) -> Path:
    operator_model = _onnx.helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="edgemeter")
    _onnx.helper.set_model_props(operator_model, {OPERATOR_MARK: name})
    file = operator_file(name, ".onnx", folder)
    file.write_bytes(operator_model.SerializeToString(deterministic=True))
    return file
