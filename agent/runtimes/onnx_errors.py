"""The errors of ONNX Runtime: their classes, and what they say."""

import re

from edgemeter.agent.base.errors import one_line
from edgemeter.agent.runtimes.adapter import RuntimeLibrary

# What precedes the text of an error: its number, the file, then the place in the C++ source with the function's signature.
_NOISE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed:|\S+\.(?:cc|h):\d+ .*?\) (?=[A-Z])")
_OPSET = re.compile(r"Opset (\d+) is under development.*till opset (\d+)")


def errors_of(runtime_library: RuntimeLibrary) -> tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]]:
    """Return the library's errors about a model, and those about a provider; its own classes have no common one below Exception."""
    state = runtime_library.module.capi.onnxruntime_pybind11_state
    kinds = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    absences = tuple(kind for kind in kinds if kind.__name__ in {"EPFail", "EngineError", "DeviceReset"})
    return (*kinds, RuntimeError, ValueError), absences


def reason_of(error: Exception) -> str:
    """Return what the library says of an error, without the number, file and function that precede it."""
    words = _NOISE.sub("", " ".join(str(error).split())).strip().rstrip(".") or type(error).__name__
    if words == "Protobuf parsing failed":
        return "it is not an ONNX model, or a truncated one"
    opset = _OPSET.search(words)
    return one_line(words if opset is None else f"it needs opset {opset[1]}, this version knows up to {opset[2]}")
