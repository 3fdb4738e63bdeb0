"""Reads a .tflite file without running it: is it whole, what custom operators it has, what its tensors are called, what it says of itself.

tflite-runtime 2.14 ends the process on most truncated files (so does any LiteRT without a verifier), therefore every table is walked first.
Source: https://github.com/google-ai-edge/LiteRT/blob/main/tflite/converter/schema/schema.fbs, and for what a file says of itself
https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import flatbuffer, model_file
from edgemeter.agent.runtimes.flatbuffer import GarbledError, Table

_IDENTIFIER = b"TFL3"
# Width in bytes of the items of each vector that C++ reads without looking: (field, item size) per table.
_SUBGRAPH_VECTORS = ((1, 4), (2, 4), (4, 1))
_TENSOR_VECTORS = ((0, 4), (3, 1), (7, 4))
_QUANTISATION_VECTORS = ((0, 4), (1, 4), (2, 4), (3, 8))
_OPERATOR_VECTORS = ((1, 4), (2, 4), (5, 1), (7, 1), (8, 4))
_NORMALISATION = 1
_FLOAT16, _UINT8, _INT16, _INT8 = 1, 3, 7, 9


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """What a .tflite file holds. `inputs` and `outputs` are the names that its signature gives, by index of the tensor.

    `custom_uses` tells how often each custom operator stands in the graphs, `builtin_uses` how often any other does. `precision` is that of
    `Loaded`.
    """

    custom_operators: tuple[str, ...]
    custom_uses: Mapping[str, int]
    builtin_uses: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]
    metadata: Mapping[str, str]
    precision: str


def read(model: Path) -> TfliteFile:
    """Return what the file holds; its weights are not read.

    Raises:
        ConfigError: it is no .tflite file, is truncated or garbled.
    """
    if model_file.head(model)[4:8] != _IDENTIFIER:
        message = f"{str(model)!r} is not a LiteRT (TFLite) model, it lacks the mark TFL3: give a .tflite file"
        raise ConfigError(message)
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            top = flatbuffer.root(data)
            _check(top)
            inputs, outputs = _signature(top)
            metadata = {**_own_words(data, top), **model_file.texts(model)}
            uses = _uses(top)
            builtin_uses = uses.pop("", 0)
            return TfliteFile(_custom_operators(top), uses, builtin_uses, inputs, outputs, metadata, _precision(top))
    except GarbledError as error:
        message = f"the model {str(model)!r} is truncated or garbled (it needs {error}): fetch it again"
        raise ConfigError(message) from error


def _check(top: Table) -> None:
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
        message = "a graph, and there is none"
        raise GarbledError(message)
    for subgraph in subgraphs:
        _check_subgraph(subgraph)


def _check_subgraph(subgraph: Table) -> None:
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


def _check_vectors(table: Table, vectors: Sequence[tuple[int, int]]) -> None:
    for field, item_bytes in vectors:
        table.vector(field, item_bytes)


def _custom_operators(top: Table) -> tuple[str, ...]:
    return tuple(name for name in (code.text(1) for code in top.tables(1)) if name)


def _uses(top: Table) -> dict[str, int]:
    """Return how often each operator stands in the graphs: by its custom name, all builtin ones together under no name."""
    names = [code.text(1) for code in top.tables(1)]
    chosen = (operator.integer(0, "<I") for subgraph in top.tables(2) for operator in subgraph.tables(3))
    return dict(Counter(names[place] if place < len(names) else "" for place in chosen))


def _precision(top: Table) -> str:
    """Return what the tensors show: those that change from query to query, else the constant ones, the weights."""
    is_constant = [buffer.vector(0, 1)[1] > 0 or buffer.integer(1, "<Q") > 1 for buffer in top.tables(4)]
    moving, constant = set[int](), set[int]()
    for tensor in (tensor for subgraph in top.tables(2) for tensor in subgraph.tables(0)):
        kind, place, scale = tensor.integer(1, "<b"), tensor.integer(2, "<I"), tensor.table(4)
        # Integers without a scale are pictures, shapes and indices.
        if kind == _FLOAT16 or (kind in (_UINT8, _INT16, _INT8) and scale is not None and scale.vector(2, 4)[1] > 0):
            (constant if place < len(is_constant) and is_constant[place] else moving).add(kind)
    if moving & {_UINT8, _INT8}:
        return "int8"
    if _INT16 in moving:
        return "int16x8"
    if constant & {_UINT8, _INT8}:
        return "int8-dynamic"
    return "fp16" if _FLOAT16 in moving | constant else "fp32"


def _signature(top: Table) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Return the names that the main graph's first signature gives to inputs and outputs, by index of the tensor."""
    for signature in top.tables(7):
        if signature.integer(4, "<I") == 0:
            return _tensor_map(signature, 0), _tensor_map(signature, 1)
    return {}, {}


def _tensor_map(signature: Table, field: int) -> Mapping[int, str]:
    return {entry.integer(1, "<I"): entry.text(0) for entry in signature.tables(field)}


def _own_words(data: bytes | mmap, top: Table) -> dict[str, str]:
    """Return what the buffer TFLITE_METADATA says: who made the model, what its tensors are, how its input was normalised."""
    buffers = list(top.tables(4))
    for entry in top.tables(6):
        index = entry.integer(1, "<I")
        if entry.text(0) == "TFLITE_METADATA" and index < len(buffers):
            start, size = buffers[index].vector(0, 1)
            try:
                return _described(flatbuffer.root(bytes(data[start : start + size])))
            except GarbledError:
                return {}
    return {}


def _described(model: Table) -> dict[str, str]:
    words = {
        "name": model.text(0),
        "description": model.text(1),
        "version": model.text(2),
        "author": model.text(4),
        "licence": model.text(5),
    }
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
