"""Reads a .pte file (ExecuTorch program) without running it: whether it is complete, its methods, and what of each was delegated to what.

A program is a list of instructions: calls of a kernel (one operator), and calls of a delegate, which runs a part of the graph that
was compiled for a backend when the model was exported. XNNPACK's part is a FlatBuffer of its own, so that its operators are counted too.
Source: schema/program.fbs, schema/extended_header.cpp and backends/xnnpack/serialization/schema.fbs of ExecuTorch 1.5 (ET12, XN01).
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes.tflite_file import FlatBufferTable, GarbledError, root_table

_IDENTIFIER = b"ET"
# Extended header, behind the identifier: magic, its length, size of the program, where the segments begin, their size (since 0.7).
_HEADER = struct.Struct("<4sIQQ")
_HEADER_AT = 8
_SEGMENTS_SIZE = struct.Struct("<Q")
_KERNEL_CALL, _DELEGATE_CALL = 1, 2
_IN_SEGMENT = 1
_XNNPACK = "XnnpackBackend"
_PORTABLE = "portable"
# Four zeros, magic, length of the header, where the graph begins, its size. Source: XNNHeader in xnnpack_graph_serialize.py.
_XNNPACK_HEADER = struct.Struct("<4x4sHII")
_HALF, _FLOAT = 5, 6
_TENSOR = 5
# Source: XNNDatatype. Dynamic: activations are quantised query by query.
_XNN_FP16, _XNN_INT8, _XNN_DYNAMIC = {2}, {3, 4}, {9, 11}
_XNN_QUANTISED = 2
# Start and size of every delegate's data: inside the program's tables, and in segments behind them.
_Parts = tuple[list[tuple[int, int]], list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class PteMethod:
    """One method of a program.

    `kernels` is how often each operator is called one by one, `delegates` the backends in the order of their calls, `delegated` how many
    operators run inside them, None where a backend's format does not show it. `precision` is that of `Loaded`, None if unknown.
    """

    name: str
    kernels: Mapping[str, int]
    delegates: tuple[str, ...]
    delegated: int | None
    precision: str | None

    @property
    def backend(self) -> str:
        """The backends of the program, as records name them: `xnnpack`, `portable`, or both."""
        lowered = dict.fromkeys(short_name(delegate) for delegate in self.delegates)
        return ",".join([*lowered, *([_PORTABLE] if self.kernels else [])]) or _PORTABLE

    def facts(self) -> dict[str, str]:
        """Return how many operators run on XNNPACK, and which are left to portable kernels."""
        portable = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kernels.items()))
        on_xnnpack = {"operators_on_xnnpack": str(self.delegated)} if self.delegated is not None else {}
        return {**on_xnnpack, **({"left_to_portable": portable} if portable else {})}

    @property
    def delegated_ratio(self) -> float | None:
        """The share of operators that run in a delegate, 0..1."""
        total = sum(self.kernels.values()) + (self.delegated or 0)
        return None if self.delegated is None or not total else self.delegated / total


def short_name(delegate: str) -> str:
    """Return the name of a delegate's backend as users write it: `xnnpack`."""
    return delegate.removesuffix("Backend").lower()


def read_pte(model: Path) -> Mapping[str, PteMethod]:
    """Return the methods of a program by name; weights are not read.

    Raises:
        ConfigError: it is not a .pte file, is truncated or garbled.
    """
    start = model_file.head(model)
    if start[4:6] != _IDENTIFIER or not start[6:8].isdigit():
        raise ConfigError(f"{str(model)!r} is not an ExecuTorch program, it lacks the identifier ET12: give a .pte file")
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            segments_at = _check_size(data)
            top = root_table(data)
            segments = [(segments_at + segment.integer(0, "<Q"), segment.integer(1, "<Q")) for segment in top.tables(4)]
            for at, size in segments:
                top.span(at, size)
            parts = ([part.vector(0, 1) for part in top.tables(3)], segments)
            return {method.name: method for method in (_method(plan, parts) for plan in top.tables(1))}
    except GarbledError as error:
        raise ConfigError(f"the model {str(model)!r} is truncated or garbled (it needs {error}): fetch it again") from error


def _check_size(data: mmap) -> int:
    """Return where the segments begin, 0 without any; raises GarbledError where the file is shorter than its header states."""
    if len(data) < _HEADER_AT + _HEADER.size:
        raise GarbledError(f"{_HEADER_AT + _HEADER.size} bytes, and there are {len(data)}")
    magic, length, program, segments_at = _HEADER.unpack_from(data, _HEADER_AT)
    if magic != b"eh00":
        return 0
    size_at = _HEADER_AT + _HEADER.size
    has_size = length >= _HEADER.size + _SEGMENTS_SIZE.size and len(data) >= size_at + _SEGMENTS_SIZE.size
    size = _SEGMENTS_SIZE.unpack_from(data, size_at)[0] if has_size else 0
    needed_bytes = max(program, segments_at + size)
    if len(data) < needed_bytes:
        raise GarbledError(f"{needed_bytes} bytes, and there are {len(data)}")
    return int(segments_at)


def _method(plan: FlatBufferTable, parts: _Parts) -> PteMethod:
    operators = [operator.text(0).removeprefix("aten::") for operator in plan.tables(6)]
    delegates = list(plan.tables(7))
    kernels: Counter[str] = Counter()
    called: list[FlatBufferTable] = []
    for instruction in (instruction for chain in plan.tables(5) for instruction in chain.tables(2)):
        kind, arguments = instruction.integer(0, "<B"), instruction.table(1)
        index = -1 if arguments is None else arguments.integer(0)
        if kind == _KERNEL_CALL:
            _check_place(index, operators, "operator")
            kernels[operators[index]] += 1
        elif kind == _DELEGATE_CALL:
            _check_place(index, delegates, "delegate")
            called.append(delegates[index])
    ids = tuple(delegate.text(0) for delegate in called)
    graphs = [_xnnpack_graph(delegate, parts) for delegate in called if delegate.text(0) == _XNNPACK]
    is_counted = all(delegate_id == _XNNPACK for delegate_id in ids)
    return PteMethod(
        name=plan.text(0),
        kernels=dict(kernels),
        delegates=ids,
        delegated=sum(graph.vector(1, 4)[1] for graph in graphs) if is_counted else None,
        precision=_precision(plan, kernels, graphs) if is_counted else None,
    )


def _check_place(index: int, items: Sequence[object], noun: str) -> None:
    if not 0 <= index < len(items):
        raise GarbledError(f"{noun} {index} of {len(items)}")


def _xnnpack_graph(delegate: FlatBufferTable, parts: _Parts) -> FlatBufferTable:
    data = delegate.data
    reference = delegate.table(1)
    spans, index = (parts[0], 0) if reference is None else (parts[reference.integer(0, "<b") == _IN_SEGMENT], reference.integer(1, "<I"))
    _check_place(index, spans, "part")
    at, size = spans[index]
    delegate.span(at, max(size, _XNNPACK_HEADER.size))
    magic, _, offset, length = _XNNPACK_HEADER.unpack_from(data, at)
    if magic != b"XH00":
        offset, length = 0, size
    delegate.span(at + offset, length)
    return root_table(bytes(data[at + offset : at + offset + length]))


def _precision(plan: FlatBufferTable, kernels: Mapping[str, int], graphs: Sequence[FlatBufferTable]) -> str | None:
    """Return what the tensors show; None where operators of the program's own compute with integers in a way that is not known here."""
    kinds = {kind for graph in graphs for kind in _xnnpack_kinds(graph)}
    # A program without delegates holds its quantised operators by name.
    if kinds & _XNN_INT8 or any("quantized_decomposed" in name for name in kernels):
        return "int8"
    if kinds & _XNN_DYNAMIC:
        return "int8-dynamic"
    values = ((value.table(1), value.integer(0, "<B")) for value in plan.tables(2))
    scalars = {tensor.integer(0, "<b") for tensor, kind in values if kind == _TENSOR and tensor is not None}
    if kinds & _XNN_FP16 or _HALF in scalars:
        return "fp16"
    return "fp32" if scalars & {_FLOAT} else None


def _xnnpack_kinds(graph: FlatBufferTable) -> Iterator[int]:
    for value in graph.tables(2):
        kind, tensor = value.integer(0, "<B"), value.table(1)
        if kind == _XNN_QUANTISED and tensor is not None:
            tensor = tensor.table(0)
        if tensor is not None:
            yield tensor.integer(0, "<h")
