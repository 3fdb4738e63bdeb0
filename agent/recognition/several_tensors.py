"""Detectors that answer in several tensors: the four of TFLite's post-processing, DETR's sets, torchvision's lists, maps per stride."""

from collections.abc import Sequence

from edgemeter.agent.recognition import file_name, one_tensor
from edgemeter.agent.recognition.family import COCO_CLASSES, COCO_LAST_ID, Family, Shape, in_words, unnamed
from edgemeter.agent.recognition.self_description import SelfDescription
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision import grid
from edgemeter.agent.vision.decoders import nanodet, yolov5_heads

_IDS = "numbered as COCO's ids are"
# DETR was trained on COCO's ids 0..90, of which 0 means nothing, and "no object" besides.
_DETR_CLASSES = 91


def find(outputs: Sequence[TensorInfo], size: tuple[int, int] | None, name: str, said: SelfDescription) -> Family | None:
    """Return the family of a model with these outputs, None where it is none of them; the arguments are those of `one_tensor.find`."""
    if said.task not in (None, "detect"):
        return None
    if len(outputs) == 4 and _is_postprocess(outputs):
        return _postprocess(outputs, name, said)
    shapes = [info.shape for info in outputs]
    if len(outputs) >= 3 and _is_lists(shapes):
        return _lists(said)
    if size is not None and (found := _maps(shapes, size, name, said)) is not None:
        return found
    return _sets(shapes, size, name, said)


def _is_postprocess(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether these are boxes, classes, scores and count; their shapes may read [] before the first call."""
    shapes = sorted((info.shape for info in outputs), key=len)
    # No other model answers a picture in four numbers; whatever the exporter called them, the decoder looks at the real tensors.
    if all(shape == () for shape in shapes):
        return True
    boxes = shapes[-1]
    return len(boxes) == 3 and boxes[2] == 4 and len(shapes[0]) <= 1 and [len(shape) for shape in shapes[1:3]] == [2, 2]


def _postprocess(outputs: Sequence[TensorInfo], name: str, said: SelfDescription) -> Family:
    count = len(said.labels)
    # The operator counts classes from 0; TensorFlow's own graphs, and what tf2onnx makes of them, from 1.
    if not name.lower().endswith(".tflite") and any(info.name.lower().startswith("detection_classes") for info in outputs):
        doubt = f"classes count from 1, as in TensorFlow's graphs, {_IDS}: output.classes and output.labels say"
        return Family("tflite-postprocess", "detection", (count or COCO_LAST_ID) + 1, "its four outputs", (doubt,))
    doubts = () if count else (unnamed(COCO_LAST_ID, _IDS),)
    # Some label files begin with the background, which the operator does not count.
    classes = count - 1 if count == COCO_LAST_ID + 1 else count
    return Family("tflite-postprocess", "detection", classes or COCO_LAST_ID, "its four outputs", doubts)


def _is_lists(shapes: Sequence[Shape]) -> bool:
    """Return whether there are boxes [n, 4] and two lists [n], with or without a leading batch axis."""
    has_batch = any(len(shape) == 3 and shape[2] == 4 for shape in shapes)
    bare = [shape[1:] if has_batch else shape for shape in shapes]
    boxes = [shape for shape in bare if len(shape) == 2 and shape[1] == 4]
    return len(boxes) == 1 and sum(len(shape) == 1 and (shape == boxes[0][:1] or None in (shape[0], boxes[0][0])) for shape in bare) == 2


def _lists(said: SelfDescription) -> Family:
    count = len(said.labels)
    classes = count - 1 if count == COCO_LAST_ID + 1 else count
    doubts = [] if count else [unnamed(COCO_LAST_ID, _IDS)]
    doubts.append("labels count from 1, 0 is the background, as torchvision's do; a card with another `family` says otherwise")
    return Family("torchvision", "detection", classes or COCO_LAST_ID, "its lists of boxes, labels and scores", tuple(doubts))


def _sets(shapes: Sequence[Shape], size: tuple[int, int] | None, name: str, said: SelfDescription) -> Family | None:
    """Return DETR: as many boxes as rows of scores, which are no cells of a grid."""
    sets = [shape for shape in shapes if len(shape) == 3]
    boxes = next((shape for shape in sets if shape[2] == 4), None)
    if boxes is None or len(sets) > 2 or len(sets) != len(shapes):
        return None
    columns = next((shape[2] for shape in sets if shape is not boxes and shape[1] == boxes[1]), None)
    is_grid = size is not None and boxes[1] in one_tensor.grids(size)
    if columns is None or columns < 2 or is_grid or (boxes[1] or 0) > one_tensor.MOST_QUERIES:
        return None
    why, labels = f"its outputs {in_words(list(shapes))}", len(said.labels)
    if labels in (columns, columns - 1):
        return Family("detr", "detection", labels, why)
    if columns in (_DETR_CLASSES + 1, COCO_CLASSES + 1):
        return Family("detr", "detection", columns - 1, why, (unnamed(columns - 1),))
    if columns in (_DETR_CLASSES, COCO_CLASSES) or file_name.has_sigmoid_scores(name):
        return Family("detr", "detection", columns, why, (unnamed(columns),))
    doubt = f"the last of {columns} scores is taken for 'no object', as DETR's: output.classes = {columns} if each is a class"
    return Family("detr", "detection", columns - 1, why, (doubt, unnamed(columns - 1, "of unknown names")))


def _maps(shapes: Sequence[Shape], size: tuple[int, int], name: str, said: SelfDescription) -> Family | None:
    """Return what answers in maps, or in scores and distances apart, for each stride."""
    if any(None in shape for shape in shapes):
        return None
    why, labels = f"its outputs {in_words(list(shapes))}", len(said.labels)
    known = file_name.family_in(name)
    if len(shapes) == len(yolov5_heads.STRIDES) and known in (None, "yolov5"):
        depth = _anchor_depth(shapes, size)
        if depth is not None and depth > 5 and labels in (0, depth - 5):
            anchors = () if known else ("the anchors of YOLOv5 (a name with `yolov7` means that one's); boxes are wrong with others",)
            return Family("yolov5-heads", "detection", depth - 5, why, (*anchors, *(() if labels else (unnamed(depth - 5),))))
    for strides in (nanodet.PLUS_STRIDES, nanodet.OLD_STRIDES):
        classes = _apart(shapes, size, strides, labels)
        if classes is not None and known in (None, "nanodet"):
            doubts = () if known else ("NanoDet's head, pictures in BGR with its mean and sd; `family` and [input] say",)
            return Family("nanodet", "detection", classes, why, (*doubts, *(() if labels else (unnamed(classes),))), strides)
    return None


def _anchor_depth(shapes: Sequence[Shape], size: tuple[int, int]) -> int | None:
    """Return how many values an anchor of YOLOv5's maps has, None where these are no such maps."""
    depths = []
    for stride in yolov5_heads.STRIDES:
        sides = (grid.side(size[0], stride), grid.side(size[1], stride))
        for shape in shapes:
            if len(shape) == 5 and shape[1] == yolov5_heads.ANCHORS_PER_CELL and shape[2:4] == sides:
                depths.append(shape[4] or 0)
            elif len(shape) == 4 and sides in (shape[2:], shape[1:3]):
                channels = (shape[1] if shape[2:] == sides else shape[3]) or 0
                depths.append(channels // 3 if channels % 3 == 0 else 0)
    return depths[0] if len(depths) == len(shapes) and len(set(depths)) == 1 else None


def _apart(shapes: Sequence[Shape], size: tuple[int, int], strides: Sequence[int], labels: int) -> int | None:
    """Return the classes of a NanoDet with scores and distributions apart for each stride, None where these are other outputs."""
    if len(shapes) != 2 * len(strides):
        return None
    widths = []
    for stride in strides:
        level = [_width(shape, (grid.side(size[0], stride), grid.side(size[1], stride))) for shape in shapes]
        widths.append(sorted(width for width in level if width))
    first = widths[0]
    if any(width != first for width in widths) or len(first) != 2:
        return None
    possible = [sum(first) - 4 * steps for steps in (nanodet.STEPS, nanodet.MORE_STEPS) if 4 * steps in first]
    return next((classes for classes in possible if labels in (0, classes)), None)


def _width(shape: Shape, sides: tuple[int, int]) -> int | None:
    """Return how many values a cell has in an output, rows of cells or a map; None where its cells are others."""
    cells = sides[0] * sides[1]
    if len(shape) == 4 and sides in (shape[2:], shape[1:3]):
        return shape[1] if shape[2:] == sides else shape[3]
    rows = shape[-2:]
    if len(shape) in (2, 3) and cells in rows:
        return rows[1] if rows[0] == cells else rows[0]
    return None
