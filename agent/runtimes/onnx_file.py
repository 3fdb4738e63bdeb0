"""Reads from an .onnx file what ONNX Runtime does not show: scale and zero point of integer inputs and outputs, and the precision inside.

An input that goes into DequantizeLinear and an output that comes from QuantizeLinear carry the scale and zero point of that node, when
these are single constants inside the file. Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (field numbers) and
https://protobuf.dev/programming-guides/encoding (wire format).
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TypeVar

from edgemeter.agent.runtimes import TensorInfo

Result = TypeVar("Result")
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_NODE_INPUT, _NODE_OUTPUT, _OPERATOR = 1, 2, 4
_DIMENSION, _TYPE, _FLOATS, _INTEGERS, _NAME, _RAW = 1, 2, 4, 5, 8, 9
# TensorProto.DataType -> struct format of one element in raw data.
_FORMATS = {1: "<f", 2: "<B", 3: "<b", 4: "<H", 5: "<h", 6: "<i", 7: "<q"}
_QUANTISED = ("int8", "uint8", "int16", "uint16")
_FLOAT, _FLOAT16, _DOUBLE, _BFLOAT16 = 1, 10, 11, 16
# What computes on integers, or makes them of each query's values; QuantizeLinear does so with scales that were measured before.
_QUANTISES = {"QuantizeLinear", "QLinearConv", "QLinearMatMul"}
_DYNAMIC = {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "DequantizeLinear"}
_VARINT, _BYTES, _FIXED_BYTES = 0, 2, {1: 8, 5: 4}


@dataclass(frozen=True, slots=True)
class _ByteSpan:
    """A message, string or packed array inside the file."""

    start: int
    end: int


def quantisations(model: Path) -> Mapping[str, tuple[float, int]]:
    """Return scale and zero point of tensors that DequantizeLinear reads and QuantizeLinear writes, by name; none where it is not plain.

    real = scale x (q - zero_point). The file has been loaded before, so that what cannot be followed here is only not found.
    """
    return _of_graph(model, _quantisations_of) or {}


def precision(model: Path) -> str | None:
    """Return what operators and weights show, as `Loaded` has it; None where the file cannot be followed."""
    return _of_graph(model, _precision_of)


def _of_graph(model: Path, read: "Callable[[mmap, _ByteSpan], Result]") -> "Result | None":
    """Return what `read` finds in the file's last graph; None where the file cannot be followed."""
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            graphs = [value for field, value in _fields(data, _ByteSpan(0, len(data))) if field == _GRAPH and isinstance(value, _ByteSpan)]
            return read(data, graphs[-1]) if graphs else None
    except (OSError, ValueError, IndexError, struct.error):
        return None


def _precision_of(data: mmap, graph: _ByteSpan) -> str:
    operators, kinds = set[str](), set[int]()
    for field, value in _fields(data, graph):
        if field in {_NODE, _INITIALIZER} and isinstance(value, _ByteSpan):
            for inner, content in _fields(data, value):
                if field == _NODE and inner == _OPERATOR and isinstance(content, _ByteSpan):
                    operators.add(data[content.start : content.end].decode())
                elif field == _INITIALIZER and inner == _TYPE and isinstance(content, int):
                    kinds.add(content)
    if operators & _QUANTISES:
        return "int8"
    if operators & _DYNAMIC:
        return "int8-dynamic"
    halves = {_FLOAT16: "fp16", _BFLOAT16: "bf16"}
    return next((name for kind, name in halves.items() if kind in kinds), "fp64" if kinds & {_FLOAT, _DOUBLE} == {_DOUBLE} else "fp32")


def with_quantisation(declared: Sequence[TensorInfo], model: Path) -> tuple[TensorInfo, ...]:
    """Return the tensors with the scale and zero point of those that are quantised."""
    if not any(info.dtype in _QUANTISED for info in declared):
        return tuple(declared)
    by_name = quantisations(model)
    return tuple(
        replace(info, scale=by_name[info.name][0], zero_point=by_name[info.name][1])
        if info.dtype in _QUANTISED and info.name in by_name
        else info
        for info in declared
    )


def _quantisations_of(data: mmap, graph: _ByteSpan) -> Mapping[str, tuple[float, int]]:
    constants: dict[str, float] = {}
    ends: dict[str, list[str]] = {}
    for field, value in _fields(data, graph):
        if field == _INITIALIZER and isinstance(value, _ByteSpan):
            constants.update(_constant(data, value))
        elif field == _NODE and isinstance(value, _ByteSpan):
            ends.update(_quantised_end(data, value))
    return {
        tensor: (constants[scale], int(constants[zero_point[0]]) if zero_point else 0)
        for tensor, (scale, *zero_point) in ends.items()
        if scale in constants and all(name in constants for name in zero_point)
    }


def _quantised_end(data: mmap, node: _ByteSpan) -> Mapping[str, list[str]]:
    """Return the integer tensor of a quantising node with the names of its scale and zero point."""
    inputs, outputs, operator = [], [], ""
    for field, value in _fields(data, node):
        if isinstance(value, _ByteSpan) and field in {_NODE_INPUT, _NODE_OUTPUT, _OPERATOR}:
            text = data[value.start : value.end].decode()
            inputs += [text] if field == _NODE_INPUT else []
            outputs += [text] if field == _NODE_OUTPUT else []
            operator = text if field == _OPERATOR else operator
    parameters = [name for name in inputs[1:3] if name]
    if operator == "DequantizeLinear" and parameters:
        return {inputs[0]: parameters}
    return {outputs[0]: parameters} if operator == "QuantizeLinear" and parameters and outputs else {}


def _constant(data: mmap, tensor: _ByteSpan) -> Mapping[str, float]:
    fields = list(_fields(data, tensor))
    if any(field == _DIMENSION and value not in {0, 1} for field, value in fields):
        return {}
    by_field = dict(fields)
    name, kind = by_field.get(_NAME), by_field.get(_TYPE)
    if not isinstance(name, _ByteSpan) or not isinstance(kind, int) or kind not in _FORMATS:
        return {}
    value = _single(data, by_field, _FORMATS[kind])
    return {} if value is None else {data[name.start : name.end].decode(): value}


def _single(data: mmap, fields: Mapping[int, "int | _ByteSpan"], form: str) -> float | None:
    raw, floats, integers = fields.get(_RAW), fields.get(_FLOATS), fields.get(_INTEGERS)
    if isinstance(raw, _ByteSpan) and raw.end - raw.start == struct.calcsize(form):
        return float(struct.unpack_from(form, data, raw.start)[0])
    if isinstance(floats, _ByteSpan) and floats.end - floats.start == 4:
        return float(struct.unpack_from("<f", data, floats.start)[0])
    if isinstance(integers, _ByteSpan):
        integers = _varint(data, integers.start)[0]
    # A negative number takes all 64 bits of its varint.
    return None if integers is None else float(integers - (1 << 64) if integers >> 63 else integers)


def _fields(data: mmap, message: _ByteSpan) -> Iterator[tuple[int, "int | _ByteSpan"]]:
    """Yield number and value of each field of a message; bytes, strings and messages as where they lie."""
    at = message.start
    while at < message.end:
        key, at = _varint(data, at)
        kind, value = key & 7, 0
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = _varint(data, at)
            yield key >> 3, _ByteSpan(at, at + size)
            at += size
        elif kind in _FIXED_BYTES:
            yield key >> 3, _ByteSpan(at, at + _FIXED_BYTES[kind])
            at += _FIXED_BYTES[kind]
        else:
            raise ValueError(f"wire type {kind} at byte {at}")


def _varint(data: mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(f"a number without end at byte {at}")
