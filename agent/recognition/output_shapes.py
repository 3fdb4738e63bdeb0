"""The family of a vision model without a card: from the shapes of its outputs, what it states about itself, and its file name."""

from collections.abc import Sequence

from edgemeter.agent.recognition.metadata import (
    COCO_CLASSES,
    OutputFamily,
    SelfDescription,
    Shape,
    UnknownFamilyError,
    family_by_name_alone,
    is_classifier_name,
    other_task,
    shapes_in_words,
    unnamed,
)
from edgemeter.agent.recognition.one_output import OneOutput
from edgemeter.agent.recognition.several_outputs import SeveralOutputs
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders.yolo26 import COLUMNS
from edgemeter.agent.vision.decoders.yolo_pose import KEYPOINTS
from edgemeter.agent.vision.decoders.yolo_seg import PROTOTYPES

_IMAGENET = (1000, 1001)


def family_of_outputs(outputs: Sequence[TensorInfo], size: tuple[int, int] | None, name: str, stated: SelfDescription) -> OutputFamily:
    """Return the family of a model with these outputs.

    Args:
        outputs: as the runtime found them.
        size: height and width of the input, None where the file leaves them open.
        name: of the file.
        stated: what the file states about itself.

    Raises:
        UnknownFamilyError: none fits.
    """
    if not outputs:
        return family_by_name_alone(name, stated)
    shapes = [info.shape for info in outputs]
    if (other := _other_head(shapes, name, stated)) is not None:
        return other
    if len(outputs) == 1 and _is_scores(shapes[0]):
        return _classifier(shapes[0], name, stated)
    found = SeveralOutputs(size, name, stated, shapes).find(outputs)
    # Old exports of YOLOv5 give its raw maps after the decoded tensor.
    if found is None and len(shapes[0]) == 3 and all(len(shape) == 5 for shape in shapes[1:]):
        found = OneOutput(size, name, stated, shapes[:1]).find()
    if found is None:
        where = "of open size" if size is None else f"of {size[0]} x {size[1]}"
        raise UnknownFamilyError(f"its outputs {shapes_in_words(shapes)} on an input {where} are those of no known family")
    return found


# As Ultralytics calls the tasks: ours, the family, and what a row holds beside classes.
_HEADS = {
    "segment": ("segmentation", "yolo-seg", 4 + PROTOTYPES),
    "seg": ("segmentation", "yolo-seg", 4 + PROTOTYPES),
    "pose": ("pose", "yolo-pose", 4 + 3 * KEYPOINTS),
    "obb": ("oriented-boxes", "yolo-obb", 5),
}
_MOST_ROWS = 1000


def _other_head(shapes: Sequence[Shape], name: str, stated: SelfDescription) -> OutputFamily | None:
    """Return the family of a YOLO for another task than detection, as its metadata or its name states; None where there is none."""
    task = stated.task or other_task(name)
    rows = next((shape for shape in shapes if len(shape) == 3), None)
    if task not in _HEADS or rows is None or len(shapes) != (1 if task in ("pose", "obb") else 2):
        return None
    ours, family, beside = _HEADS[task]
    why = f"its outputs {shapes_in_words(list(shapes))} and its {'metadata' if stated.task else 'name'}, a YOLO's for {task}"
    if family == "yolo-seg" and rows[2] == COLUMNS + PROTOTYPES and (rows[1] or 0) <= _MOST_ROWS:
        classes = len(stated.labels) or COCO_CLASSES
        return OutputFamily("yolo26-seg", ours, classes, why, () if stated.labels else (unnamed(classes),))
    columns = min((size for size in rows[1:] if size is not None), default=0)
    if columns <= beside:
        return None
    classes = columns - beside
    if stated.labels and len(stated.labels) != classes:
        raise UnknownFamilyError(f"{why} would be {family} with {classes} classes, but it names {len(stated.labels)}")
    return OutputFamily(family, ours, classes, why, () if stated.labels or classes == 1 else (unnamed(classes),))


def _is_scores(shape: Shape) -> bool:
    """Return whether the shape is one row of scores: [1, n], or [1, 1, 1, n] and [1, n, 1, 1]."""
    return len(shape) >= 2 and shape[0] in (1, None) and None not in shape[1:] and sum(size != 1 for size in shape[1:]) == 1


def _classifier(shape: Shape, name: str, stated: SelfDescription) -> OutputFamily:
    classes = max(size or 0 for size in shape)
    if classes in _IMAGENET or classes == len(stated.labels):
        return OutputFamily("classifier", "classification", classes, f"its {classes} scores")
    if stated.labels and stated.task in (None, "classify"):
        raise UnknownFamilyError(f"it gives {classes} scores and names {len(stated.labels)} classes")
    if is_classifier_name(name) or stated.task == "classify":
        doubt = f"its {classes} values are scores of classes that it does not name; set `task`, output.classes and output.labels"
        return OutputFamily("classifier", "classification", classes, f"its {classes} scores and its file name", (doubt,))
    raise UnknownFamilyError(f"its one output has {classes} values, which may be scores or features")
