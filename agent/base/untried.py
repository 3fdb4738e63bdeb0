"""The list of all that never ran on its hardware: `doctor`, `run`, `energy sensors` and docs/boards.md go by it."""

import re

# Runtimes, with a backend where only that one is untried, and power sensors. Whoever runs one on its hardware takes it out.
UNTRIED = (
    "edgetpu", "hailo", "tensorrt", "litert npu", "ncnn vulkan", "openvino gpu", "openvino npu", "pytorch cuda",
    "onnx acl", "onnx cuda", "onnx qnn", "onnx tensorrt", "onnx xnnpack",
    "fnirsi", "hwmon", "ina3221", "ina3221x", "jetson_thor", "joulescope", "jtop", "nvml", "pi5_pmic", "rapl", "shelly", "tasmota", "um25c",
)  # fmt: skip
RUNTIME = "untried on its hardware: compare its figures with those of the vendor's tool"
SENSOR = "untried on a board: compare it with a meter that you know"


def is_untried(name: str, backend: str = "") -> bool:
    """Return whether a runtime or sensor never ran on its hardware, or a runtime not with this backend, as a record names it."""
    return name in UNTRIED or any(f"{name} {part}" in UNTRIED for part in re.split(r"[,:.]", backend))


def untried_part(name: str) -> str:
    """Return what of a runtime is untried, as `doctor` adds it: `, untried`, or `, untried: npu`; empty where nothing is."""
    if name in UNTRIED:
        return ", untried"
    backends = [backend for runtime, _, backend in (entry.partition(" ") for entry in UNTRIED) if runtime == name]
    return f", untried: {', '.join(backends)}" if backends else ""
