"""The formats that a model can be converted to.

Each has its source format, and the function that makes it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.runtimes import Array

# A source file is of one of the formats, or a PyTorch program.
TORCH = "torch"
# How a file was made, for its card.
ConversionFacts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class MakerInputs:
    """The inputs of a maker besides the file: calibration inputs, and the input's shape.

    `calibration` returns the arrays: float32, prepared and laid out for the base file.
    """

    calibration: Callable[[], Iterable[Array]] = tuple
    shape: Callable[[], tuple[int, ...]] = tuple


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """One format of a model file.

    `base` is its source format, `runtime` runs it, `program` is a required compiler.

    `maker` names the function that writes it: (base file, target file, MakerInputs) ->
    ConversionFacts. It uses `packages`.
    """

    name: str
    base: str
    precision: str
    ending: str
    runtime: str
    maker: str
    packages: tuple[str, ...] = ()
    is_calibrated: bool = False
    program: str | None = None


_TORCH_PROGRAM = "edgemeter.models.convert.torch_program"
_ONNX = "edgemeter.models.convert.onnx_precisions"
_LITERT = "edgemeter.models.convert.litert_precisions"
_COMPILERS = "edgemeter.models.convert.compilers"
_BY_ONNX = ("onnx", "onnxruntime")
_BY_LITERT = ("ai-edge-quantizer", "ai-edge-litert")

_TABLE = (
    ModelFormat(
        "onnx-fp32", TORCH, "fp32", "_fp32.onnx", "onnx", f"{_TORCH_PROGRAM}:make_onnx",
        ("torch", "onnxscript", "onnx"),
    ),
    ModelFormat(
        "onnx-fp16", "onnx-fp32", "fp16", "_fp16.onnx", "onnx", f"{_ONNX}:make_fp16", _BY_ONNX,
    ),
    ModelFormat(
        "onnx-int8", "onnx-fp32", "int8", "_int8.onnx", "onnx", f"{_ONNX}:make_int8", _BY_ONNX,
        is_calibrated=True,
    ),
    ModelFormat(
        "onnx-int8-symmetric", "onnx-fp32", "int8", "_int8-symmetric.onnx", "onnx",
        f"{_ONNX}:make_int8_symmetric", _BY_ONNX, is_calibrated=True,
    ),
    ModelFormat(
        "litert-fp32", TORCH, "fp32", "_fp32.tflite", "litert", f"{_TORCH_PROGRAM}:make_litert",
        ("torch", "litert-torch"),
    ),
    ModelFormat(
        "litert-fp16", "litert-fp32", "fp16", "_fp16.tflite", "litert", f"{_LITERT}:make_fp16",
        _BY_LITERT,
    ),
    ModelFormat(
        "litert-int8", "litert-fp32", "int8", "_int8.tflite", "litert", f"{_LITERT}:make_int8",
        _BY_LITERT, is_calibrated=True,
    ),
    ModelFormat(
        "edgetpu", "litert-int8", "int8", "_int8_edgetpu.tflite", "edgetpu",
        f"{_COMPILERS}:make_edgetpu", program="edgetpu_compiler",
    ),
    ModelFormat(
        "tensorrt-fp16", "onnx-fp32", "fp16", "_fp16.engine", "tensorrt",
        f"{_COMPILERS}:make_engine_fp16", program="trtexec",
    ),
    ModelFormat(
        "tensorrt-int8", "onnx-int8-symmetric", "int8", "_int8.engine", "tensorrt",
        f"{_COMPILERS}:make_engine_int8", program="trtexec",
    ),
)  # fmt: skip
FORMATS = {entry.name: entry for entry in _TABLE}


def find_format(name: str) -> ModelFormat:
    """Return the format of this name; raises ConfigError if there is none."""
    if name in FORMATS:
        return FORMATS[name]
    raise ConfigError(f"no format is called {name!r}: {near(name, FORMATS)}")


def steps_to(start: str, goal: str) -> list[ModelFormat] | None:
    """Return the formats to make one after the other from `start` to `goal`.

    `start` is a format or `torch`; the result is None if that is impossible.
    """
    steps: list[ModelFormat] = []
    at = goal
    while at != start:
        if at not in FORMATS:
            return None
        steps.insert(0, FORMATS[at])
        at = FORMATS[at].base
    return steps or None


def unweighted_tail(
    operations: Sequence[tuple[bool, Iterable[Hashable], Iterable[Hashable]]],
) -> list[int]:
    """Return the indices of the operations after the last one with weights.

    They cost next to nothing, and their values are the outputs.

    Args:
        operations: in execution order, whether each has weights, its inputs and its outputs.
    """
    awaited: set[Hashable] = set()
    tail = []
    # Backwards, every consumer comes before its inputs.
    for index, (has_weights, inputs, outputs) in reversed(list(enumerate(operations))):
        if has_weights or awaited.intersection(outputs):
            awaited.update(inputs)
        else:
            tail.append(index)
    return tail[::-1]
