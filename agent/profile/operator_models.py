"""One-operator models: the slowest layers of an ONNX model cut out one by one, and a stated list of GEMM, convolution and attention shapes.

A layer keeps its attributes, its weights and the shapes that it has in the model; what it computes on is noise. Layers alike but for their
weights are one model with a count. Activations that a runtime would fuse into a layer are not in it, nor is the layout that neighbours
agree on.
Models with QuantizeLinear are refused: their layers are int8 only together with what surrounds them.
Needs the package onnx (`pip install 'edgemeter[operators]'`), which this module imports when it is used.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError, one_line
from edgemeter.agent.engine.loading import OPERATOR_MARK
from edgemeter.agent.profile.profiler import ProfileEvent
from edgemeter.agent.profile.report import inference_times

OPSET, IR_VERSION = 17, 8
# What ONNX Runtime appends to the names of convolutions whose layout it changes, and how many nodes it fuses into one at most.
_REARRANGED = "_nchwc"
_FUSED_NODES = 4
# What a runtime adds below this share of the time is not worth a line.
LEAST_NAMED_RATIO = 0.005
_FLOATS = {1: 4, 10: 2}
_SEED = 0


@dataclass(frozen=True, slots=True)
class OperatorModel:
    """A one-operator model in `file`, and how often its operator occurs in the whole model.

    `flops` is by the operator's definition (`operator_flops`), None where no formula is known here; `bytes` is its inputs, weights and
    outputs, each moved once: the least that memory has to move. `profiled_ratio` is its share of the whole model's time by the runtime's
    profiler, all occurrences together, None for a shape of the list.
    """

    name: str
    kind: str
    file: Path
    count: int
    flops: int | None
    bytes: int
    profiled_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """One operator of the list: its name, its kind, and the shapes of input and weights, or of query, key and value."""

    kind: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        """The name of its model."""
        return _name(self.kind, [self.first, self.second], {"strides": [self.stride], "group": self.groups})


# Layers that many networks share. Sources: ResNet-50 (arXiv 1512.03385, table 1), MobileNetV2 (1801.04381, table 2), BERT-base
# (1810.04805), ViT-S/16 (2012.12877); the products of matrices are of our choice: a vector, a small batch, and two that fill a core.
PEAK = Shape("Gemm", (512, 512), (512, 512))
STANDARD = (
    Shape("Gemm", (1, 1024), (1024, 1024)),
    Shape("Gemm", (32, 1024), (1024, 1024)),
    PEAK,
    Shape("Gemm", (1024, 1024), (1024, 1024)),
    Shape("Conv", (1, 3, 224, 224), (64, 3, 7, 7), stride=2),
    Shape("Conv", (1, 64, 56, 56), (64, 64, 3, 3)),
    Shape("Conv", (1, 256, 56, 56), (64, 256, 1, 1)),
    Shape("Conv", (1, 512, 7, 7), (512, 512, 3, 3)),
    Shape("Conv", (1, 96, 112, 112), (96, 1, 3, 3), stride=2, groups=96),
    Shape("Conv", (1, 576, 14, 14), (576, 1, 3, 3), groups=576),
    Shape("Attention", (1, 12, 128, 64), (1, 12, 128, 64)),
    Shape("Attention", (1, 6, 197, 64), (1, 6, 197, 64)),
)


def operator_flops(kind: str, inputs: Sequence[Sequence[int]], output: Sequence[int], attributes: Mapping[str, Any]) -> int | None:
    """Return the floating-point operations of one operator by its definition, a multiplication and an addition each 1; None if unknown.

    Conv: 2 x outputs x (input channels / groups) x kernel. ConvTranspose: 2 x inputs x (output channels / groups) x kernel. Gemm, MatMul:
    2 x outputs x K. Attention: 2 x 2 x heads x queries x keys x depth, without the softmax. Biases are left out. An algorithm that needs
    fewer (Winograd) therefore seems faster than it computes. Source: the operators' definitions in ONNX.
    """
    if kind == "Conv":
        return 2 * math.prod(output) * math.prod(inputs[1][1:])
    if kind == "ConvTranspose":
        return 2 * math.prod(inputs[0]) * math.prod(inputs[1][1:])
    if kind == "Gemm":
        return 2 * math.prod(output) * (inputs[0][0] if attributes.get("transA") else inputs[0][1])
    if kind == "MatMul":
        return 2 * math.prod(output) * inputs[0][-1]
    if kind == "Attention":
        return 4 * math.prod(inputs[0]) * inputs[1][-2]
    return None


def prepare(model: Path, target: Path) -> Any:
    """Write the model with every node named, and return it (onnx.ModelProto) with all shapes that are known, batch 1.

    Raises:
        ConfigError: it is no ONNX model, or one with int8 layers.
        UnavailableError: the package onnx is not installed.
    """
    onnx, broken = _onnx(), import_module("google.protobuf.message").DecodeError
    if model.suffix.lower() != ".onnx":
        raise ConfigError(f"operators are cut out of ONNX models, {str(model)!r} is none: convert it first (edgemeter models convert)")
    try:
        named_model = onnx.load(str(model))
        for index, node in enumerate(named_model.graph.node):
            node.name = node.name or f"{node.op_type}_{index}"
        onnx.save(named_model, str(target))
        constants = {tensor.name for tensor in named_model.graph.initializer}
        for entry in named_model.graph.input:
            first = entry.type.tensor_type.shape.dim[:1]
            if entry.name not in constants and first and not first[0].dim_value:
                first[0].dim_value = 1
        # Sizes that were computed for an open batch would contradict the batch of 1.
        del named_model.graph.value_info[:]
        for entry in named_model.graph.output:
            entry.type.tensor_type.ClearField("shape")
        named_model = onnx.shape_inference.infer_shapes(named_model, data_prop=True)
    except (OSError, ValueError, RuntimeError, onnx.shape_inference.InferenceError, broken) as error:
        raise ConfigError(f"cannot cut operators out of {str(model)!r}: {one_line(error)}; give a whole ONNX file") from error
    if any(node.op_type == "QuantizeLinear" for node in named_model.graph.node):
        raise ConfigError(f"{str(model)!r} is int8 by QuantizeLinear, and its layers alone would be float: give the fp32 or fp16 model")
    return named_model


def cut_slowest(
    whole_model: Any, events: Sequence[ProfileEvent], wall_us: float, count: int, folder: Path
) -> tuple[list[OperatorModel], list[str]]:
    """Write the `count` slowest layers as models; return them, slowest first, and why others of the slowest are not among them.

    `events` are those of ONNX Runtime's profiler for the same nodes, `wall_us` the median time of its inferences; an operator's time is
    its median in one. Time spent in what the runtime fused to another kind of operator, or added, belongs to no node.
    """
    cutter = _Cutter(whole_model)
    times_us = inference_times(events, lambda event: (cutter.node_of(event), event.type))
    spent: dict[str, float] = {}
    unnamed_us: dict[str, float] = {}
    for (name, kind), us in times_us.items():
        (unnamed_us if name is None else spent)[name or kind] = statistics.median(us)
    left_out: list[str] = []
    groups: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for node in whole_model.graph.node:
        if node.name in spent:
            groups[cutter.signature(node)].append(node)
    ranked = sorted(groups.values(), key=lambda nodes: -sum(spent[node.name] for node in nodes))
    cut: list[OperatorModel] = []
    for nodes in ranked:
        ratio = sum(spent[node.name] for node in nodes) / wall_us
        if len(cut) == count:
            break
        if reason := cutter.obstacle(nodes[0]):
            left_out.append(f"{nodes[0].op_type} {nodes[0].name!r} ({ratio:.1%} of the time): {reason}")
            continue
        cut.append(cutter.write(nodes, ratio, folder))
    if (unnamed := sum(unnamed_us.values()) / wall_us) >= LEAST_NAMED_RATIO:
        kinds = ", ".join(sorted(unnamed_us, key=lambda kind: -unnamed_us[kind])[:4])
        left_out.append(f"what the runtime fused or added itself ({kinds}): {unnamed:.1%} of the time")
    return cut, left_out


def write_shapes(shapes: Sequence[Shape], folder: Path) -> list[OperatorModel]:
    """Write the operators of a list as models, with seeded weights."""
    return [_write_shape(shape, folder) for shape in shapes]


class _Cutter:
    """Cuts nodes out of a model whose shapes are inferred."""

    def __init__(self, whole_model: Any) -> None:
        self._onnx = _onnx()
        self._whole = whole_model
        graph = whole_model.graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                tensor = self._onnx.TensorProto()
                tensor.CopyFrom(node.attribute[0].t)
                tensor.name = node.output[0]
                self._constants[tensor.name] = tensor
        self._values = {entry.name: entry for entry in (*graph.value_info, *graph.input, *graph.output)}
        self._by_name = {node.name: node for node in graph.node}
        self._by_output = {name: node for node in graph.node for name in node.output}

    def node_of(self, event: ProfileEvent) -> str | None:
        """Return the name of the node that an event is about, None where it is one of the runtime's own.

        ONNX Runtime names a node that it rearranges by its output, which is that of the activation where it fused one into it.
        """
        base = event.name.removesuffix(_REARRANGED)
        node = self._by_name.get(base) or self._by_output.get(base)
        for _ in range(_FUSED_NODES):
            if node is None or node.op_type == event.type.removeprefix("Fused"):
                break
            node = self._by_output.get(node.input[0]) if node.input else None
        return node.name if node is not None and node.op_type == event.type.removeprefix("Fused") else None

    def signature(self, node: Any) -> tuple[Any, ...]:
        """Return what makes two nodes the same operator: kind, attributes, and shapes and types of inputs, fixed or not."""
        attributes = tuple(sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute))
        inputs = tuple((self._shape(name), self._dtype(name), name in self._constants) for name in node.input)
        return node.op_type, node.domain, attributes, inputs

    def obstacle(self, node: Any) -> str | None:
        if any(attribute.type in (self._onnx.AttributeProto.GRAPH, self._onnx.AttributeProto.GRAPHS) for attribute in node.attribute):
            return "it holds a graph of its own"
        for name in (*filter(None, node.input), *filter(None, node.output)):
            if self._shape(name) is None:
                return f"the shape of {name!r} is not known before the model runs"
        moving = [name for name in node.input if name and name not in self._constants]
        if not moving or any(self._dtype(name) not in _FLOATS for name in moving):
            return "it computes on whole numbers, for which noise will not do"
        return None

    def write(self, nodes: Sequence[Any], ratio: float, folder: Path) -> OperatorModel:
        onnx, node = self._onnx, nodes[0]
        moving = list(dict.fromkeys(name for name in node.input if name and name not in self._constants))
        ends = [
            [onnx.helper.make_tensor_value_info(name, self._dtype(name), self._shape(name)) for name in names]
            for names in (moving, [name for name in node.output if name])
        ]
        fixed = [self._constants[name] for name in dict.fromkeys(node.input) if name in self._constants]
        graph = onnx.helper.make_graph([node], "operator", *ends, fixed)
        opsets = list(self._whole.opset_import)
        used = [name for name in dict.fromkeys((*node.input, *node.output)) if name]
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        shapes = [self._shape(name) or () for name in node.input]
        output = self._shape(node.output[0]) or ()
        name = _name(node.op_type, shapes, attributes)
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
        return int(self._onnx.helper.tensor_dtype_to_np_dtype(self._dtype(name)).itemsize)


def _name(kind: str, shapes: Sequence[Sequence[int]], attributes: Mapping[str, Any]) -> str:
    """Return a name that is the same on every device: `Conv 1x64x56x56 by 64x64x3x3 stride 2`."""
    first, *further = ["x".join(map(str, shape)) for shape in shapes if shape]
    stride = max(attributes.get("strides", [1]))
    groups = attributes.get("group", 1)
    words = [kind, first, *(["by", further[0]] if further else [])]
    return " ".join([*words, *([f"stride {stride}"] if stride > 1 else []), *([f"groups {groups}"] if groups > 1 else [])])


def _write_shape(shape: Shape, folder: Path) -> OperatorModel:
    onnx, helper = _onnx(), _onnx().helper
    draw = np.random.default_rng(_SEED)

    def info(name: str, sizes: Sequence[int]) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes)

    attributes: dict[str, Any] = {}
    inputs, weights = [info("x", shape.first)], []
    if shape.kind == "Attention":
        output = shape.first
        inputs += [info("key", shape.second), info("value", shape.second)]
        scale = np.float32(1 / math.sqrt(shape.first[-1]))
        weights = [onnx.numpy_helper.from_array(np.array(scale), "scale")]
        nodes = [
            helper.make_node("Transpose", ["key"], ["turned"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["x", "turned"], ["scores"]),
            helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
            helper.make_node("Softmax", ["scaled"], ["weights"], axis=-1),
            helper.make_node("MatMul", ["weights", "value"], ["y"]),
        ]
        moved = 4 * math.prod(shape.first)
    else:
        weights = [onnx.numpy_helper.from_array(draw.standard_normal(shape.second).astype(np.float32), "w")]
        if shape.kind == "Conv":
            pad = shape.second[-1] // 2
            sizes = [(size + 2 * pad - shape.second[-1]) // shape.stride + 1 for size in shape.first[2:]]
            output = (shape.first[0], shape.second[0], *sizes)
            attributes = {"strides": [shape.stride] * 2, "pads": [pad] * 4, "group": shape.groups}
        else:
            output = (shape.first[0], shape.second[1])
        nodes = [helper.make_node(shape.kind, ["x", "w"], ["y"], **attributes)]
        moved = math.prod(shape.first) + math.prod(shape.second) + math.prod(output)
    graph = helper.make_graph(nodes, "operator", inputs, [info("y", output)], weights)
    file = _save(graph, [helper.make_opsetid("", OPSET)], IR_VERSION, shape.name, folder)
    return OperatorModel(
        shape.name, shape.kind, file, 1, operator_flops(shape.kind, [shape.first, shape.second], output, attributes), 4 * moved
    )


def _save(graph: Any, opsets: Sequence[Any], ir_version: int, name: str, folder: Path) -> Path:
    onnx = _onnx()
    operator_model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="edgemeter")
    onnx.helper.set_model_props(operator_model, {OPERATOR_MARK: name})
    file = folder / f"{name.replace(' ', '_')}.onnx"
    number = 1
    while file.exists():
        number += 1
        file = folder / f"{name.replace(' ', '_')}_{number}.onnx"
    file.write_bytes(operator_model.SerializeToString(deterministic=True))
    return file


def _onnx() -> Any:
    try:
        onnx = import_module("onnx")
        import_module("onnx.shape_inference")
    except ImportError as error:
        raise UnavailableError(
            f"one-operator models are written with onnx: {one_line(error)}; pip install 'edgemeter[operators]'"
        ) from error
    return onnx
