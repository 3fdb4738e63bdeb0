"""Detectors with several outputs: the four of TFLite's post-processing, DETR's sets, torchvision's lists, maps per stride."""

from collections.abc import Sequence

from edgemeter.agent.recognition.metadata import (
    COCO_CLASSES,
    COCO_LAST_ID,
    OutputFamily,
    Shape,
    family_in,
    unnamed,
)
from edgemeter.agent.recognition.model_outputs import ModelOutputs
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders import nanodet
from edgemeter.agent.vision.decoders.efficient_nms import has_exporters_names, is_efficient_nms
from edgemeter.agent.vision.decoders.grids import grid_side
from edgemeter.agent.vision.decoders.yolov5 import ANCHORS_PER_CELL, STRIDES

_IDS = "COCO's ids"
# DETR was trained on COCO's ids 0..90, of which 0 means nothing, and "no object" besides.
_DETR_CLASSES = 91


class SeveralOutputs(ModelOutputs):
    """A detector with several outputs: the four of TFLite's post-processing, DETR's sets, torchvision's lists, maps per stride."""

    def find(self, outputs: Sequence[TensorInfo]) -> OutputFamily | None:
        """Return its family, None where it is none of them."""
        if self.stated.task not in (None, "detect"):
            return None
        if is_efficient_nms(outputs):
            return self._efficient_nms(is_sure=has_exporters_names(outputs))
        if len(outputs) == 4 and _is_postprocess(outputs):
            return self._postprocess(outputs)
        if len(outputs) >= 3 and _is_lists(self.shapes):
            return self._lists()
        if self.size is not None and (family := self._maps(self.size)) is not None:
            return family
        return None

    @property
    def _foreground(self) -> int:
        """How many classes are named; some label files begin with the background, which does not count."""
        return self.labels - 1 if self.labels == COCO_LAST_ID + 1 else self.labels

    def _postprocess(self, outputs: Sequence[TensorInfo]) -> OutputFamily:
        # The operator counts classes from 0; TensorFlow's own graphs, and what tf2onnx makes of them, from 1.
        classes, doubts = self._foreground or COCO_LAST_ID, () if self.labels else (unnamed(COCO_LAST_ID, _IDS),)
        if not self.name.lower().endswith(".tflite") and any(info.name.lower().startswith("detection_classes") for info in outputs):
            classes = (self.labels or COCO_LAST_ID) + 1
            doubts = (f"classes count from 1, as in TensorFlow's graphs, and are {_IDS}; set output.classes and output.labels",)
        return OutputFamily("tflite-postprocess", "detection", classes, "its four outputs", doubts)

    def _efficient_nms(self, *, is_sure: bool) -> OutputFamily:
        classes = self.labels or COCO_CLASSES
        doubt = "boxes are x1, y1, x2, y2, as YOLO's; if y comes first, as in TensorFlow's detectors, set `family` = tflite-postprocess"
        doubts = (*(() if is_sure else (doubt,)), *self.unnamed(classes))
        return OutputFamily("efficient-nms", "detection", classes, "its count, boxes, scores and classes", doubts)

    def _lists(self) -> OutputFamily:
        doubt = "labels count from 1, 0 is the background, as torchvision's do; set `family` in its card if that is wrong"
        doubts = (doubt,) if self.labels else (unnamed(COCO_LAST_ID, _IDS), doubt)
        return OutputFamily("torchvision", "detection", self._foreground or COCO_LAST_ID, "its lists of boxes, labels and scores", doubts)

    def _maps(self, size: tuple[int, int]) -> OutputFamily | None:
        """Return a detector with maps, or with scores and distances apart, for each stride."""
        if any(None in shape for shape in self.shapes):
            return None
        named_family = family_in(self.name)
        if len(self.shapes) == len(STRIDES) and named_family in (None, "yolov5"):
            depth = self._anchor_depth(size)
            if depth is not None and depth > 5 and self.labels in (0, depth - 5):
                anchors = "the anchors of YOLOv5 (a name with `yolov7` means that one's); boxes are wrong with others"
                return self.detector("yolov5-heads", depth - 5, *(() if named_family else (anchors,)), *self.unnamed(depth - 5))
        for strides in (nanodet.PLUS_STRIDES, nanodet.OLD_STRIDES):
            classes = self._apart(size, strides)
            if classes is not None and named_family in (None, "nanodet"):
                doubt = "NanoDet's head, pictures in BGR with its mean and sd; set `family` and [input]"
                return self.detector("nanodet", classes, *(() if named_family else (doubt,)), *self.unnamed(classes), strides=strides)
        return None

    def _anchor_depth(self, size: tuple[int, int]) -> int | None:
        """Return how many values an anchor of YOLOv5's maps has, None where these are no such maps."""
        depths = []
        for stride in STRIDES:
            sides = (grid_side(size[0], stride), grid_side(size[1], stride))
            for shape in self.shapes:
                if len(shape) == 5 and shape[1] == ANCHORS_PER_CELL and shape[2:4] == sides:
                    depths.append(shape[4] or 0)
                elif len(shape) == 4 and sides in (shape[2:], shape[1:3]):
                    channels = (shape[1] if shape[2:] == sides else shape[3]) or 0
                    depths.append(channels // 3 if channels % 3 == 0 else 0)
        return depths[0] if len(depths) == len(self.shapes) and len(set(depths)) == 1 else None

    def _apart(self, size: tuple[int, int], strides: Sequence[int]) -> int | None:
        """Return the classes of a NanoDet with scores and distributions apart for each stride, None where these are other outputs."""
        if len(self.shapes) != 2 * len(strides):
            return None
        widths = []
        for stride in strides:
            level = [_width(shape, (grid_side(size[0], stride), grid_side(size[1], stride))) for shape in self.shapes]
            widths.append(sorted(width for width in level if width))
        first = widths[0]
        if any(width != first for width in widths) or len(first) != 2:
            return None
        possible = [sum(first) - 4 * steps for steps in (nanodet.STEPS, nanodet.MORE_STEPS) if 4 * steps in first]
        return next((classes for classes in possible if self.labels in (0, classes)), None)


def _is_postprocess(outputs: Sequence[TensorInfo]) -> bool:
    """Return whether these are boxes, classes, scores and count; their shapes may read [] before the first call."""
    shapes = sorted((info.shape for info in outputs), key=len)
    # No other model has four numbers as its output; whatever the exporter called them, the decoder looks at the real tensors.
    if all(shape == () for shape in shapes):
        return True
    boxes = shapes[-1]
    return len(boxes) == 3 and boxes[2] == 4 and len(shapes[0]) <= 1 and [len(shape) for shape in shapes[1:3]] == [2, 2]


def _is_lists(shapes: Sequence[Shape]) -> bool:
    """Return whether there are boxes [n, 4] and two lists [n], with or without a leading batch axis."""
    has_batch = any(len(shape) == 3 and shape[2] == 4 for shape in shapes)
    bare = [shape[1:] if has_batch else shape for shape in shapes]
    boxes = [shape for shape in bare if len(shape) == 2 and shape[1] == 4]
    return len(boxes) == 1 and sum(len(shape) == 1 and (shape == boxes[0][:1] or None in (shape[0], boxes[0][0])) for shape in bare) == 2


def _width(shape: Shape, sides: tuple[int, int]) -> int | None:
    """Return how many values a cell has in an output, rows of cells or a map; None where its cells are others."""
    cells = sides[0] * sides[1]
    if len(shape) == 4 and sides in (shape[2:], shape[1:3]):
        return shape[1] if shape[2:] == sides else shape[3]
    rows = shape[-2:]
    if len(shape) in (2, 3) and cells in rows:
        return rows[1] if rows[0] == cells else rows[0]
    return None
