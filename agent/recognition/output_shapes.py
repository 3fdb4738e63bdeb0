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
from edgemeter.agent.recognition.model_outputs import MOST_QUERIES, cell_counts
from edgemeter.agent.recognition.one_output import OneOutput
from edgemeter.agent.recognition.several_outputs import SeveralOutputs
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders.boxes import KEYPOINTS
from edgemeter.agent.vision.decoders.yolo26 import COLUMNS
from edgemeter.agent.vision.decoders.yolo_seg import PROTOTYPES

_SIDES = range(32, 2049, 32)
IMAGENET_CLASSES = (1000, 1001)
# As Ultralytics calls the tasks: ours, the family, and what a row holds beside classes.
_HEADS = {
    "segment": ("segmentation", "yolo-seg", 4 + PROTOTYPES),
    "seg": ("segmentation", "yolo-seg", 4 + PROTOTYPES),
    "pose": ("pose", "yolo-pose", 4 + 3 * KEYPOINTS),
}


def family_of_outputs(
    outputs: Sequence[TensorInfo],
    size: tuple[int, int] | None,
    name: str,
    description: SelfDescription,
    *,
    takes_any_picture: bool = False,
) -> OutputFamily:
    """Return the family of a model with these outputs, by its file's name and what that states; an input of open size is None.

    Raises:
        UnknownFamilyError: none fits.
    """
    if not outputs:
        return family_by_name_alone(name, description, takes_any_picture=takes_any_picture)
    shapes = [info.shape for info in outputs]
    if (other := _other_head(shapes, name, description)) is not None:
        return other
    if len(outputs) == 1 and _is_scores(shapes[0]):
        return _classifier(shapes[0], name, description)
    family = SeveralOutputs(size, name, description, shapes).find(outputs)
    # Old exports of YOLOv5 give its raw maps after the decoded tensor.
    if family is None and len(shapes[0]) == 3 and all(len(shape) == 5 for shape in shapes[1:]):
        family = OneOutput(size, name, description, shapes[:1]).find()
    if family is None:
        where = "of open size" if size is None else f"of {size[0]} x {size[1]}"
        raise UnknownFamilyError(f"its outputs {shapes_in_words(shapes)} on an input {where} are those of no known family")
    return family


def _other_head(shapes: Sequence[Shape], name: str, description: SelfDescription) -> OutputFamily | None:
    """Return the family of a YOLO for another task than detection, as its metadata or its name states; None where there is none."""
    task = description.task or other_task(name)
    rows = next((shape for shape in shapes if len(shape) == 3), None)
    if task not in _HEADS or rows is None or len(shapes) != (1 if task == "pose" else 2):
        return None
    task_name, family, other_values = _HEADS[task]
    why = f"its outputs {shapes_in_words(list(shapes))} and its {'metadata' if description.task else 'name'}, a YOLO's for {task}"
    if family == "yolo-seg" and rows[2] == COLUMNS + PROTOTYPES and (rows[1] or 0) <= MOST_QUERIES:
        classes = len(description.labels) or COCO_CLASSES
        return OutputFamily("yolo26-seg", task_name, classes, why, () if description.labels else (unnamed(classes),))
    columns = min((size for size in rows[1:] if size is not None), default=0)
    if columns <= other_values:
        return None
    classes = columns - other_values
    if description.labels and len(description.labels) != classes:
        raise UnknownFamilyError(f"{why} would be {family} with {classes} classes, but it names {len(description.labels)}")
    return OutputFamily(family, task_name, classes, why, () if description.labels or classes == 1 else (unnamed(classes),))


def _is_scores(shape: Shape) -> bool:
    """Return whether the shape is one row of scores: [1, n], or [1, 1, 1, n] and [1, n, 1, 1]."""
    return len(shape) >= 2 and shape[0] in (1, None) and None not in shape[1:] and sum(size != 1 for size in shape[1:]) == 1


def _classifier(shape: Shape, name: str, description: SelfDescription) -> OutputFamily:
    classes = max(size or 0 for size in shape)
    if classes in IMAGENET_CLASSES or classes == len(description.labels):
        return OutputFamily("classifier", "classification", classes, f"its {classes} scores")
    if description.labels and description.task in (None, "classify"):
        raise UnknownFamilyError(f"it gives {classes} scores and names {len(description.labels)} classes")
    if is_classifier_name(name) or description.task == "classify":
        doubt = f"its {classes} values are scores of classes that it does not name; set `task`, output.classes and output.labels"
        return OutputFamily("classifier", "classification", classes, f"its {classes} scores and its file name", (doubt,))
    raise UnknownFamilyError(f"its one output has {classes} values, which may be scores or features")


def side_of(shapes: Sequence[Shape]) -> int | None:
    """Return the side of the square input (32, 64 .. 2048 pixels) whose YOLO grid has as many cells as an output has anchors."""
    # The longer axis; where one is open, the other is that of the classes.
    longest = {max(shape[1] or 0, shape[2] or 0) for shape in shapes if len(shape) == 3 and None not in shape[1:]}
    sides = [side for side in _SIDES if longest & {times * cells for cells in cell_counts((side, side))[:2] for times in (1, 3)}]
    return sides[0] if len(sides) == 1 else None
