"""Reads a .tflite file without running it.

It returns the file's custom operators, the names and precision of its tensors, and its metadata.
Each offset is checked, so that a truncated file gives an error in one line. The library's C++ code
does not check them.
Source: tensorflow/lite/schema/schema.fbs and metadata_schema.fbs (numbers of the fields),
flatbuffers.dev/internals (layout).
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.runtimes.adapter import zipped_texts

_IDENTIFIER = b"TFL3"
_FLOAT16, _UINT8, _INT16, _INT8 = 1, 3, 7, 9
_NORMALISATION = 1


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """Facts from a .tflite file.

    `inputs` and `outputs` are names in its signature by index of the tensor. `custom_uses` counts
    each custom operator in the graphs, `builtin_uses` all others. `precision` is as in `Loaded`.
    """

    custom_uses: Mapping[str, int]
    builtin_uses: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]
    metadata: Mapping[str, str]
    precision: str


class GarbledError(ValueError):
    """An offset points outside the file."""


@dataclass(frozen=True, slots=True)
class FlatBufferTable:
    """One table of a FlatBuffer; fields have their numbers in the schema."""

    data: bytes | mmap
    at: int

    def integer(self, field: int, code: str = "<i") -> int:
        """Return a number, 0 by default; `code` is its struct format."""
        at = self._field(field)
        return 0 if at is None else self._number(at, code)

    def table(self, field: int) -> "FlatBufferTable | None":
        """Return the table of a field, None if absent."""
        at = self._field(field)
        return None if at is None else FlatBufferTable(self.data, at + self._number(at, "<I"))

    def span(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Return beginning and end of a vector or string; (0, 0) if absent."""
        at = self._field(field)
        if at is None:
            return 0, 0
        start = at + self._number(at, "<I")
        end = start + 4 + self._number(start, "<I") * item_bytes
        if end > len(self.data):
            raise GarbledError(f"bytes to {end} of a file of {len(self.data)}")
        return start + 4, end

    def tables(self, field: int) -> Iterator["FlatBufferTable"]:
        for at in range(*self.span(field, 4), 4):
            yield FlatBufferTable(self.data, at + self._number(at, "<I"))

    def floats(self, field: int) -> str:
        """Return a vector of 32-bit floats in words."""
        return ", ".join(
            f"{value:g}" for (value,) in struct.iter_unpack("<f", self.content(field, 4))
        )

    def content(self, field: int, item_bytes: int = 1) -> bytes:
        start, end = self.span(field, item_bytes)
        return self.data[start:end]

    def text(self, field: int) -> str:
        """Return a string; invalid UTF-8 is replaced."""
        return self.content(field).decode("utf-8", "replace")

    def _field(self, field: int) -> int | None:
        vtable = self.at - self._number(self.at, "<i")
        slot = 4 + 2 * field
        offset = self._number(vtable + slot, "<H") if slot + 2 <= self._number(vtable, "<H") else 0
        return self.at + offset if offset else None

    def _number(self, at: int, code: str) -> int:
        if at < 0 or at + struct.calcsize(code) > len(self.data):
            raise GarbledError(f"byte {at} of a file of {len(self.data)}")
        value: int = struct.unpack_from(code, self.data, at)[0]
        return value


def root_table(data: bytes | mmap) -> FlatBufferTable:
    # The method is of this class.
    return FlatBufferTable(data, FlatBufferTable(data, 0)._number(0, "<I"))  # noqa: SLF001


def read_tflite(model: Path) -> TfliteFile:
    """Return the facts from a file, without reading weights.

    Raises:
        ConfigError: it is not a .tflite file, or is truncated or garbled.
    """
    if model_file.head(model)[4:8] != _IDENTIFIER:
        raise ConfigError(
            f"{str(model)!r} is not a LiteRT (TFLite) model, it lacks the identifier TFL3: give "
            "a .tflite file"
        )
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            top = root_table(data)
            inputs, outputs = _signature(top)
            names = [code.text(1) for code in top.tables(1)]
            codes = (
                operator.integer(0, "<I")
                for subgraph in top.tables(2)
                for operator in subgraph.tables(3)
            )
            # All builtin operators are counted under an empty name.
            uses = Counter(names[code] if code < len(names) else "" for code in codes)
            builtin_uses = uses.pop("", 0)
            return TfliteFile(
                uses,
                builtin_uses,
                inputs,
                outputs,
                {**_own_metadata(top), **zipped_texts(model)},
                _precision(top),
            )
    except GarbledError as error:
        raise ConfigError(
            f"the model {str(model)!r} is truncated or garbled (it needs {error}): fetch it again"
        ) from error


def _precision(top: FlatBufferTable) -> str:
    """Return the precision of the tensors that change between queries, or else of the weights."""
    is_constant = [
        len(range(*buffer.span(0, 1))) > 0 or buffer.integer(1, "<Q") > 1
        for buffer in top.tables(4)
    ]
    moving, constant = set[int](), set[int]()
    for tensor in (tensor for subgraph in top.tables(2) for tensor in subgraph.tables(0)):
        kind, buffer, scale = tensor.integer(1, "<b"), tensor.integer(2, "<I"), tensor.table(4)
        # Integers without a scale are pictures, shapes and indices.
        if kind == _FLOAT16 or (
            kind in (_UINT8, _INT16, _INT8) and scale is not None and scale.content(2, 4)
        ):
            (constant if buffer < len(is_constant) and is_constant[buffer] else moving).add(kind)
    if moving & {_UINT8, _INT8}:
        return "int8"
    if _INT16 in moving:
        return "int16x8"
    if constant & {_UINT8, _INT8}:
        return "int8-dynamic"
    return "fp16" if _FLOAT16 in moving | constant else "fp32"


def _signature(top: FlatBufferTable) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the names of inputs and outputs, by index of the tensor.

    They are those in the main graph's first signature.
    """
    signature = next(
        (signature for signature in top.tables(7) if signature.integer(4, "<I") == 0), None
    )
    if signature is None:
        return {}, {}
    inputs, outputs = (
        {entry.integer(1, "<I"): entry.text(0) for entry in signature.tables(field)}
        for field in (0, 1)
    )
    return inputs, outputs


def _own_metadata(top: FlatBufferTable) -> dict[str, str]:
    """Return the contents of the buffer TFLITE_METADATA.

    They are the author, the names of tensors, and the normalisation of the input.
    """
    buffers = list(top.tables(4))
    numbers = [
        entry.integer(1, "<I") for entry in top.tables(6) if entry.text(0) == "TFLITE_METADATA"
    ]
    try:
        return _described(root_table(buffers[numbers[0]].content(0))) if numbers else {}
    except (GarbledError, IndexError):
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
                words["input_mean"], words["input_sd"] = options.floats(0), options.floats(1)
    return {name: value for name, value in words.items() if value}
