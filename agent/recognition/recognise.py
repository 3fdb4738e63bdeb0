"""A card for a model that has none, made from its tensors, its metadata and its file name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import (
    UNSURE_FAMILY,
    Card,
    CardOutput,
    Guess,
    ImageInput,
    card_path,
    read_card,
)
from edgemeter.agent.recognition.classifier import Classifier
from edgemeter.agent.recognition.metadata import (
    SelfDescription,
    family_in,
    read_self_description,
    task_of,
)
from edgemeter.agent.recognition.normalisation import find_normalisation
from edgemeter.agent.runtimes import Loaded, TensorInfo, with_batch_of_1
from edgemeter.agent.tasks.class_fit import coco_class_names
from edgemeter.agent.vision import decoders
from edgemeter.agent.vision.decoders import Shape
from edgemeter.agent.vision.decoders.family import COCO_CLASSES, Pictures, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.grids import anchors_per_cell
from edgemeter.agent.vision.decoders.size_inputs import pictures_of

# Heads for other tasks are recognised only if the name or the metadata say so.
_USUAL_TASKS = ("detection", Classifier.TASK)
_SIDES = range(32, 2049, 32)
# Heads for other tasks, by the family and the task in the name or the metadata.
_HEADS: Mapping[tuple[str | None, str | None], str] = {
    ("yolov8", "segmentation"): "yolo-seg",
    ("yolov8", "pose"): "yolo-pose",
    ("yolo26", "segmentation"): "yolo26-seg",
    ("yolo26", "pose"): "yolo26-pose",
}
_QUANTISED = re.compile(
    r"[ ._-](?:[iI]?[qQ]\d\w*|[bB]?[fF](?:16|32)|[tT][qQ]\d\w*|MXFP4\w*|mxfp4\w*)$"
)
Layout = Literal["NHWC", "NCHW"]
# Whole numbers of two to four digits: in `mobilenet_v2_1.0_224` only 224.
_NUMBER = re.compile(r"(?<![\d.])\d{2,4}(?!\d|\.\d)")
# Exporters' endings of file names, and the precision each stands for.
_ENDINGS = {
    **dict.fromkeys(
        (
            "full_integer_quant",
            "integer_quant",
            "int8_metadata",
            "int8",
            "uint8",
            "quant",
            "quantized",
        ),
        "int8",
    ),
    "dynamic_range_quant": "int8-dynamic",
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("float32", "fp32"), "fp32"),
    **dict.fromkeys(("edgetpu", "metadata", "torchscript")),
}


class UnknownFamilyError(ValueError):
    """The model's family is unknown without a card; the message holds the reason."""


@dataclass(frozen=True, slots=True)
class RecognisedFamily:
    """A model's family with its recognition and the preparation of photographs.

    `why` is the evidence.
    """

    name: str
    task: str
    recognition: Recognition
    pictures: Pictures
    why: str


def card_for(
    model: Path, loaded: Loaded, categories: Sequence[str] = ()
) -> tuple[Card, tuple[Guess, ...]]:
    """Return the card next to the model, or a recognised one, with its guesses.

    `categories` are the names in the annotations used for scoring; their number decides where
    shapes are ambiguous.

    Raises:
        ConfigError: the card is wrong, or there is none and the model cannot be recognised; the
            message lists what to write.
    """
    path = card_path(model)
    if not path.exists():
        return recognise(model, loaded, categories)
    read = read_card(path)
    return read, tuple(_doubts_about_card(model, path, read))


def _doubts_about_card(model: Path, path: Path, read: Card) -> Iterator[Guess]:
    """Yield doubts about the card.

    It may belong to another file, or `models add` or `models convert` was unsure when it wrote it.
    """
    actual = model_file.sha256(model) if read.sha256 is not None and model.is_file() else None
    if read.sha256 is not None and actual not in (None, read.sha256):
        yield Guess(
            f"{model.name} is not the file its card was written for",
            "unsure",
            f"the card is for sha256 {read.sha256[:12]}, the file has {str(actual)[:12]}, and "
            f"{path.name!r} may not match it: "
            "remove it, and `edgemeter models add` writes a new one",
        )
    if doubt := read.made.get("family_doubt"):
        yield Guess(
            f"{model.name} has a card that was guessed",
            UNSURE_FAMILY,
            f"{doubt}; correct {path.name!r}, and remove family_doubt from [made] in it",
        )


def recognise(
    model: Path, loaded: Loaded, categories: Sequence[str] = ()
) -> tuple[Card, tuple[Guess, ...]]:
    """Return a card for the model with its guesses; `categories` as in `card_for`.

    Raises:
        ConfigError: the model's family cannot be recognised; the message lists the keys that a card
            needs.
    """
    description, loaded = read_self_description(loaded.metadata), with_batch_of_1(loaded)
    address, model = model, named_path(model, loaded)
    precision, precision_from = _precision(model, loaded)
    names = {name.strip().lower() for name in categories}
    try:
        info, layout = _image_input(loaded)
        size, size_from = _size(
            info, layout, description, model, [output.shape for output in loaded.outputs]
        )
        facts = UnknownModel(
            name=model.name,
            inputs=loaded.inputs,
            outputs=loaded.outputs,
            size=size,
            named=family_in(model.name, description),
            labels=description.labels,
            task=task_of(model.name, description),
            categories=len(categories) or None,
            own_categories=None if names <= set(coco_class_names(COCO_CLASSES)) else len(names),
        )
        # torchvision's detectors take pictures of any size without a batch axis, and resize them.
        resizes = info is not None and info.shape == (3, None, None)
        family = recognised_family(facts, takes_any_picture=resizes)
    except UnknownFamilyError as error:
        families = ", ".join([*decoders.names(), "classifier"])
        raise ConfigError(
            f"cannot identify {str(address)!r}: {error}. Write a card beside it, "
            f"{card_path(address).name!r}, with name, task "
            f"(classification, detection, segmentation, pose, ...), family ({families}), "
            "precision, [input] height, width, layout (NHWC or "
            "NCHW), resize, mean, sd and [output] classes, labels, nms_iou"
        ) from error
    pictures, recognition = family.pictures, family.recognition
    if size is None:
        size = (pictures.side, pictures.side)
        size_from = (
            f"input {size[0]} x {size[1]}, the usual for {family.name}: file and name have none; "
            "set input.height and input.width"
        )
    resizes = resizes and family.name == "torchvision"
    if resizes:
        size_from = (
            'resize = "none", photographs keep their size: the model takes any; random pictures '
            f"are {size[0]} x {size[1]}; "
            "set input.resize, input.height and input.width"
        )
    normal = find_normalisation(
        info, pictures, description, model.name, is_classifier=family.task == Classifier.TASK
    )
    image = ImageInput(
        height=size[0],
        width=size[1],
        layout=layout,
        colour=pictures.colour,
        resize="none" if resizes else pictures.resize,
        pad=pictures.pad,
        crop_ratio=pictures.crop_ratio,
        mean=normal.mean,
        sd=normal.sd,
    )
    output = _output(family, description)
    card = Card(
        name=name_of(model),
        task=family.task,
        family=family.name,
        precision=precision,
        input=image,
        output=output,
    )
    occasion, doubts = (
        f"{model.name} has no card",
        [*recognition.doubts, normal.doubt, pictures.doubt if pictures.mean is None else None],
    )
    guesses = [
        *(
            Guess(occasion, "guessed", text)
            for text in (f"family {family.name} from {family.why}", size_from, precision_from)
            if text
        ),
        *(
            [Guess(occasion, UNSURE_FAMILY, recognition.family_doubt)]
            if recognition.family_doubt
            else []
        ),
        *(Guess(occasion, "unsure", doubt) for doubt in doubts if doubt),
    ]
    return card, tuple(guesses)


def recognised_family(facts: UnknownModel, *, takes_any_picture: bool = False) -> RecognisedFamily:
    """Return the first family of the table that recognises the model, or a classifier.

    Without output sizes the name decides.

    Raises:
        UnknownFamilyError: none fits.
    """
    if not facts.outputs or facts.table == (None, None):
        return _by_name(facts, takes_any_picture=takes_any_picture)
    why = f"its output{'s' if len(facts.shapes) > 1 else ''} {_in_words(facts.shapes)}"
    for name in (*decoders.names(), "classifier"):
        family = _family(name)
        is_asked = family is not None and (
            facts.task == family.TASK or (facts.task is None and family.TASK in _USUAL_TASKS)
        )
        recognition = family.recognise(facts) if is_asked else None
        if recognition is None:
            continue
        if facts.labels and abs(len(facts.labels) - recognition.classes) > (len(facts.shapes) > 1):
            raise UnknownFamilyError(
                f"{why} would be {name} with {recognition.classes} classes, but it names "
                f"{len(facts.labels)}"
            )
        return RecognisedFamily(
            name, recognition.task or family.TASK, recognition, family.pictures(facts), why
        )
    where = "of open size" if facts.size is None else f"of {facts.size[0]} x {facts.size[1]}"
    task = f" for the task {facts.task!r}, which its metadata or its name has" if facts.task else ""
    raise UnknownFamilyError(f"{why} on an input {where} fits no known family{task}")


def _by_name(facts: UnknownModel, *, takes_any_picture: bool) -> RecognisedFamily:
    """Return the family by the file name or the input, for a file without output sizes.

    Such a file declares no outputs, or no sizes of outputs.
    """
    named = facts.named or ("torchvision" if takes_any_picture else None)
    if facts.labels and (named, facts.task) in _HEADS:
        # Without labels the number of classes of such a head is unknown.
        named = _HEADS[named, facts.task]
    if named is not None and facts.task in (None, decoders.family_of(named).TASK):
        family = decoders.family_of(named)
        recognition = family.by_name(facts)
        if facts.outputs:
            doubt = (
                f"family {named} from the file's name or metadata, its output shows no "
                "size; set `family`"
            )
            recognition = replace(recognition, doubts=(doubt, *recognition.doubts))
        why = (
            "the file name"
            if facts.named
            else "its input, pictures of any size without a batch axis"
        )
        return RecognisedFamily(
            named, recognition.task or family.TASK, recognition, family.pictures(facts), why
        )
    if (
        named is None
        and facts.task in (None, Classifier.TASK)
        and (recognition := Classifier.recognise(facts)) is not None
    ):
        return RecognisedFamily(
            "classifier", Classifier.TASK, recognition, Classifier.pictures(facts), "the file name"
        )
    task = (
        f", and for the task {facts.task!r} a family is recognised by its outputs"
        if facts.task
        else ""
    )
    raise UnknownFamilyError(
        f"it declares no outputs with sizes, and its file name contains no known family{task}"
    )


def _family(name: str) -> Any:
    """Return a family that recognises models.

    It is None for another package's that does not recognise them, or cannot be imported.
    """
    if name == "classifier":
        return Classifier
    try:
        family = decoders.family_of(name)
    except (ConfigError, UnavailableError) as error:
        _warn(str(error))
        return None
    return family if hasattr(family, "recognise") else None


@cache
def _warn(text: str) -> None:
    import logging  # noqa: PLC0415 - a run that warns of nothing needs none

    logging.getLogger(__name__).warning("models of this family are not recognised: %s", text)


def _in_words(shapes: Sequence[Shape]) -> str:
    """Return shapes as `[1, 84, ?], [1, 4]`."""
    return ", ".join(
        "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"
        for shape in shapes
    )


def named_path(model: Path, loaded: Loaded) -> Path:
    """Return the path whose name identifies the model.

    It is the model's own or, for a model made by code, that of its `loaded.name`.
    """
    return model.with_name(f"{loaded.name}.py") if loaded.name else model


def language_model_name(model: Path) -> str:
    """Return the file's name as `name_of` does, without the quantisation."""
    return _QUANTISED.sub("", name_of(model)) or "model"


def name_of(model: Path) -> str:
    """Return the file's name without format and precision, shared by all files of one model."""
    stem = re.sub(r"[^A-Za-z0-9 ._:@-]", "-", _bare(model.name)[0])
    return stem.lstrip(" ._:@-")[:128] or "model"


def _bare(file_name: str) -> tuple[str, str | None]:
    """Return the name without its endings, and the precision in them."""
    stem, precision = Path(file_name).stem, None
    while match := re.fullmatch(rf"(.+?)[._-]({'|'.join(_ENDINGS)})", stem, re.IGNORECASE):
        stem = match[1]
        precision = precision or _ENDINGS[match[2].lower()]
    return stem, precision


def _image_input(loaded: Loaded) -> tuple[TensorInfo | None, Layout]:
    """Return the picture input and its layout.

    The input is None if none is declared, as in TorchScript. torchvision's detectors have no batch
    axis.
    """
    if not loaded.inputs:
        return None, "NCHW"
    pictures = pictures_of(loaded.inputs)
    if len(pictures) == 1 and len(pictures[0].shape) in (3, 4):
        info = pictures[0]
        if info.shape[-1] == 3:
            return info, "NHWC"
        # tf2onnx and torch.onnx can leave all sides open; then NCHW, the usual order in ONNX, is
        # the better guess.
        if info.shape[-3] == 3 or info.shape[1:] == (None, None, None):
            return info, "NCHW"
    raise UnknownFamilyError(
        f"its inputs {[list(info.shape) for info in loaded.inputs]} are not one picture of three "
        "channels"
    )


def _size(
    info: TensorInfo | None,
    layout: Layout,
    description: SelfDescription,
    model: Path,
    outputs: Sequence[Shape],
) -> tuple[tuple[int, int] | None, str | None]:
    """Return height and width, None if unknown, and the source of the guess.

    The source is None if the file has the sizes.
    """
    if info is not None:
        height, width = info.shape[-3:-1] if layout == "NHWC" else info.shape[-2:]
        if height is not None and width is not None:
            return (height, width), None
    if description.size is not None:
        return description.size, None
    side = _side_of(outputs)
    if side is not None:
        return (side, side), f"input {side} x {side}, whose grid has as many cells as the output"
    in_name = [
        int(number) for number in _NUMBER.findall(_bare(model.name)[0]) if int(number) % 32 == 0
    ]
    if len(in_name) == 1:
        return (in_name[0], in_name[0]), f"input {in_name[0]} x {in_name[0]} from the file name"
    return None, None


def _precision(model: Path, loaded: Loaded) -> tuple[str, str | None]:
    """Return the precision, and its evidence if it is a guess.

    Weights may be smaller than inputs and outputs.
    """
    if loaded.precision is not None:
        return loaded.precision, None
    kinds = {np.dtype(info.dtype).name for info in (*loaded.inputs, *loaded.outputs)}
    if kinds & {"int8", "uint8"}:
        return "int8", None
    in_name = _bare(model.name)[1]
    if in_name is not None:
        return in_name, f"precision {in_name} from the file name"
    return (
        ("fp16", None)
        if "float16" in kinds
        else ("fp32", "precision fp32: inputs and outputs show no other")
    )


def _side_of(shapes: Sequence[Shape]) -> int | None:
    """Return the side of the square input (32, 64 ..

    2048 pixels) whose YOLO grid has as many cells as an output has anchors.
    """
    # The longer axis holds the anchors; if one is open, the other holds the classes.
    longest = {
        max(shape[1] or 0, shape[2] or 0)
        for shape in shapes
        if len(shape) == 3 and None not in shape[1:]
    }
    sides = [
        side for side in _SIDES if any(anchors_per_cell(count, (side, side)) for count in longest)
    ]
    return sides[0] if len(sides) == 1 else None


def _output(family: RecognisedFamily, description: SelfDescription) -> CardOutput:
    labels, offset, classes = description.labels, 0, family.recognition.classes
    if family.task == Classifier.TASK:
        if classes == 1001:
            labels, offset = labels[1:] if len(labels) == 1001 else labels, -1
    elif labels:
        # One extra label, or one extra class, is the background.
        offset = {1: 1, -1: -1}.get(len(labels) - classes, 0)
    return CardOutput(
        classes=classes, labels=labels, label_offset=offset, nms_iou=family.pictures.nms_iou
    )
