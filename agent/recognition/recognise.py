"""A card for a model that has none: what it is, from its tensors, its metadata and its file name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import UNSURE_FAMILY, Card, CardOutput, ImageInput, Resize, card_path, read_card
from edgemeter.agent.recognition.metadata import (
    RT_DETR_HEAD,
    UNIT_DETR,
    OutputFamily,
    SelfDescription,
    Triple,
    UnknownFamilyError,
    family_in,
    is_any_picture,
    read_self_description,
    shapes_in_words,
    stated_family,
)
from edgemeter.agent.recognition.output_shapes import IMAGENET_CLASSES, family_of_outputs, side_of
from edgemeter.agent.runtimes import Loaded, TensorInfo, with_batch_of_1
from edgemeter.agent.vision import decoders
from edgemeter.agent.vision.decoders import UnknownModel
from edgemeter.agent.vision.decoders.size_inputs import pictures_of

# Of the 256 values of a pixel, so many at least stay apart in an input that was quantised for them.
_FEWEST_STEPS = 64
_SETTLED_BY = "a wrong guess costs accuracy; set input.mean and input.sd"
_TRAINED_ON_UNIT = frozenset({"yolov5", "yolov8", "yolo26", "torchvision", "yolo-seg", "yolo26-seg", "yolo-pose"})
_QUANTISED = re.compile(r"[ ._-](?:[iI]?[qQ]\d\w*|[bB]?[fF](?:16|32)|[tT][qQ]\d\w*|MXFP4\w*|mxfp4\w*)$")
Layout = Literal["NHWC", "NCHW"]
# Source: Ultralytics' validation (0.7), YOLOv5's (0.6) and YOLOX's (0.65).
_NMS_IOU = {
    **dict.fromkeys(("yolov8", "yolo-seg", "yolo-pose"), 0.7),
    "yolov5": 0.6,
    "yolox": 0.65,
}
_RESIZE: dict[str, Resize] = {
    **dict.fromkeys(_TRAINED_ON_UNIT - {"torchvision"}, "letterbox"),
    "yolox": "letterbox-top-left",
    "classifier": "centre-crop",
}
# Fine-tuning and MLPerf Tiny shrink photographs whole, by averaging, before they train; ImageNet's evaluation crops. Of visual wake
# words' reference model 58 of 72 photographs of COCO are right so, 56 cropped and 49 shrunk without smoothing.
_SHRUNK = (
    "photographs are shrunk whole and smoothly, the usual for a TensorFlow classifier of other classes than ImageNet's; set input.resize"
)
# The usual size where neither the file nor its name has one.
_USUAL_SIDE = {"classifier": 224, "torchvision": 800}
_USUAL_YOLO_SIDE = 640
# Whole numbers of two to four digits: in `mobilenet_v2_1.0_224` only 224.
_NUMBER = re.compile(r"(?<![\d.])\d{2,4}(?!\d|\.\d)")
# What exporters append to a model's name to identify the file, and the precision that it means.
_ENDINGS = {
    **dict.fromkeys(("full_integer_quant", "integer_quant", "int8_metadata", "int8", "uint8", "quant", "quantized"), "int8"),
    "dynamic_range_quant": "int8-dynamic",
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("float32", "fp32"), "fp32"),
    **dict.fromkeys(("edgetpu", "metadata", "torchscript")),
}


@dataclass(frozen=True, slots=True)
class Normalisation:
    """real = (pixel - mean) / sd, pixels 0..255, in the order of the input's colours; `doubt` is what was assumed, or None."""

    mean: Triple
    sd: Triple
    doubt: str | None = None


_UNIT = Normalisation((0.0, 0.0, 0.0), (255.0, 255.0, 255.0))
_PIXELS = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_TENSORFLOW = Normalisation((127.5, 127.5, 127.5), (127.5, 127.5, 127.5), f"pixels become -1..1, the usual for TensorFlow: {_SETTLED_BY}")

# Source: torchvision's models.
_IMAGENET_MEAN, _IMAGENET_SD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_IMAGENET = Normalisation(_IMAGENET_MEAN, _IMAGENET_SD, f"ImageNet's mean and sd, the usual for PyTorch: {_SETTLED_BY}")
# Source: tensorflow/tpu `models/official/efficientnet/lite/efficientnet_lite_builder.py`.
_EFFICIENTNET_LITE = Normalisation((127.0, 127.0, 127.0), (128.0, 128.0, 128.0), f"(pixel - 127) / 128, EfficientNet-Lite's: {_SETTLED_BY}")
# Source: Keras `applications/efficientnet.py`, whose graph holds the rescaling.
_KERAS_EFFICIENTNET = Normalisation(_PIXELS.mean, _PIXELS.sd, f"pixels 0..255, Keras's for EfficientNet: {_SETTLED_BY}")


def find_normalisation(info: TensorInfo | None, family: OutputFamily, description: SelfDescription, name: str) -> Normalisation:
    """Return how pixels become the model's input, `info` (None where the file declares none: float32); `name` shows the framework."""
    pictures = family.pictures
    if pictures is not None and pictures.mean is not None:
        trained: Normalisation | None = Normalisation(pictures.mean, pictures.sd, pictures.doubt)
    else:
        trained = _of_family(family, description, name) or (_UNIT if description.task == "classify" else None)
    if trained is not None:
        if info is None or _can_hold(info, trained):
            return trained
        in_graph = _quantised_normalisation(info)
        doubt = (
            f"the input's quantisation (scale {info.scale or 1:g}) is not that of this family's values, so it takes pixels; {_SETTLED_BY}"
        )
        return in_graph if in_graph.doubt else replace(in_graph, doubt=doubt)
    if info is not None and np.dtype(info.dtype).kind in "iu":
        return _quantised_normalisation(info)
    if description.mean is not None and description.sd is not None:
        return Normalisation(description.mean, description.sd)
    return _usual(info, family, name.lower())


def _usual(info: TensorInfo | None, family: OutputFamily, name: str) -> Normalisation:
    if re.search(r"efficientnet[-_]?lite", name):
        return _EFFICIENTNET_LITE
    # A file whose colours are its last axis came from TensorFlow, whatever its format.
    if name.endswith(".tflite") or (info is not None and info.shape[-1] == 3):
        return _KERAS_EFFICIENTNET if "efficientnet" in name and family.name == "classifier" else _TENSORFLOW
    return _IMAGENET


def _of_family(family: OutputFamily, description: SelfDescription, name: str) -> Normalisation | None:
    """Return what a family of detectors was trained with, None if that is not known."""
    if family.name in _TRAINED_ON_UNIT:
        return _UNIT
    if family.name == "detr":
        if UNIT_DETR.search(name.lower()) or description.head == RT_DETR_HEAD:
            return _UNIT
        return Normalisation(_IMAGENET_MEAN, _IMAGENET_SD, None if family_in(name) == "detr" else _IMAGENET.doubt)
    return _PIXELS if family.name == "yolox" else None


def _can_hold(info: TensorInfo, trained: Normalisation) -> bool:
    """Return whether an integer input has room for pixels normalised so; where it has not, the graph normalises by itself."""
    if np.dtype(info.dtype).kind not in "iu":
        return True
    bounds = np.iinfo(np.dtype(info.dtype))
    first, last = ((pixel - trained.mean[0]) / trained.sd[0] / (info.scale or 1.0) + (info.zero_point or 0) for pixel in (0, 255))
    inside = min(last, bounds.max) - max(first, bounds.min)
    return inside >= (last - first) / 2 and last - first >= _FEWEST_STEPS


def _quantised_normalisation(info: TensorInfo) -> Normalisation:
    """Return what makes the quantised value the pixel itself (int8: shifted by 128), as quantised models take their pictures."""
    kind = np.dtype(info.dtype)
    # Wider integers hold a pixel without a shift.
    first = float(np.iinfo(kind).min) if kind.itemsize == 1 else 0.0
    if info.scale is None:
        form = "as they are" if first == 0 else f"less {-first:g}"
        return Normalisation((-first, -first, -first), _PIXELS.sd, f"the integer input takes pixels {form}: {_SETTLED_BY}")
    mean, sd = float((info.zero_point or 0) - first), 1 / info.scale
    return Normalisation((mean, mean, mean), (sd, sd, sd))


def card_for(model: Path, loaded: Loaded, categories: int | None = None) -> tuple[Card, tuple[str, ...]]:
    """Return the card beside the model, or one that is made up, with what had to be guessed for it.

    `categories` is how many categories the annotations have that the model is to be scored with; it settles what shapes leave open.

    Raises:
        ConfigError: the card is wrong, or there is none and the model cannot be recognised; the message lists what to write.
    """
    path = card_path(model)
    if not path.exists():
        return recognise(model, loaded, categories)
    read = read_card(path)
    return read, (*_of_another_file(model, read), *_made_by_guessing(model, path, read))


def _made_by_guessing(model: Path, path: Path, read: Card) -> tuple[str, ...]:
    """Return the doubt about the family with which `models add` or `models convert` wrote the card: writing it down settles nothing."""
    written = " ".join(str(read.made[key]) for key in ("guesses", "guessed") if key in read.made)
    match = re.search(rf"{UNSURE_FAMILY}([^|;]*)", written)
    if match is None:
        return ()
    remedy = f"correct {path.name!r}, and remove the guess from [made] in it"
    return (f"{model.name} has a card that was guessed; {UNSURE_FAMILY}{match[1].strip()}; {remedy}",)


def _of_another_file(model: Path, read: Card) -> tuple[str, ...]:
    """Return what is unsure where the card was written for a file with another hash: exported anew, perhaps with another output."""
    if read.sha256 is None or not model.is_file():
        return ()
    actual = model_file.sha256(model)
    if actual == read.sha256:
        return ()
    unsure = (
        f"the card is of sha256 {read.sha256[:12]}, the file has {actual[:12]}, and {card_path(model).name!r} may not match it: "
        "remove it, and `edgemeter models add` writes a new one"
    )
    return (f"{model.name} is not the file its card was written for; unsure: {unsure}",)


def recognise(model: Path, loaded: Loaded, categories: int | None = None) -> tuple[Card, tuple[str, ...]]:
    """Return a card for the model, and what was guessed for it, each as a sentence; `categories` as of `card_for`.

    Raises:
        ConfigError: the model is none of the known families, or not certainly one; the message lists the keys that a card needs.
    """
    description, loaded = read_self_description(loaded.metadata), with_batch_of_1(loaded)
    address, model = model, named_path(model, loaded)
    precision, precision_from = _precision(model, loaded)
    about = f"{model.name} has no card; "
    try:
        info, layout = _image_input(loaded)
        size, size_from = _size(info, layout, description, model, [output.shape for output in loaded.outputs])
        takes_any = info is not None and is_any_picture(info.shape)
        facts = UnknownModel(
            name=model.name,
            inputs=loaded.inputs,
            outputs=loaded.outputs,
            size=size,
            named=stated_family(model.name, description),
            labels=description.labels,
            task=description.task,
            head=description.head,
            is_end_to_end=description.is_end_to_end,
            categories=categories,
        )
        family = _of_table(facts) or family_of_outputs(loaded.outputs, size, model.name, description, takes_any_picture=takes_any)
        resizes = takes_any and family.name == "torchvision"
        if size is None:
            side = family.pictures.side if family.pictures else _USUAL_SIDE.get(family.name, _USUAL_YOLO_SIDE)
            size = (side, side)
            size_from = f"input {side} x {side}, the usual for {family.name}: file and name have none; set input.height and input.width"
        if resizes:
            size_from = (
                f'resize = "none", photographs keep their size: the model takes any; random pictures are {size[0]} x {size[1]}; '
                "set input.resize, input.height and input.width"
            )
    except UnknownFamilyError as error:
        families = ", ".join([*decoders.names(), "classifier"])
        raise ConfigError(
            f"cannot identify {str(address)!r}: {error}. Write a card beside it, {card_path(address).name!r}, with name, task "
            f"(classification, detection, segmentation, pose, ...), family ({families}), precision, [input] height, width, layout (NHWC or "
            "NCHW), resize, mean, sd and [output] classes, labels, nms_iou"
        ) from error
    normal = find_normalisation(info, family, description, model.name)
    card = Card(
        name=name_of(model),
        task=family.task,
        family=family.name,
        precision=precision,
        input=_input(family, size, layout, normal, description, model, resizes=resizes),
        output=_output(family, description),
    )
    guesses = [f"family {family.name} from {family.why}", size_from, precision_from]
    doubts = [*family.doubts, normal.doubt, _SHRUNK if card.image.resize == "stretch-smooth" else None]
    of_family = (f"{about}{UNSURE_FAMILY}{family.family_doubt}",) if family.family_doubt else ()
    guessed = (f"{about}guessed: {guess}" for guess in guesses if guess)
    return card, (*guessed, *of_family, *(f"{about}unsure: {doubt}" for doubt in doubts if doubt))


def _of_table(facts: UnknownModel) -> OutputFamily | None:
    """Return the first family of the table that recognises the model."""
    if facts.task not in (None, "detect"):
        return None
    for name in decoders.DECODERS:
        family = resolve_name(decoders.DECODERS[name])
        recognition = family.recognise(facts) if issubclass(family, decoders.Family) else None
        if recognition is not None:
            why = f"its outputs {shapes_in_words(facts.shapes)}"
            return OutputFamily(
                name, recognition.task, recognition.classes, why, recognition.doubts, (), recognition.family_doubt, family.pictures(facts)
            )
    return None


def _input(
    family: OutputFamily,
    size: tuple[int, int],
    layout: Layout,
    normal: Normalisation,
    description: SelfDescription,
    model: Path,
    *,
    resizes: bool,
) -> ImageInput:
    """Return how photographs become the input; a model that `resizes` by itself gets them in their own size."""
    resize, pad = "none" if resizes else _RESIZE.get(family.name, "stretch"), 114
    if family.pictures is not None:
        resize, pad = family.pictures.resize, family.pictures.pad
    if family.name == "classifier" and layout == "NHWC" and family.classes not in IMAGENET_CLASSES and description.task is None:
        resize = "stretch-smooth"
    crop_ratio = 1.0 if description.task == "classify" else 0.875
    if re.search(r"efficientnet[-_]?lite", model.name.lower()):
        # Its evaluation leaves a margin of 16 pixels whatever the size.
        crop_ratio = size[0] / (size[0] + 32)
    return ImageInput(
        height=size[0],
        width=size[1],
        layout=layout,
        colour="BGR" if family.name == "yolox" else "RGB",
        resize=resize,
        pad=pad,
        crop_ratio=crop_ratio,
        mean=normal.mean,
        sd=normal.sd,
    )


def named_path(model: Path, loaded: Loaded) -> Path:
    """Return the path whose name says what the model is: its own, but of one that code makes the name that this gives."""
    return model.with_name(f"{loaded.name}.py") if loaded.name else model


def language_model_name(model: Path) -> str:
    """Return the name of a language model: the file's as `name_of`, without its quantisation."""
    return _QUANTISED.sub("", name_of(model)) or "model"


def name_of(model: Path) -> str:
    """Return the name that all files of one model share: the file's, without format and precision."""
    stem = _bare(model.name)[0]
    clean = re.sub(r"[^A-Za-z0-9 ._:@-]", "-", stem).lstrip(" ._:@-")[:128]
    return clean or "model"


def _bare(file_name: str) -> tuple[str, str | None]:
    """Return the name without its endings, and the precision that they mean."""
    stem, precision = Path(file_name).stem, None
    while match := re.fullmatch(rf"(.+?)[._-]({'|'.join(_ENDINGS)})", stem, re.IGNORECASE):
        stem = match[1]
        precision = precision or _ENDINGS[match[2].lower()]
    return stem, precision


def _image_input(loaded: Loaded) -> tuple[TensorInfo | None, Layout]:
    """Return the input that takes the picture (None where none is declared, as in TorchScript) and its layout.

    torchvision's detectors take it without a batch axis.
    """
    if not loaded.inputs:
        return None, "NCHW"
    pictures = pictures_of(loaded.inputs)
    if len(pictures) == 1 and len(pictures[0].shape) in (3, 4):
        info = pictures[0]
        if info.shape[-1] == 3:
            return info, "NHWC"
        if info.shape[-3] == 3:
            return info, "NCHW"
        # tf2onnx and torch.onnx leave all sides open when asked to; the format's own order is the better guess then.
        if info.shape[1:] == (None, None, None):
            return info, "NCHW"
    declared = [list(info.shape) for info in loaded.inputs]
    raise UnknownFamilyError(f"its inputs {declared} are not one picture of three channels")


def _size(
    info: TensorInfo | None, layout: Layout, description: SelfDescription, model: Path, outputs: Sequence[tuple[int | None, ...]]
) -> tuple[tuple[int, int] | None, str | None]:
    """Return height and width, None if unknown, and the source of the guess (None if the file has them)."""
    if info is not None:
        height, width = info.shape[-3:-1] if layout == "NHWC" else info.shape[-2:]
        if height is not None and width is not None:
            return (height, width), None
    if description.size is not None:
        return description.size, None
    side = side_of(outputs)
    if side is not None:
        return (side, side), f"input {side} x {side}, whose grid has as many cells as the output"
    in_name = [int(number) for number in _NUMBER.findall(_bare(model.name)[0]) if int(number) % 32 == 0]
    if len(in_name) == 1:
        return (in_name[0], in_name[0]), f"input {in_name[0]} x {in_name[0]} from the file name"
    return None, None


def _precision(model: Path, loaded: Loaded) -> tuple[str, str | None]:
    """Return the precision, and from what it was guessed where the file was not inspected: weights may be smaller than its ends show."""
    if loaded.precision is not None:
        return loaded.precision, None
    kinds = {np.dtype(info.dtype).name for info in (*loaded.inputs, *loaded.outputs)}
    if kinds & {"int8", "uint8"}:
        return "int8", None
    in_name = _bare(model.name)[1]
    if in_name is not None:
        return in_name, f"precision {in_name} from the file name"
    return ("fp16", None) if "float16" in kinds else ("fp32", "precision fp32: inputs and outputs show no other")


def _output(family: OutputFamily, description: SelfDescription) -> CardOutput:
    is_detector = family.task != "classification"
    labels, offset = description.labels, 0
    if not is_detector and family.classes == 1001:
        labels, offset = labels[1:] if len(labels) == 1001 else labels, -1
    elif is_detector and labels:
        # One label more, or one class more, is that of the background.
        offset = {1: 1, -1: -1}.get(len(labels) - family.classes, 0)
    return CardOutput(
        classes=family.classes,
        labels=labels,
        label_offset=offset,
        nms_iou=family.pictures.nms_iou if family.pictures else _NMS_IOU.get(family.name),
        strides=(8, 16, 32) if family.name == "yolox" else family.strides,
    )
