"""Names as people write them: whether two of them name one model, one device, one precision, one runtime or one power mode.

A model is itself by any spelling: `YOLO11n`, `yolo11n_fp32.onnx`; `Llama 3.2 3B`, `llama3.2:3b`, `Llama-3.2-3B-Instruct-Q4_K_M.gguf`. A
name of a family without its size is none of its members.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from edgemeter.agent.contract.case_identity import precision_class
from edgemeter.agent.machine.board_limits import limits_named

_FILE_END = re.compile(
    r"\.(gguf|onnx|tflite|litertlm|engine|plan|rknn|hef|pte|pt|ncnn|param|xml|mnn)$|[_-](?:openvino|ncnn|saved|paddle|rknn|imx|web)_model/?$"
)
# A precision within a name, between characters that are no letters or digits.
PRECISION = re.compile(
    r"(?<![a-z0-9])(?:i?q\d(?:_[0-9ksmlx]+)*(?: - (?:small|medium|large))?|mxfp4|nvfp4|[bt]?f(?:p|loat)?(?:8|16|32|64)|u?int(?:4|8|16)"
    r"|w\d+a\d+|\d ?-?bits?)(?![a-z0-9])"
)
INPUT_SIZE = re.compile(r"(?<![a-z0-9.])(?:\d{2,4}x\d{2,4}(?:x\d)?|224|256|300|320|384|416|512|640|1280)(?![a-z0-9.])")
# They say who published a file, for whom it was compiled, or nothing; a width of 1.0 is the usual one.
_NEUTRAL = {"meta", "ultralytics", "quant", "quantised", "quantized", "latest", "1.0", "v1.0", "gguf", "awq", "gptq"}
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
    # Of each size one model was distilled, but of 8b two.
    name = re.sub(r"^deepseekr1distill(?:qwen|llama)-?(?=(?:1\.5|7|14|32|70)b$)", "deepseekr1-", name)
    return ModelName(_ONLY_SIZE.get(name, name), precision and precision[0], input_size and input_size[0], tuning)


# Families that have one size.
_ONLY_SIZE = {"tinyllama": "tinyllama1.1b"}


def _joined(parts: list[str]) -> str:
    """Return words without what stands between them, but for two numbers: 3.2 and 3b are not 3.23b."""
    joined = ""
    for part in parts:
        joined += f"-{part}" if joined[-1:].isdigit() and part[0].isdigit() else part
    return joined


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device's name in one spelling, with what it states beyond that.

    `is_super` is the mode that NVIDIA added to the Orin Nano and NX, `form` which product of one name it is (`laptop`, `b+`), `host` the
    board that an accelerator is on.
    """

    name: str
    memory_gb: float | None = None
    is_super: bool = False
    form: str | None = None
    host: str | None = None


# Who made it, and of which revision or in which power mode, not which board.
_OF_BOARD = re.compile(
    r"\bmodel [ab]\b|\brev(?:ision)? ?[\d.]+|\b(?:nvidia|geforce|engineering|reference|developer|development kit|kit|devkit|sbc)\b"
    r"|\b\d+ ?w\b|\bmaxn\b"
)
_MEMORY = re.compile(r"\b(\d+(?:\.\d+)?) ?(?:gb|gib|g ram)\b(?: ram\b)?")
# What tells products of one name apart, by what the name has besides.
_FORMS = (
    (re.compile(r"\b[abh]\d00\b"), {"sxm": r"\bsxm\d?\b", "nvl": r"\bnvl\b", "pcie": r"\bpcie\b"}),
    (re.compile(r"\b[rg]tx \d"), {"laptop": r"\b(?:laptop|mobile|notebook|max q)\b(?: gpu\b)?", "desktop": r"\bdesktop\b"}),
    (re.compile(r"\bcoral\b|\bedge ?tpu\b"), {"dev board": r"\bdev ?board\b", "usb": r"\busb\b", "m.2": r"\bm\.?2\b", "pcie": r"\bpcie\b"}),
    (
        re.compile(r"\braspberry pi [13]"),
        {
            "a+": r"(?<=pi [13]) ?(?:model )?a(?:\+| plus\b)",
            "b+": r"(?<=pi [13])(?: ?(?:model )?b(?:\+| plus\b)|\+)",
            "b": r"(?<=pi [13]) ?(?:model )?b\b",
        },
    ),
    (re.compile(r"\bhailo ?8|\bai hat"), {"13 TOPS": r"\b13 ?tops\b|\bhailo ?8l\b", "26 TOPS": r"\b26 ?tops\b|\bhailo ?8\b"}),
)


@lru_cache(4096)
def device_name(text: str) -> DeviceName:
    """Return the name of a device in one spelling; of an added accelerator whose bounds are on record its name, whatever the board."""
    words = " ".join(re.split(r"[^a-z0-9.+]+", text.casefold())).strip()
    words = re.sub(r"\b([rg]tx) ?(\d{4}) ?(ti\b)?", r"\1 \2 \3", words)
    words = re.sub(r"(?<!orange )(?<!banana )\b(?:raspberry ?pi|rpi|pi) ?(?=\d|zero\b|compute\b|ai\b|\Z)", "raspberry pi ", words)
    form, words = _form(words)
    memory = _MEMORY.search(words)
    memory_gb = float(memory[1]) if memory else None
    limits = limits_named(re.sub(r"(?i)\b([rg]tx) ?(\d{4}) ?(ti\b)?", r"\1 \2 \3", text))
    if limits.added and limits.is_complete and limits.devices == 1:
        # The smaller Hailo-8 is named by its TOPS, or not at all.
        names = {"Hailo-8" if entry.name == "Hailo-8L" else entry.name for entry in limits.added}
        name = " + ".join(sorted(names)) + (" Ti" if re.search(r"\bti\b", words) else "")
        host = limits.board.name if limits.board else None
        return DeviceName(name, None if host else memory_gb, form=form, host=host)
    words = _OF_BOARD.sub(" ", _MEMORY.sub(" ", words.replace("+", " ")))
    parts = words.split()
    if not any(part in ("orin", "xavier", "thor") for part in parts):
        return DeviceName(" ".join(parts), memory_gb, form=form)
    # Some firmware leaves the family out, and people turn the words round; every Thor is an AGX.
    family = {"agx"} if "thor" in parts else set()
    module = sorted({*parts, *family} - {"super", "jetson"})
    return DeviceName(" ".join(module), memory_gb, "super" in parts, form)


def _form(words: str) -> tuple[str | None, str]:
    """Return which product of one name it is, and the name without that."""
    for product, forms in _FORMS:
        if product.search(words):
            form = next((name for name, pattern in forms.items() if re.search(pattern, words)), None)
            return form, re.sub(forms[form], " ", words) if form else words
    return None, words


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


_POWER_MODE = re.compile(
    r"\bmaxn(?:[ _]super)?\b|(?:\bmode[ _]|\bpower mode:? (?:of )?|\bnvpmodel:? )\d+ ?w\b|\b\d+ ?w(?:att)? (?:power )?mode\b", re.IGNORECASE
)
_JETSON = re.compile(r"jetson|orin|xavier|thor", re.IGNORECASE)


def power_mode_in(device: str, conditions: str) -> str | None:
    """Return the power mode that the name of a Jetson, or the conditions, state: `25 W` of `Jetson Orin Nano (25W)`."""
    mode = _POWER_MODE.search(f"{device} | {conditions}") or (_JETSON.search(device) and re.search(r"\b\d+ ?w\b", device, re.IGNORECASE))
    if not mode:
        return None
    watts = re.search(r"\d+", mode[0])
    return f"{watts[0]} W" if watts else mode[0]
