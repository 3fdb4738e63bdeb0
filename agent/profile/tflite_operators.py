"""Operators of TFLite models: cut out of a model with their quantisation, and written from the lists of shapes.

LiteRT's profiler names an operator `CONV_2D #3`, the third of its kind, with the builtin kernels only; it is timed with any.
Source: the schema that ai-edge-litert ships (`schema_py_generated`). Tested with ai-edge-litert 2.3.0.
"""

import io
import math
import zipfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import ModuleOfExtra
from edgemeter.agent.engine.loading import OPERATOR_MARK
from edgemeter.agent.profile.operator_models import INT8_SCALE, OperatorModel, Precision, Shape, int8_weights, operator_file, operator_name
from edgemeter.agent.profile.profiler import ProfileEvent

_schema = ModuleOfExtra("ai_edge_litert.schema_py_generated", "litert", "TFLite operators are cut by ai-edge-litert")
_IDENTIFIER = b"TFL3"
# By the schema's number of a type: its name and its bytes. Noise will do for these.
_TYPES = {0: ("fp32", 4), 1: ("fp16", 2), 3: ("uint8", 1), 7: ("int16", 2), 9: ("int8", 1)}
_OTHER_BYTES = {2: 4, 4: 8, 6: 1, 8: 8, 10: 8}
_FLOAT32, _INT32, _INT8 = 0, 2, 9
# Kernels take int8 from these versions of an operator on. Source: tflite `tools/versioning/op_version.cc`.
_INT8_VERSIONS = {"FULLY_CONNECTED": 4, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3}
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


class TfliteCutter:
    """Cuts operators out of a model's first graph; the file itself, copied to `target`, has them all named.

    Raises:
        ConfigError: it is no TFLite model.
        UnavailableError: ai-edge-litert is not installed.
    """

    def __init__(self, model: Path, target: Path) -> None:
        content = model.read_bytes()
        if not _schema.Model.ModelBufferHasIdentifier(content, 0):
            raise ConfigError(f"{str(model)!r} is no TFLite model: give a whole TFLite file")
        self._model = _schema.ModelT.InitFromPackedBuf(content)
        self._graph = self._model.subgraphs[0]
        self._kinds = [self._kind(operator) for operator in self._graph.operators]
        target.write_bytes(content)

    @cached_property
    def _builtins(self) -> Mapping[int, str]:
        return {number: name for name, number in vars(_schema.BuiltinOperator).items() if isinstance(number, int)}

    def _kind(self, operator: Any) -> str:
        code = self._model.operatorCodes[operator.opcodeIndex]
        name = self._builtins.get(max(code.builtinCode, code.deprecatedBuiltinCode), "?")
        return code.customCode.decode() if name == "CUSTOM" else name

    def nodes_of(self, _events: Sequence[ProfileEvent]) -> Callable[[ProfileEvent], int | None]:
        """Return what finds the operator of an event: the nth of its kind."""
        return self._node_of

    def _node_of(self, event: ProfileEvent) -> int | None:
        kind, _, number = event.name.rpartition(" #")
        same = [node for node, other in enumerate(self._kinds) if other == kind]
        return same[int(number) - 1] if number.isdecimal() and 0 < int(number) <= len(same) else None

    def describe(self, node: int) -> str:
        """Return its kind and number."""
        return f"{self._kinds[node]} {node}"

    def signature(self, node: int) -> Hashable:
        """Return kind, settings, and shapes and types of inputs."""
        operator = self._graph.operators[node]
        settings = sorted((name, str(value)) for name, value in vars(operator.builtinOptions or object).items() if name[0] != "_")
        tensors = tuple((_shape(each), each.type, self._is_fixed(each)) for each in self._tensors(operator.inputs))
        return self._kinds[node], str(settings), tensors

    def obstacle(self, node: int) -> str | None:
        """Return why it cannot be cut out, None if it can."""
        operator = self._graph.operators[node]
        if len(operator.intermediates if operator.intermediates is not None else ()):
            return "it keeps intermediate results"
        for tensor in self._tensors([*operator.inputs, *operator.outputs]):
            if tensor.isVariable:
                return "it keeps a state"
            # A scalar has no shape, as one of unknown shape has none.
            if (tensor.shape is None and not self._is_fixed(tensor)) or 0 in _shape(tensor):
                return f"the shape of {tensor.name.decode()!r} is not known before the model runs"
        moving = [tensor for tensor in self._tensors(operator.inputs) if not self._is_fixed(tensor)]
        if not moving or any(tensor.type not in _TYPES for tensor in moving):
            return "it computes on whole numbers, for which noise will not do"
        return None

    def write(self, nodes: Sequence[int], ratio: float, folder: Path) -> OperatorModel:
        """Write the operator with its tensors and their content alone."""
        operator, kind = copy(self._graph.operators[nodes[0]]), self._kinds[nodes[0]]
        used = list(dict.fromkeys(int(index) for index in (*operator.inputs, *operator.outputs) if index >= 0))
        tensors = [copy(self._graph.tensors[index]) for index in used]
        buffers = [_schema.BufferT()]
        for tensor in tensors:
            tensor.shapeSignature = None
            is_fixed = self._is_fixed(tensor)
            buffers += [self._model.buffers[tensor.buffer]] if is_fixed else []
            tensor.buffer = len(buffers) - 1 if is_fixed else 0
        first, further = self._tensors(operator.inputs), self._tensors(operator.outputs)
        moving = [used.index(int(index)) for index in operator.inputs if index >= 0 and not self._is_fixed(self._graph.tensors[index])]
        operator.inputs, operator.outputs = (
            [used.index(index) if index >= 0 else -1 for index in ends] for ends in (operator.inputs, operator.outputs)
        )
        code = self._model.operatorCodes[operator.opcodeIndex]
        operator.opcodeIndex = 0
        shapes = [_shape(tensor) for tensor in first]
        moved_type = _TYPES[next(tensor.type for tensor in first if not self._is_fixed(tensor))][0]
        precision: Precision = "int8" if moved_type in ("int8", "uint8") else "fp32"
        stride = getattr(operator.builtinOptions, "strideH", 1)
        name = operator_name(kind, shapes[:2], stride, precision=moved_type)
        return OperatorModel(
            name=name,
            kind=kind,
            file=_save(name, [code], tensors, buffers, [operator], dict.fromkeys(moving), operator.outputs, folder),
            count=len(nodes),
            flops=tflite_flops(kind, shapes, _shape(further[0])),
            bytes=sum(math.prod(_shape(tensor)) * _bytes_of(tensor) for tensor in tensors),
            profiled_ratio=ratio,
            precision=precision,
        )

    def _tensors(self, indices: Sequence[int]) -> list[Any]:
        return [self._graph.tensors[index] for index in indices if index >= 0]

    def _is_fixed(self, tensor: Any) -> bool:
        data = self._model.buffers[tensor.buffer].data
        return data is not None and len(data) > 0


def _shape(tensor: Any) -> tuple[int, ...]:
    return () if tensor.shape is None else tuple(map(int, tensor.shape))


def _bytes_of(tensor: Any) -> int:
    return _TYPES[tensor.type][1] if tensor.type in _TYPES else _OTHER_BYTES.get(tensor.type, 1)


def tflite_flops(kind: str, inputs: Sequence[Sequence[int]], output: Sequence[int]) -> int | None:
    """Return the operations of one operator by its definition, as `operator_flops`; weights as TFLite lays them out.

    CONV_2D: output channels first; DEPTHWISE_CONV_2D: 1, height, width, channels; FULLY_CONNECTED: outputs, inputs. The first input of
    TRANSPOSE_CONV is its shape.
    """
    if kind == "CONV_2D":
        return 2 * math.prod(output) * math.prod(inputs[1][1:])
    if kind == "DEPTHWISE_CONV_2D":
        return 2 * math.prod(output) * math.prod(inputs[1][1:3])
    if kind in ("FULLY_CONNECTED", "BATCH_MATMUL"):
        # A fully connected layer flattens what it gets.
        return 2 * math.prod(output) * inputs[kind == "FULLY_CONNECTED"][-1]
    if kind == "TRANSPOSE_CONV":
        return 2 * math.prod(inputs[2]) * math.prod(inputs[1][:3])
    return None


open_model = TfliteCutter


def write_shape(shape: Shape, folder: Path) -> OperatorModel:
    """Write an operator of a list as a model, with seeded weights; photographs are NHWC, as TFLite has them."""
    if shape.kind == "Attention":
        return _write_attention(shape, folder)
    is_int8 = shape.precision == "int8"
    weights = shape.weights()
    options: Any
    if shape.kind == "Gemm":
        kind, weights, ends, options = "FULLY_CONNECTED", weights.T, (shape.first, shape.output), _schema.FullyConnectedOptionsT()
    else:
        is_depthwise = shape.groups > 1
        kind = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
        weights = weights.transpose((1, 2, 3, 0) if is_depthwise else (0, 2, 3, 1))
        ends = ((shape.first[0], *shape.first[2:], shape.first[1]), (shape.output[0], *shape.output[2:], shape.output[1]))
        options = _schema.DepthwiseConv2DOptionsT() if is_depthwise else _schema.Conv2DOptionsT()
        options.padding = 0 if shape.pad else 1
        options.strideW = options.strideH = shape.stride
        if is_depthwise:
            options.depthMultiplier = 1
    outputs = ends[1][-1]
    bias = np.zeros(outputs, np.int32 if is_int8 else np.float32)
    fixed = [np.ascontiguousarray(int8_weights(weights) if is_int8 else weights), bias]
    kind_of = _INT8 if is_int8 else _FLOAT32
    tensors = [
        _tensor("x", ends[0], kind_of, 0, INT8_SCALE if is_int8 else None),
        _tensor("w", fixed[0].shape, kind_of, 1, INT8_SCALE if is_int8 else None),
        _tensor("b", bias.shape, _INT32 if is_int8 else _FLOAT32, 2, INT8_SCALE**2 if is_int8 else None),
        _tensor("y", ends[1], kind_of, 0, INT8_SCALE if is_int8 else None),
    ]
    buffers = [_schema.BufferT(), *map(_buffer, fixed)]
    codes = [_code(kind, _INT8_VERSIONS[kind] if is_int8 else 1)]
    operators = [_operator(0, [0, 1, 2], [3], options)]
    return shape.model(_save(shape.name, codes, tensors, buffers, operators, [0], [3], folder))


def _write_attention(shape: Shape, folder: Path) -> OperatorModel:
    scores = (*shape.first[:-1], shape.second[-2])
    sizes = {"x": shape.first, "key": shape.second, "value": shape.second, "scores": scores, "weights": scores, "y": shape.output}
    turned, plain, softmax = _schema.BatchMatMulOptionsT(), _schema.BatchMatMulOptionsT(), _schema.SoftmaxOptionsT()
    turned.adjY, softmax.beta = True, 1 / math.sqrt(shape.first[-1])
    operators = [_operator(0, [0, 1], [3], turned), _operator(1, [3], [4], softmax), _operator(0, [4, 2], [5], plain)]
    tensors = [_tensor(name, size, _FLOAT32, 0, None) for name, size in sizes.items()]
    codes = [_code("BATCH_MATMUL", 1), _code("SOFTMAX", 1)]
    return shape.model(_save(shape.name, codes, tensors, [_schema.BufferT()], operators, [0, 1, 2], [5], folder))


def _tensor(name: str, shape: Sequence[int], kind: int, buffer: int, scale: float | None) -> Any:
    tensor = _schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name.encode(), list(shape), kind, buffer
    if scale is not None:
        tensor.quantization = _schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [0]
    return tensor


def _buffer(array: Any) -> Any:
    buffer = _schema.BufferT()
    buffer.data = np.frombuffer(array.tobytes(), np.uint8)
    return buffer


def _code(kind: str, version: int) -> Any:
    code = _schema.OperatorCodeT()
    code.builtinCode = getattr(_schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
    return code


def _operator(code: int, inputs: Sequence[int], outputs: Sequence[int], options: Any) -> Any:
    operator = _schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs, operator.builtinOptions = code, inputs, outputs, options
    operator.builtinOptionsType = getattr(_schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
    return operator


def _save(
    name: str,
    codes: Sequence[Any],
    tensors: Sequence[Any],
    buffers: Sequence[Any],
    operators: Sequence[Any],
    inputs: Sequence[int] | dict[int, None],
    outputs: Sequence[int],
    folder: Path,
) -> Path:
    """Write the model, with its name in a zip behind it, as TFLite carries files."""
    graph, model = _schema.SubGraphT(), _schema.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = list(tensors), list(operators), list(inputs), list(outputs)
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, list(codes), [graph], list(buffers)
    builder = import_module("flatbuffers").Builder(1024)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    file = operator_file(name, ".tflite", folder)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr(zipfile.ZipInfo(OPERATOR_MARK, _ZIP_DATE), name)
    file.write_bytes(bytes(builder.Output()) + archive.getvalue())
    return file
