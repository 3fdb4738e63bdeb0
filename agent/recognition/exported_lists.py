"""The family of a detector that suppresses by itself, from the lists or rows it gives and the size it asks for."""

from collections.abc import Sequence

from edgemeter.agent.recognition.metadata import (
    COCO_CLASSES,
    COCO_LAST_ID,
    OutputFamily,
    SelfDescription,
    Shape,
    family_in,
    shapes_in_words,
    unnamed,
)
from edgemeter.agent.runtimes import Loaded, TensorInfo
from edgemeter.agent.vision.decoders.rows import COLUMNS
from edgemeter.agent.vision.size_inputs import size_input_names

_TARGET_SIZES = "orig_target_sizes"


def family_of_lists(loaded: Loaded, name: str, description: SelfDescription) -> OutputFamily | None:
    """Return the family of a model with these inputs, outputs and file name, None where it is none of those that an exporter made so."""
    shapes = [info.shape for info in loaded.outputs]
    if not shapes or description.task not in (None, "detect"):
        return None
    return _by_size(size_input_names(loaded.inputs), shapes, description) or _by_outputs(loaded, name, shapes, description)


def _by_size(size_names: frozenset[str], shapes: Sequence[Shape], description: SelfDescription) -> OutputFamily | None:
    """Return the family of a model that asks for these sizes."""
    if _TARGET_SIZES in size_names and len(shapes) == 3 and any(shape[-1:] == (4,) for shape in shapes):
        return _family("detr-lists", shapes, description)
    if size_names - {_TARGET_SIZES} and _is_row_list(shapes[0], "paddle-rows"):
        return _family("paddle-rows", shapes, description)
    return None


def _by_outputs(loaded: Loaded, name: str, shapes: Sequence[Shape], description: SelfDescription) -> OutputFamily | None:
    """Return the family of a model with these outputs."""
    outputs = loaded.outputs
    if len(outputs) == 2 and _is_dets(outputs):
        doubt = "how its pictures are resized and normalised differs among MMDetection's models; set [input]"
        return _family("mmdeploy", shapes, description, doubt)
    if len(outputs) == 1 and _is_detection_output(shapes[0]):
        doubt = "classes count from 1, 0 is the background; pictures in BGR 0..255; set `family` and [input] if that is wrong"
        return _family("openvino-rows", shapes, description, doubt, classes=COCO_LAST_ID)
    if len(outputs) == 1 and _is_open_rows(shapes[0], loaded.inputs, name):
        return _family("yolov7-rows", shapes, description, "rows as YOLOv7's exporter writes them; set `family` if that is wrong")
    return None


def _family(name: str, shapes: Sequence[Shape], description: SelfDescription, *doubts: str, classes: int = COCO_CLASSES) -> OutputFamily:
    labels = len(description.labels)
    unknown = () if labels else (unnamed(classes),)
    return OutputFamily(name, "detection", labels or classes, f"its outputs {shapes_in_words(list(shapes))}", (*doubts, *unknown))


def _is_row_list(shape: Shape, family: str) -> bool:
    return len(shape) >= 2 and shape[-1] == COLUMNS[family].width


def _is_detection_output(shape: Shape) -> bool:
    """Return whether these are [1, 1, n, 7]; of one row, or of rows of rows, seven columns may be scores of seven classes."""
    return len(shape) == 4 and shape[:2] == (1, 1) and shape[2] != 1 and _is_row_list(shape, "openvino-rows")


def _is_open_rows(shape: Shape, inputs: Sequence[TensorInfo], name: str) -> bool:
    """Return whether these are [n, 7] of one photograph; of an open batch they may be scores of seven classes, unless named a YOLO."""
    is_of_one = family_in(name) == "yolov5" or all(info.shape[:1] == (1,) for info in inputs)
    return len(shape) == 2 and shape[0] != 1 and is_of_one and _is_row_list(shape, "yolov7-rows")


def _is_dets(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether these are boxes with their scores, and integers beside them."""
    dets = next((info for info in outputs if len(info.shape) in (2, 3) and info.shape[-1] == 5), None)
    labels = next((info for info in outputs if info is not dets and info.dtype.startswith("int")), None)
    return dets is not None and labels is not None and len(labels.shape) == len(dets.shape) - 1
