"""What a model file says of itself, read from the texts that its runtime found in it.

Ultralytics writes `names`, `imgsz`, `task` into ONNX properties, a zip appended to .tflite (a Python literal or JSON) or TorchScript's
extra file `config.txt` (JSON); YOLOv5 writes `shape` there; TFLite metadata brings a label file and the input's mean and sd.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

Triple = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class SelfDescription:
    """`size` is height and width in pixels; `mean` and `sd` are in pixel values; each None (labels: empty) where the file is silent.

    `head` is the class of an Ultralytics model's last layer, `is_end_to_end` whether it suppresses by itself.
    """

    labels: tuple[str, ...]
    size: tuple[int, int] | None
    task: str | None
    mean: Triple | None
    sd: Triple | None
    head: str | None = None
    is_end_to_end: bool | None = None


def read(metadata: Mapping[str, str]) -> SelfDescription:
    """Return what the texts say; what cannot be made out is left out, never an error."""
    words: dict[str, Any] = dict(metadata)
    for name, text in metadata.items():
        if "." in name and isinstance(document := _literal(text), dict):
            words.update({key: value for key, value in document.items() if isinstance(key, str)})
    task, head = words.get("task"), words.get("head")
    return SelfDescription(
        labels=_names(_literal(words.get("names"))) or _label_file(metadata),
        size=_size(_literal(words.get("imgsz")), _literal(words.get("shape"))),
        task=task if isinstance(task, str) else None,
        mean=_triple(words.get("input_mean")),
        sd=_triple(words.get("input_sd")),
        head=head if isinstance(head, str) else None,
        is_end_to_end={"true": True, "false": False}.get(str(words.get("end2end")).lower()),
    )


def _literal(text: Any) -> Any:
    """Return what a JSON text or a Python literal stands for; anything else as it is."""
    if not isinstance(text, str):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _names(names: Any) -> tuple[str, ...]:
    """Return class names given as a list, or by number."""
    if isinstance(names, list):
        return tuple(str(name) for name in names)
    if not isinstance(names, dict) or not all(str(key).isdigit() for key in names):
        return ()
    by_number = {int(key): str(name) for key, name in names.items()}
    return _in_order(by_number)


def _label_file(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of the label file; a line may begin with its number, as in Coral's."""
    texts = {name: text for name, text in metadata.items() if name.endswith(".txt") and not text.lstrip().startswith("{")}
    chosen = next((text for name, text in texts.items() if "label" in name.lower()), None)
    if chosen is None:
        return ()
    lines = [line.strip() for line in chosen.strip().splitlines()]
    numbered = [re.fullmatch(r"(\d+)[ :,\t]+(\S.*)", line) for line in lines]
    if all(numbered):
        return _in_order({int(match[1]): match[2] for match in numbered if match})
    return tuple(lines)


def _in_order(by_number: Mapping[int, str]) -> tuple[str, ...]:
    """Return the names in order of their numbers, gaps as empty names; none where the numbers are no class numbers."""
    if not by_number or max(by_number) >= 10 * len(by_number) + 100:
        return ()
    return tuple(by_number.get(number, "") for number in range(max(by_number) + 1))


def _size(imgsz: Any, shape: Any) -> tuple[int, int] | None:
    if isinstance(shape, list) and len(shape) == 4 and imgsz is None:
        imgsz = shape[2:]
    if isinstance(imgsz, int):
        imgsz = [imgsz, imgsz]
    if not isinstance(imgsz, list | tuple) or len(imgsz) != 2 or not all(isinstance(side, int) and side > 0 for side in imgsz):
        return None
    return imgsz[0], imgsz[1]


def _triple(text: Any) -> Triple | None:
    """Return `127.5` or `123.7, 116.3, 103.5` as three numbers."""
    try:
        values = [float(part) for part in str(text).split(",")]
    except ValueError:
        return None
    if len(values) == 1:
        values *= 3
    return (values[0], values[1], values[2]) if len(values) == 3 else None
