"""Names as people write them: whether two of them name one model, one device, one precision, one runtime or one power mode.

A model is itself by any spelling: `YOLO11n`, `yolo11n_fp32.onnx`; `Llama 3.2 3B`, `llama3.2:3b`, `Llama-3.2-3B-Instruct-Q4_K_M.gguf`. A
name of a family without its size is none of its members.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from edgemeter.agent.contract.case_identity import precision_class
from edgemeter.agent.machine.board_limits import limits_named

_FILE_END = re.compile(r"\.(gguf|onnx|tflite|litertlm|engine|plan|rknn|hef|pte|pt|ncnn|param|xml|mnn)$")
# A precision within a name, between characters that are no letters or digits.
PRECISION = re.compile(
    r"(?<![a-z0-9])(?:i?q\d(?:_[0-9ksmlx]+)*(?: - (?:small|medium|large))?|mxfp4|nvfp4|[bt]?f(?:p|loat)?(?:8|16|32|64)|u?int(?:4|8|16)"
    r"|w\d+a\d+|\d ?-?bits?)(?![a-z0-9])"
)
INPUT_SIZE = re.compile(r"(?<![a-z0-9.])(?:\d{2,4}x\d{2,4}(?:x\d)?|224|256|300|320|384|416|512|640|1280)(?![a-z0-9.])")
# They say who published a file, for whom it was compiled, or nothing; a width of 1.0 is the usual one.
_NEUTRAL = {"meta", "ultralytics", "quant", "quantised", "quantized", "latest", "1.0", "v1.0"}
# Files of one network with other weights.
_TUNINGS = {"instruct", "it", "chat"}


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model's name in one spelling, with what it says of the file beyond that."""

    name: str
    precision: str | None = None
    input_size: str | None = None
    tuning: str | None = None


@lru_cache(4096)
def model_name(text: str) -> ModelName:
    """Return the name of a model in one spelling."""
    words = _FILE_END.sub("", text.casefold())
    # An organisation before its model's name; `ViT-B/16` has none.
    words = re.sub(r"^.*/(?=[^/]*[a-z]{2})", "", words)
    precision = PRECISION.search(words.replace("-bit", " bit"))
    words = PRECISION.sub(" ", words)
    input_size = INPUT_SIZE.search(words.replace("_", " "))
    parts = [part.strip(".") for part in re.split(r"[^a-z0-9.]+", INPUT_SIZE.sub(" ", words.replace("_", " ")))]
    if parts[-1] == "edgetpu" and parts[-2:-1] and re.search(r"\d|quant", parts[-2]):
        # A file that was compiled for it; MobileNet-EdgeTPU is a network.
        parts.pop()
    parts = [part for part in parts if part and part not in _NEUTRAL]
    tuning = next((part for part in parts if part in _TUNINGS), None)
    name = _joined([part for part in parts if part not in _TUNINGS])
    # Its makers write YOLO11 and YOLO12, others YOLOv11.
    name = re.sub(r"^yolov(?=1[1-9])", "yolo", name)
    return ModelName(name, precision and precision[0], input_size and input_size[0], tuning)


def _joined(parts: list[str]) -> str:
    """Return words without what stands between them, but for two numbers: 3.2 and 3b are not 3.23b."""
    joined = ""
    for part in parts:
        joined += f"-{part}" if joined[-1:].isdigit() and part[0].isdigit() else part
    return joined


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device's name in one spelling, with the memory that it states; `is_super` is the mode that NVIDIA added to the Orin Nano and NX."""

    name: str
    memory_gb: float | None = None
    is_super: bool = False


# Who made it, and of which revision, not which board.
_OF_BOARD = re.compile(
    r"\bmodel [ab]\b|\brev(?:ision)? ?[\d.]+|\b(?:nvidia|engineering|reference|developer|development kit|kit|devkit|sbc)\b"
)
_MEMORY = re.compile(r"\b(\d+(?:\.\d+)?) ?(?:gb|gib|g ram)\b(?: ram\b)?")


@lru_cache(4096)
def device_name(text: str) -> DeviceName:
    """Return the name of a device in one spelling; of an added accelerator whose bounds are on record its name, whatever the board."""
    limits = limits_named(text)
    if limits.added and limits.is_complete and limits.devices == 1:
        return DeviceName(" + ".join(sorted(entry.name for entry in limits.added)))
    words = " ".join(re.split(r"[^a-z0-9.]+", text.casefold())).strip()
    words = re.sub(r"(?<!orange )(?<!banana )\b(?:raspberry ?pi|rpi|pi) ?(?=\d|zero\b|compute\b|ai\b|\Z)", "raspberry pi ", words)
    memory = _MEMORY.search(words)
    words = _OF_BOARD.sub(" ", _MEMORY.sub(" ", words))
    parts = words.split()
    is_super = "super" in parts
    # Some firmware leaves the family out.
    has_module = any(part in ("orin", "xavier", "thor") for part in parts)
    parts = [part for part in parts if part != "super" and not (part == "jetson" and has_module)]
    return DeviceName(" ".join(parts), float(memory[1]) if memory else None, is_super)


def runtime_name(text: str) -> str:
    """Return the name of a runtime in one spelling, without its version."""
    plain = re.sub(r"[^a-z]+", "", re.sub(r"\b(?:runtime|rt|python|[vb]?\d[\w.]*)\b", " ", text.casefold()))
    return _RUNTIMES.get(plain, plain)


_RUNTIMES = {
    "tflite": "litert", "tensorflowlite": "litert", "aiedgelitert": "litert", "onnxruntime": "onnx", "onnxrt": "onnx", "torch": "pytorch",
    "torchscript": "pytorch", "llamacpp": "llama", "xllamacpp": "llama", "llamabench": "llama", "llamacpppython": "llama",
    "hailort": "hailo", "rknnlite": "rknn", "rknntoolkitlite": "rknn", "trt": "tensorrt", "onnxruntimegenai": "genai",
}  # fmt: skip


def precision_bits(text: str) -> int | None:
    """Return the bits of a weight that a precision's name states."""
    number = re.search(r"\d+", text)
    return int(number[0]) if number else None


def is_one_precision(first: str, second: str) -> bool | None:
    """Return whether two precisions are of one class; None where one of them names the bits only, and they are as many."""
    names = [re.sub(r"float", "fp", name.casefold().strip()).replace("-", "_") for name in (first, second)]
    names = [re.sub(r"^f(?=\d)", "fp", name) for name in names]
    if names[0] == names[1] or precision_class(names[0]) == precision_class(names[1]):
        return True
    if precision_bits(names[0]) != precision_bits(names[1]):
        return False
    is_loose = any(re.fullmatch(r"q\d|\d+[ _]?bits?|u?int\d+|w\d+|w\d+a16", name) for name in names)
    return None if is_loose and not any(name.startswith(("fp", "bf", "nvfp", "mxfp")) for name in names) else False


def power_mode_name(text: str) -> str:
    """Return a power mode in one spelling: `MODE_25W` and `25 W` are one."""
    return re.sub(r"[^a-z0-9]+|mode", "", text.casefold())
