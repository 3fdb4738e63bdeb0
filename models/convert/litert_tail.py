"""The last operations of a LiteRT file, where its outputs join values that int8 cannot hold side by side."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent.runtimes import Array
from edgemeter.models.convert.unlike import is_unlike

_LOOKED_AT = 8
_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"})


@dataclass(frozen=True, slots=True)
class Tail:
    """Operations that are to stay in float: their scopes, as ai-edge-quantizer names operations (by their outputs), and their kinds."""

    scopes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


def joining_unlike(model: Path, inputs: Sequence[Array]) -> Tail:
    """Return all operations after the last that carry weights, if one of them joins values of very unlike ranges; else none.

    They cost next to nothing, and their values are the model's outputs.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415 - extra `convert`

    interpreter = Interpreter(
        str(model),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    # The library has no public way to tell its operations.
    tail = _tail(interpreter._get_ops_details())  # noqa: SLF001
    joints = [operation for operation in tail if operation["op_name"] == "CONCATENATION"]
    largest = _largest(interpreter, joints, inputs[:_LOOKED_AT])
    if not any(is_unlike([largest[index] for index in joint["inputs"].tolist() if largest.get(index)]) for joint in joints):
        return Tail()
    names = {entry["index"]: str(entry["name"]) for entry in interpreter.get_tensor_details()}
    scopes = tuple("".join(f"{names[index]};" for index in operation["outputs"].tolist() if names.get(index)) for operation in tail)
    return Tail(scopes, tuple(str(operation["op_name"]) for operation in tail))


def _tail(operations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    awaited: set[int] = set()
    found = []
    # Operations stand in the order in which they run, so that backwards every consumer comes before what it consumes.
    for operation in reversed(operations):
        if operation["op_name"] in _WEIGHTED or awaited.intersection(operation["outputs"].tolist()):
            awaited.update(operation["inputs"].tolist())
        else:
            found.append(operation)
    return found[::-1]


def _largest(interpreter: Any, joints: Sequence[Mapping[str, Any]], inputs: Sequence[Array]) -> Mapping[int, float]:
    """Return the largest magnitude of every joined tensor, over the inputs."""
    largest: dict[int, float] = defaultdict(float)
    (taken, *_) = interpreter.get_input_details()
    for array in inputs if joints else ():
        interpreter.set_tensor(taken["index"], array)
        interpreter.invoke()
        for index in {index for joint in joints for index in joint["inputs"].tolist()}:
            value = interpreter.get_tensor(index)
            if value.dtype.kind == "f" and value.size:
                largest[index] = max(largest[index], float(np.abs(value).max()))
    return largest
