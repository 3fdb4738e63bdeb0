"""Reads a .tflite file without running it: whether it is complete, its custom operators, its tensors' names, what it states about itself.

Every offset of the FlatBuffer is checked: a broken file ends as an error here, where C++ would end the process.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes.adapter import zipped_texts

_IDENTIFIER = b"TFL3"
# Width in bytes of the items of each vector that C++ reads without looking: (field, item size) per table.
_SUBGRAPH_VECTORS = ((1, 4), (2, 4), (4, 1))
_TENSOR_VECTORS = ((0, 4), (3, 1), (7, 4))
_QUANTISATION_VECTORS = ((0, 4), (1, 4), (2, 4), (3, 8))
_OPERATOR_VECTORS = ((1, 4), (2, 4), (5, 1), (7, 1), (8, 4))
_NORMALISATION = 1


class GarbledError(ValueError):
    """An offset leads outside the file, or to what cannot be there."""


@dataclass(frozen=True, slots=True)
class FlatBufferTable:
    """One table of a FlatBuffer; fields are called by their number in the schema."""

    data: bytes | mmap
    at: int

    def check(self) -> "FlatBufferTable":
        """Return the table itself when it and its vtable lie inside the file; raises GarbledError where they do not."""
        vtable, size = self._vtable()
        _span(self.data, vtable, size)
        _span(self.data, self.at, _read_number(self.data, "<H", vtable + 2))
        return self

    def span(self, at: int, size: int) -> None:
        """Return when the file holds these bytes; raises GarbledError when it does not."""
        _span(self.data, at, size)

    def integer(self, field: int, code: str = "<i", default: int = 0) -> int:
        """Return a number; `code` is its struct format."""
        at = self._field(field)
        return default if at is None else _read_number(self.data, code, at)

    def table(self, field: int) -> "FlatBufferTable | None":
        """Return the table that a field points to, None when absent."""
        at = self._field(field)
        return None if at is None else FlatBufferTable(self.data, self._target(at)).check()

    def vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Return start and length of a vector or string; (0, 0) when absent. Raises GarbledError where it lies outside the file."""
        at = self._field(field)
        if at is None:
            return 0, 0
        start = self._target(at)
        count = _read_number(self.data, "<I", start)
        _span(self.data, start + 4, count * item_bytes)
        return start + 4, count

    def tables(self, field: int) -> Iterator["FlatBufferTable"]:
        """Yield the tables of a vector of tables."""
        start, count = self.vector(field, 4)
        for at in range(start, start + 4 * count, 4):
            yield FlatBufferTable(self.data, self._target(at)).check()

    def integers(self, field: int) -> tuple[int, ...]:
        """Return a vector of 32-bit integers."""
        start, count = self.vector(field, 4)
        return struct.unpack_from(f"<{count}i", self.data, start)

    def floats(self, field: int) -> tuple[float, ...]:
        """Return a vector of 32-bit floats."""
        start, count = self.vector(field, 4)
        return struct.unpack_from(f"<{count}f", self.data, start)

    def text(self, field: int) -> str:
        """Return a string; what is not UTF-8 in it is replaced."""
        start, count = self.vector(field, 1)
        return self.data[start : start + count].decode("utf-8", "replace")

    def _vtable(self) -> tuple[int, int]:
        vtable = self.at - _read_number(self.data, "<i", self.at)
        return vtable, _read_number(self.data, "<H", vtable)

    def _field(self, field: int) -> int | None:
        vtable, size = self._vtable()
        slot = 4 + 2 * field
        offset = _read_number(self.data, "<H", vtable + slot) if slot + 2 <= size else 0
        return self.at + offset if offset else None

    def _target(self, at: int) -> int:
        return at + _read_number(self.data, "<I", at)


def root_table(data: bytes | mmap) -> FlatBufferTable:
    """Return the root table; raises GarbledError where there is none."""
    return FlatBufferTable(data, _read_number(data, "<I", 0)).check()


def _read_number(data: bytes | mmap, code: str, at: int) -> int:
    _span(data, at, struct.calcsize(code))
    value: int = struct.unpack_from(code, data, at)[0]
    return value


def _span(data: bytes | mmap, at: int, size: int) -> None:
    if at < 0 or at + size > len(data):
        raise GarbledError(f"bytes {at} to {at + size} of a file of {len(data)}")


_FLOAT16, _UINT8, _INT16, _INT8 = 1, 3, 7, 9


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """The content of a .tflite file. `inputs` and `outputs` are the names that its signature gives, by index of the tensor.

    `custom_uses` is how often each custom operator occurs in the graphs, `builtin_uses` how often any other does. `precision` is that of
    `Loaded`.
    """

    custom_operators: tuple[str, ...]
    custom_uses: Mapping[str, int]
    builtin_uses: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]
    metadata: Mapping[str, str]
    precision: str


def read_tflite(model: Path) -> TfliteFile:
    """Return what the file holds; its weights are not read. Raises ConfigError if it is not a .tflite file, is truncated or garbled."""
    if model_file.head(model)[4:8] != _IDENTIFIER:
        raise ConfigError(f"{str(model)!r} is not a LiteRT (TFLite) model, it lacks the identifier TFL3: give a .tflite file")
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            top = root_table(data)
            _check(top)
            inputs, outputs = _signature(top)
            metadata = {**_own_metadata(data, top), **zipped_texts(model)}
            uses = _uses(top)
            builtin_uses = uses.pop("", 0)
            custom_operators = tuple(name for name in (code.text(1) for code in top.tables(1)) if name)
            return TfliteFile(custom_operators, uses, builtin_uses, inputs, outputs, metadata, _precision(top))
    except GarbledError as error:
        raise ConfigError(f"the model {str(model)!r} is truncated or garbled (it needs {error}): fetch it again") from error


def _check(top: FlatBufferTable) -> None:
    """Walk all that an interpreter follows unseen; raises GarbledError where it leads outside. Indices it checks itself."""
    for code in top.tables(1):
        code.vector(1, 1)
    for buffer in top.tables(4):
        buffer.vector(0, 1)
        offset, size = buffer.integer(1, "<Q"), buffer.integer(2, "<Q")
        # Weights beyond 2 GB lie outside the tables; an offset of 0 or 1 means that they do not.
        if offset > 1:
            top.span(offset, size)
    subgraphs = list(top.tables(2))
    if not subgraphs:
        raise GarbledError("a graph, and there is none")
    for subgraph in subgraphs:
        _check_subgraph(subgraph)


def _check_subgraph(subgraph: FlatBufferTable) -> None:
    _check_vectors(subgraph, _SUBGRAPH_VECTORS)
    for tensor in subgraph.tables(0):
        _check_vectors(tensor, _TENSOR_VECTORS)
        tensor.table(6)
        quantisation = tensor.table(4)
        if quantisation is not None:
            _check_vectors(quantisation, _QUANTISATION_VECTORS)
    for operator in subgraph.tables(3):
        _check_vectors(operator, _OPERATOR_VECTORS)
        operator.table(4)
        operator.table(12)


def _check_vectors(table: FlatBufferTable, vectors: Sequence[tuple[int, int]]) -> None:
    for field, item_bytes in vectors:
        table.vector(field, item_bytes)


def _uses(top: FlatBufferTable) -> dict[str, int]:
    """Return how often each operator stands in the graphs: by its custom name, all builtin ones together under no name."""
    names = [code.text(1) for code in top.tables(1)]
    codes = (operator.integer(0, "<I") for subgraph in top.tables(2) for operator in subgraph.tables(3))
    return dict(Counter(names[code] if code < len(names) else "" for code in codes))


def _precision(top: FlatBufferTable) -> str:
    """Return what the tensors show: those that change from query to query, else the constant ones, the weights."""
    is_constant = [buffer.vector(0, 1)[1] > 0 or buffer.integer(1, "<Q") > 1 for buffer in top.tables(4)]
    moving, constant = set[int](), set[int]()
    for tensor in (tensor for subgraph in top.tables(2) for tensor in subgraph.tables(0)):
        kind, buffer, scale = tensor.integer(1, "<b"), tensor.integer(2, "<I"), tensor.table(4)
        # Integers without a scale are pictures, shapes and indices.
        if kind == _FLOAT16 or (kind in (_UINT8, _INT16, _INT8) and scale is not None and scale.vector(2, 4)[1] > 0):
            (constant if buffer < len(is_constant) and is_constant[buffer] else moving).add(kind)
    if moving & {_UINT8, _INT8}:
        return "int8"
    if _INT16 in moving:
        return "int16x8"
    if constant & {_UINT8, _INT8}:
        return "int8-dynamic"
    return "fp16" if _FLOAT16 in moving | constant else "fp32"


def _signature(top: FlatBufferTable) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the names that the main graph's first signature gives to inputs and outputs, by index of the tensor."""
    signature = next((signature for signature in top.tables(7) if signature.integer(4, "<I") == 0), None)
    if signature is None:
        return {}, {}
    inputs, outputs = ({entry.integer(1, "<I"): entry.text(0) for entry in signature.tables(field)} for field in (0, 1))
    return inputs, outputs


def _own_metadata(data: bytes | mmap, top: FlatBufferTable) -> dict[str, str]:
    """Return the contents of the buffer TFLITE_METADATA: who made the model, what its tensors are, how its input was normalised."""
    buffers = list(top.tables(4))
    for entry in top.tables(6):
        index = entry.integer(1, "<I")
        if entry.text(0) == "TFLITE_METADATA" and index < len(buffers):
            start, size = buffers[index].vector(0, 1)
            try:
                return _described(root_table(bytes(data[start : start + size])))
            except GarbledError:
                return {}
    return {}


def _described(model: FlatBufferTable) -> dict[str, str]:
    fields = {"name": 0, "description": 1, "version": 2, "author": 4, "licence": 5}
    words = {name: model.text(field) for name, field in fields.items()}
    for subgraph in list(model.tables(3))[:1]:
        inputs, outputs = list(subgraph.tables(2)), list(subgraph.tables(3))
        words["input_names"] = ", ".join(tensor.text(0) for tensor in inputs)
        words["output_names"] = ", ".join(tensor.text(0) for tensor in outputs)
        for unit in (unit for tensor in inputs for unit in tensor.tables(4)):
            options = unit.table(1)
            if unit.integer(0, "<B") == _NORMALISATION and options is not None:
                words["input_mean"] = ", ".join(f"{value:g}" for value in options.floats(0))
                words["input_sd"] = ", ".join(f"{value:g}" for value in options.floats(1))
    return {name: value for name, value in words.items() if value}
