"""A card for a model that has none: what it is, from its tensors, what it says of itself, and its file name."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card, normalisation, one_tensor, self_description, shapes
from edgemeter.agent.recognition.family import Family, UnknownFamilyError
from edgemeter.agent.recognition.self_description import SelfDescription
from edgemeter.agent.runtimes import Loaded, TensorInfo, model_file
from edgemeter.agent.vision.decoder import DECODERS
from edgemeter.agent.vision.decoders.nanodet import OLD_STRIDES

Layout = Literal["NHWC", "NCHW"]

# Source: Ultralytics' validation (0.7), YOLOv5's (0.6), YOLOX's (0.65) and NanoDet's (0.6).
_NMS_IOU = {"yolov8": 0.7, "yolov5": 0.6, "yolov5-heads": 0.6, "yolox": 0.65, "nanodet": 0.6}
_RESIZE: dict[str, card.Resize] = {
    "yolov8": "letterbox",
    "yolov5": "letterbox",
    "yolov5-heads": "letterbox",
    "yolo26": "letterbox",
    "yolox": "letterbox-top-left",
    "classifier": "centre-crop",
}
# What is usual where neither the file nor its name says a size.
_USUAL_SIDE = {"classifier": 224, "detr": 640, "nanodet": 416, "torchvision": 800, "yolox": 640}
_USUAL_YOLO_SIDE = 640
# Whole numbers of two to four digits: in `mobilenet_v2_1.0_224` only 224.
_NUMBER = re.compile(r"(?<![\d.])\d{2,4}(?!\d|\.\d)")
# COCO scores at most 100 detections of a photograph.
_MAX_DETECTIONS = 100
# What exporters append to a model's name to say which file of it this is, and the precision that it tells.
_ENDINGS = {
    "full_integer_quant": "int8",
    "integer_quant": "int8",
    "dynamic_range_quant": "int8-dynamic",
    "int8_metadata": "int8",
    "int8": "int8",
    "uint8": "int8",
    "quant": "int8",
    "quantized": "int8",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "fp32": "fp32",
    "edgetpu": None,
    "metadata": None,
    "torchscript": None,
}


def card_for(model: Path, loaded: Loaded) -> tuple[card.Card, tuple[str, ...]]:
    """Return the card beside the model, or one that is made up, with what had to be guessed for it.

    Raises:
        ConfigError: the card is wrong, or there is none and the model cannot be recognised; says what to write.
    """
    beside = card.beside(model)
    if not beside.exists():
        return recognise(model, loaded)
    read = card.read(beside)
    return read, _of_another_file(model, read)


def _of_another_file(model: Path, read: card.Card) -> tuple[str, ...]:
    """Return what is unsure where the card was written for a file with another hash: exported anew, perhaps with another output."""
    if read.sha256 is None or not model.is_file():
        return ()
    found = model_file.sha256(model)
    if found == read.sha256:
        return ()
    unsure = (
        f"the card is of sha256 {read.sha256[:12]}, the file has {found[:12]}, and what {card.beside(model).name!r} says may not hold: "
        "remove it, and `edgemeter models add` writes a new one"
    )
    return (f"{model.name} is not the file its card was written for; unsure: {unsure}",)


def recognise(model: Path, loaded: Loaded) -> tuple[card.Card, tuple[str, ...]]:
    """Return a card for the model, and what was guessed for it, each as a sentence.

    Raises:
        ConfigError: the model is none of the known families, or not surely one; says which keys a card needs.
    """
    said = self_description.read(loaded.metadata)
    try:
        info, layout = _image_input(loaded)
        size, size_from = _size(info, layout, said, model, [one.shape for one in loaded.outputs])
        family = shapes.find(loaded.outputs, size, model.name, said)
        if size is None:
            size, size_from = _usual_size(family)
    except UnknownFamilyError as error:
        raise ConfigError(_unsure(model, error)) from error
    normal = normalisation.find(info, family, said, model.name)
    precision, precision_from = _precision(model, loaded)
    made = card.Card(
        name=name_of(model),
        task=family.task,
        family=family.name,
        precision=precision,
        input=_input(family, size, layout, normal, said, model),
        output=_output(family, said),
    )
    guesses = [f"family {family.name} from {family.why}", size_from, precision_from]
    doubts = [*family.doubts, normal.doubt]
    about = f"{model.name} has no card; "
    return made, (*(f"{about}guessed: {guess}" for guess in guesses if guess), *(f"{about}unsure: {doubt}" for doubt in doubts if doubt))


def _input(
    family: Family, size: tuple[int, int], layout: Layout, normal: normalisation.Normalisation, said: SelfDescription, model: Path
) -> card.Input:
    resize, pad = _RESIZE.get(family.name, "stretch"), 114
    # NanoDet with three strides was made to keep the picture's proportions, on black; NanoDet-Plus was not.
    if family.name == "nanodet" and family.strides == OLD_STRIDES:
        resize, pad = "letterbox", 0
    crop_ratio = 1.0 if said.task == "classify" else 0.875
    if re.search(r"efficientnet[-_]?lite", model.name.lower()):
        # Its evaluation leaves a margin of 16 pixels whatever the size.
        crop_ratio = size[0] / (size[0] + 32)
    return card.Input(
        height=size[0],
        width=size[1],
        layout=layout,
        colour="BGR" if family.name in ("yolox", "nanodet") else "RGB",
        resize=resize,
        pad=pad,
        crop_ratio=crop_ratio,
        mean=normal.mean,
        sd=normal.sd,
    )


def name_of(model: Path) -> str:
    """Return the name that all files of one model share: the file's, without what tells format and precision."""
    stem = _bare(model.name)[0]
    clean = re.sub(r"[^A-Za-z0-9 ._:@-]", "-", stem).lstrip(" ._:@-")[:128]
    return clean or "model"


def _bare(file_name: str) -> tuple[str, str | None]:
    """Return the name without its endings, and the precision that they tell."""
    stem, precision = Path(file_name).stem, None
    while found := re.fullmatch(rf"(.+?)[._-]({'|'.join(_ENDINGS)})", stem, re.IGNORECASE):
        stem = found[1]
        precision = precision or _ENDINGS[found[2].lower()]
    return stem, precision


def _image_input(loaded: Loaded) -> tuple[TensorInfo | None, Layout]:
    """Return the input that takes the picture (None where none is declared, as in TorchScript) and its layout.

    torchvision's detectors take it without a batch axis.
    """
    if not loaded.inputs:
        return None, "NCHW"
    if len(loaded.inputs) == 1 and len(loaded.inputs[0].shape) in (3, 4):
        info = loaded.inputs[0]
        if info.shape[-1] == 3:
            return info, "NHWC"
        if info.shape[-3] == 3:
            return info, "NCHW"
        # tf2onnx and torch.onnx leave all sides open when asked to; the format's own order is the better guess then.
        if info.shape[1:] == (None, None, None):
            return info, "NCHW"
    declared = [list(info.shape) for info in loaded.inputs]
    message = f"its inputs {declared} are not one picture of three channels"
    raise UnknownFamilyError(message)


def _size(
    info: TensorInfo | None, layout: Layout, said: SelfDescription, model: Path, outputs: Sequence[tuple[int | None, ...]]
) -> tuple[tuple[int, int] | None, str | None]:
    """Return height and width, None where nothing tells, and from what they were guessed (None where the file says them)."""
    if info is not None:
        height, width = info.shape[-3:-1] if layout == "NHWC" else info.shape[-2:]
        if height is not None and width is not None:
            return (height, width), None
    if said.size is not None:
        return said.size, None
    side = one_tensor.side_of(outputs)
    if side is not None:
        return (side, side), f"input {side} x {side}, whose grid has as many cells as the output"
    in_name = [int(number) for number in _NUMBER.findall(_bare(model.name)[0]) if int(number) % 32 == 0]
    if len(in_name) == 1:
        return (in_name[0], in_name[0]), f"input {in_name[0]} x {in_name[0]} from the file name"
    return None, None


def _usual_size(family: Family) -> tuple[tuple[int, int], str]:
    side = _USUAL_SIDE.get(family.name, _USUAL_YOLO_SIDE)
    return (side, side), f"input {side} x {side}, the usual for {family.name}: neither file nor name says; input.height and input.width do"


def _precision(model: Path, loaded: Loaded) -> tuple[str, str | None]:
    """Return the precision, and from what it was guessed where the file was not looked into: weights may be smaller than its ends show."""
    if loaded.precision is not None:
        return loaded.precision, None
    kinds = {np.dtype(info.dtype).name for info in (*loaded.inputs, *loaded.outputs)}
    if kinds & {"int8", "uint8"}:
        return "int8", None
    in_name = _bare(model.name)[1]
    if in_name is not None:
        return in_name, f"precision {in_name} from the file name"
    return ("fp16", None) if "float16" in kinds else ("fp32", "precision fp32: inputs and outputs show no other")


def _output(family: Family, said: SelfDescription) -> card.Output:
    is_detector = family.task == "detection"
    labels, offset = said.labels, 0
    if not is_detector and family.classes == 1001:
        labels, offset = labels[1:] if len(labels) == 1001 else labels, -1
    elif is_detector and labels:
        # One label more, or one class more, is that of the background.
        offset = {1: 1, -1: -1}.get(len(labels) - family.classes, 0)
    return card.Output(
        classes=family.classes,
        labels=labels,
        label_offset=offset,
        nms_iou=_NMS_IOU.get(family.name),
        max_detections=_MAX_DETECTIONS,
        strides=(8, 16, 32) if family.name == "yolox" else family.strides,
    )


def _unsure(model: Path, why: UnknownFamilyError) -> str:
    families = ", ".join([*DECODERS, "classifier"])
    return (
        f"cannot tell what {str(model)!r} is: {why}. Write a card beside it, {card.beside(model).name!r}, with name, task (detection or "
        f"classification), family ({families}), precision, [input] height, width, layout (NHWC or NCHW), resize, mean, sd and "
        "[output] classes, labels, nms_iou"
    )
