"""Reads facts from an .onnx file that ONNX Runtime does not report.

They are scale and zero point of integer inputs and outputs, and the precision. An input of
DequantizeLinear, or an output of QuantizeLinear, has the scale and zero point of that node, if
these are single constants in the file. Weights are skipped: a protobuf library would copy them into
memory that a run measures.
Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (field numbers),
https://protobuf.dev/programming-guides/encoding.
"""

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgemeter.agent.runtimes import TensorInfo

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_NODE_INPUT, _NODE_OUTPUT, _OPERATOR = 1, 2, 4
_DIMENSION, _TYPE, _FLOATS, _INTEGERS, _NAME, _RAW = 1, 2, 4, 5, 8, 9
# TensorProto.DataType -> struct format of one element in raw data.
_FORMATS = {1: "<f", 2: "<B", 3: "<b", 4: "<H", 5: "<h", 6: "<i", 7: "<q"}
_QUANTISED = ("int8", "uint8", "int16", "uint16")
_FLOAT, _FLOAT16, _DOUBLE, _BFLOAT16 = 1, 10, 11, 16
# Operators that compute on integers with fixed scales, and those that quantise the values of each
# query.
_QUANTISES = {"QuantizeLinear", "QLinearConv", "QLinearMatMul"}
_DYNAMIC = {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "DequantizeLinear"}
_VARINT, _BYTES, _FIXED_BYTES = 0, 2, {1: 8, 5: 4}
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """Facts from a file; if it cannot be read, `precision` is None and no tensor is quantised.

    `quantised` has scale and zero point by the name of a tensor (real = scale x (q - zero_point));
    `precision` is as in `Loaded`.
    """

    quantised: Mapping[str, tuple[float, int]]
    precision: str | None = None

    def with_quantisation(self, declared: Sequence[TensorInfo]) -> tuple[TensorInfo, ...]:
        """Return the tensors, quantised ones with scale and zero point."""
        quantised = self.quantised
        return tuple(
            replace(info, scale=quantised[info.name][0], zero_point=quantised[info.name][1])
            if info.dtype in _QUANTISED and info.name in quantised
            else info
            for info in declared
        )


def read_onnx(model: Path) -> OnnxFile:
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            graph = OnnxMessage(data, OnnxMessage(data, (0, len(data))).spans[_GRAPH][-1])
            nodes = [OnnxMessage(data, span) for span in graph.spans[_NODE]]
            tensors = [OnnxMessage(data, span) for span in graph.spans[_INITIALIZER]]
            operators = {operator for node in nodes for operator in node.texts(_OPERATOR)}
            return OnnxFile(
                _quantised(nodes, tensors),
                _precision(
                    operators, {kind for tensor in tensors for kind in tensor.numbers[_TYPE]}
                ),
            )
    except (OSError, ValueError, IndexError, struct.error):
        return OnnxFile({})


class OnnxMessage:
    """One protobuf message: numbers by field, and spans in the file.

    The spans are those of strings, messages, packed arrays and fixed numbers.
    """

    def __init__(self, data: mmap, span: Span) -> None:
        self.data, self.numbers, self.spans = (
            data,
            defaultdict[int, list[int]](list),
            defaultdict[int, list[Span]](list),
        )
        at, end = span
        while at < end:
            key, at = _varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value, at = _varint(data, at)
                self.numbers[number].append(value)
                continue
            if kind != _BYTES and kind not in _FIXED_BYTES:
                raise ValueError(f"wire type {kind} at byte {at}")
            size, at = _varint(data, at) if kind == _BYTES else (_FIXED_BYTES[kind], at)
            self.spans[number].append((at, at + size))
            at += size

    def texts(self, field: int) -> list[str]:
        return [self.data[start:end].decode() for start, end in self.spans[field]]

    def constant(self) -> float | None:
        """Return the one element of a tensor.

        It is None if the tensor has another number of elements, or is in another file.
        """
        form = _FORMATS.get(self.numbers[_TYPE][-1] if self.numbers[_TYPE] else 0)
        if (
            form is None
            or self.spans[_DIMENSION]
            or not {0, 1}.issuperset(self.numbers[_DIMENSION])
        ):
            return None
        for field, code in ((_RAW, form), (_FLOATS, "<f")):
            if self.spans[field] and self.spans[field][-1][1] - self.spans[field][-1][
                0
            ] == struct.calcsize(code):
                return float(struct.unpack_from(code, self.data, self.spans[field][-1][0])[0])
        integers = [
            *self.numbers[_INTEGERS],
            *(_varint(self.data, start)[0] for start, _ in self.spans[_INTEGERS]),
        ]
        # A negative number has all 64 bits in its varint.
        return (
            float(integers[-1] - (1 << 64) if integers[-1] >> 63 else integers[-1])
            if integers
            else None
        )


def _quantised(
    nodes: Sequence[OnnxMessage], tensors: Sequence[OnnxMessage]
) -> Mapping[str, tuple[float, int]]:
    constants = {
        name: value
        for tensor in tensors
        for name in tensor.texts(_NAME)
        if (value := tensor.constant()) is not None
    }
    quantised = {}
    for node in nodes:
        inputs, operators = node.texts(_NODE_INPUT), node.texts(_OPERATOR)
        ends = {"DequantizeLinear": inputs, "QuantizeLinear": node.texts(_NODE_OUTPUT)}.get(
            operators[-1] if operators else "", []
        )
        parameters = [name for name in inputs[1:3] if name]
        if ends and parameters and all(name in constants for name in parameters):
            quantised[ends[0]] = (
                constants[parameters[0]],
                int(constants[parameters[1]]) if parameters[1:] else 0,
            )
    return quantised


def _precision(operators: set[str], kinds: set[int]) -> str:
    if operators & _QUANTISES:
        return "int8"
    if operators & _DYNAMIC:
        return "int8-dynamic"
    halves = {_FLOAT16: "fp16", _BFLOAT16: "bf16"}
    return next(
        (name for kind, name in halves.items() if kind in kinds),
        "fp64" if kinds & {_FLOAT, _DOUBLE} == {_DOUBLE} else "fp32",
    )


def _varint(data: mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(f"a number without end at byte {at}")
