"""The formats that a model can be converted to, each with the one it is made from; and when values share an int8 scale."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import near

# A source file is of one of the formats, or a PyTorch program.
TORCH = "torch"


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """One format of a model file. `base` is the format that it is made from, `runtime` what runs it."""

    name: str
    base: str
    precision: str
    ending: str
    runtime: str
    is_calibrated: bool = False
    program: str | None = None


_TABLE = (
    ModelFormat("onnx-fp32", TORCH, "fp32", "_fp32.onnx", "onnx"),
    ModelFormat("onnx-fp16", "onnx-fp32", "fp16", "_fp16.onnx", "onnx"),
    ModelFormat("onnx-int8", "onnx-fp32", "int8", "_int8.onnx", "onnx", is_calibrated=True),
    ModelFormat("onnx-int8-symmetric", "onnx-fp32", "int8", "_int8-symmetric.onnx", "onnx", is_calibrated=True),
    ModelFormat("onnx-int8-dynamic", "onnx-fp32", "int8-dynamic", "_int8-dynamic.onnx", "onnx"),
    ModelFormat("litert-fp32", TORCH, "fp32", "_fp32.tflite", "litert"),
    ModelFormat("litert-fp16", "litert-fp32", "fp16", "_fp16.tflite", "litert"),
    ModelFormat("litert-int8", "litert-fp32", "int8", "_int8.tflite", "litert", is_calibrated=True),
    ModelFormat("litert-int8-dynamic", "litert-fp32", "int8-dynamic", "_int8-dynamic.tflite", "litert"),
    ModelFormat("edgetpu", "litert-int8", "int8", "_int8_edgetpu.tflite", "edgetpu", program="edgetpu_compiler"),
    ModelFormat("tensorrt-fp16", "onnx-fp32", "fp16", "_fp16.engine", "tensorrt", program="trtexec"),
    ModelFormat("tensorrt-int8", "onnx-int8-symmetric", "int8", "_int8.engine", "tensorrt", program="trtexec"),
)
FORMATS = {entry.name: entry for entry in _TABLE}


def find_format(name: str) -> ModelFormat:
    """Return the format of this name; raises ConfigError if there is none."""
    if name in FORMATS:
        return FORMATS[name]
    raise ConfigError(f"no format is called {name!r}: {near(name, (*FORMATS, 'all'))}")


def steps_to(start: str, goal: str) -> list[ModelFormat] | None:
    """Return the formats to make one after the other from `start` (a format or `torch`) to `goal`; None if that is impossible."""
    steps: list[ModelFormat] = []
    at = goal
    while at != start:
        if at not in FORMATS:
            return None
        steps.insert(0, FORMATS[at])
        at = FORMATS[at].base
    return steps or None


# How a file was made, as its card keeps it.
ConversionFacts = Mapping[str, str | int | float]
# Of 256 steps the smaller values keep fewer than 64.
UNLIKE_RANGES = 4.0


def unweighted_tail(operations: Sequence[tuple[bool, Iterable[Hashable], Iterable[Hashable]]]) -> list[int]:
    """Return the places of the operations after the last that carry weights: they cost next to nothing, and their values are the outputs.

    Args:
        operations: in execution order, whether each carries weights, its inputs and its outputs.
    """
    awaited: set[Hashable] = set()
    tail = []
    # Backwards, every consumer comes before what it consumes.
    for index, (has_weights, inputs, outputs) in reversed(list(enumerate(operations))):
        if has_weights or awaited.intersection(outputs):
            awaited.update(inputs)
        else:
            tail.append(index)
    return tail[::-1]


def is_unlike(largest: Sequence[float]) -> bool:
    """Return whether tensors with these largest magnitudes cannot be joined in int8."""
    return len(largest) > 1 and max(largest) > UNLIKE_RANGES * min(largest)
