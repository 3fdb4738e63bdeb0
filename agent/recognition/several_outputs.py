"""Detectors with several outputs: the four of TFLite's post-processing, DETR's sets, torchvision's lists, maps per stride."""

from collections.abc import Sequence

from edgemeter.agent.recognition.metadata import (
    COCO_LAST_ID,
    OutputFamily,
    Shape,
    unnamed,
)
from edgemeter.agent.recognition.model_outputs import ModelOutputs
from edgemeter.agent.runtimes import TensorInfo

_IDS = "COCO's ids"
# DETR was trained on COCO's ids 0..90, of which 0 means nothing, and "no object" besides.
_DETR_CLASSES = 91


class SeveralOutputs(ModelOutputs):
    """A detector with several outputs: the four of TFLite's post-processing, DETR's sets, torchvision's lists, maps per stride."""

    def find(self, outputs: Sequence[TensorInfo]) -> OutputFamily | None:
        """Return its family, None where it is none of them."""
        if self.stated.task not in (None, "detect"):
            return None
        if len(outputs) == 4 and _is_postprocess(outputs):
            return self._postprocess(outputs)
        if len(outputs) >= 3 and _is_lists(self.shapes):
            return self._lists()
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

    def _lists(self) -> OutputFamily:
        doubt = "labels count from 1, 0 is the background, as torchvision's do; set `family` in its card if that is wrong"
        doubts = (doubt,) if self.labels else (unnamed(COCO_LAST_ID, _IDS), doubt)
        return OutputFamily("torchvision", "detection", self._foreground or COCO_LAST_ID, "its lists of boxes, labels and scores", doubts)


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
