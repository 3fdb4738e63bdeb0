"""What a model can become: the table of formats, each with the one it is made from."""

from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError

# What a source file is, beside the formats themselves: a PyTorch program.
TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Format:
    """One form of a model file. `base` is the form that it is made from, `runtime` what runs it."""

    name: str
    base: str
    precision: str
    ending: str
    runtime: str
    is_calibrated: bool = False
    program: str | None = None


_TABLE = (
    Format("torchscript", TORCH, "fp32", "_fp32.torchscript", "pytorch"),
    Format("exported", TORCH, "fp32", "_fp32.pt2", "pytorch"),
    Format("onnx-fp32", TORCH, "fp32", "_fp32.onnx", "onnx"),
    Format("onnx-fp16", "onnx-fp32", "fp16", "_fp16.onnx", "onnx"),
    Format("onnx-int8", "onnx-fp32", "int8", "_int8.onnx", "onnx", is_calibrated=True),
    Format("onnx-int8-symmetric", "onnx-fp32", "int8", "_int8-symmetric.onnx", "onnx", is_calibrated=True),
    Format("onnx-int8-dynamic", "onnx-fp32", "int8-dynamic", "_int8-dynamic.onnx", "onnx"),
    Format("litert-fp32", TORCH, "fp32", "_fp32.tflite", "litert"),
    Format("litert-fp16", "litert-fp32", "fp16", "_fp16.tflite", "litert"),
    Format("litert-int8", "litert-fp32", "int8", "_int8.tflite", "litert", is_calibrated=True),
    Format("litert-int8-dynamic", "litert-fp32", "int8-dynamic", "_int8-dynamic.tflite", "litert"),
    Format("edgetpu", "litert-int8", "int8", "_int8_edgetpu.tflite", "edgetpu", program="edgetpu_compiler"),
    Format("tensorrt-fp16", "onnx-fp32", "fp16", "_fp16.engine", "tensorrt", program="trtexec"),
    Format("tensorrt-int8", "onnx-int8-symmetric", "int8", "_int8.engine", "tensorrt", program="trtexec"),
)
FORMATS = {one.name: one for one in _TABLE}


def find(name: str) -> Format:
    """Return the format of this name.

    Raises:
        ConfigError: there is none.
    """
    if name in FORMATS:
        return FORMATS[name]
    message = f"there is no format {name!r} to convert to: choose from {', '.join(FORMATS)}, or all"
    raise ConfigError(message)


def way(start: str, goal: str) -> list[Format] | None:
    """Return the formats to make one after the other to come from `start` (a format or `torch`) to `goal`; None where no way leads."""
    steps: list[Format] = []
    at = goal
    while at != start:
        if at not in FORMATS:
            return None
        steps.insert(0, FORMATS[at])
        at = FORMATS[at].base
    return steps or None
