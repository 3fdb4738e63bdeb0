"""The list of all plug-ins that never ran on their hardware.

`doctor`, `run`, `energy sensors` and the docs use it.
"""

import re

# Power sensors and runtimes, with a backend if only that is untried. After a run on the hardware,
# remove the entry.
UNTRIED = (
    "edgetpu", "hailo", "tensorrt", "litert npu", "ncnn vulkan", "openvino gpu", "openvino npu",
    "pytorch cuda", "onnx acl", "onnx cuda", "onnx qnn", "onnx tensorrt", "onnx xnnpack", "fnirsi",
    "hwmon", "ina3221", "ina3221x", "jetson_thor", "joulescope", "jtop", "nvml", "pi5_pmic", "rapl",
    "shelly", "tasmota", "um25c",
)  # fmt: skip
RUNTIME = "untried on its hardware: compare its figures with those of the vendor's tool"
SENSOR = "untried on a board: compare it with a meter that you know"


def is_untried(name: str, backend: str = "") -> bool:
    """Return whether a runtime or sensor never ran on its hardware, as a record names it.

    A runtime may have run there, but not with this backend.
    """
    return name in UNTRIED or any(
        f"{name} {part}" in UNTRIED for part in re.split(r"[,:.]", backend)
    )


def untried_part(name: str) -> str:
    """Return the untried part of a runtime, for `doctor`.

    It is `, untried`, or `, untried: npu`, or empty.
    """
    if name in UNTRIED:
        return ", untried"
    backends = [
        backend
        for runtime, _, backend in (entry.partition(" ") for entry in UNTRIED)
        if runtime == name
    ]
    return f", untried: {', '.join(backends)}" if backends else ""
