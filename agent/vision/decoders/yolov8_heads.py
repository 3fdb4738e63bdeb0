"""Raw heads of YOLOv8 to YOLO26: maps of boxes and scores for each stride.

They are the usual INT8 export for Rockchip. The heads are cut before boxes are decoded. Each stride
has a map of distances and one of class scores, and in some exports one of the scores' sum, which is
ignored. They come in any order, channels first or last, with all cells in one axis or in two. If
one map holds both, as in training, the distances come first. The distance of an edge from the
cell's centre is the mean of a distribution over 16 steps (softmax), in strides; in YOLO26 and
YOLOv6 it is one value. Scores are probabilities or logits (`conventions.py`). Every class of a cell
above the threshold is a candidate of its own.
Source: airockchip/rknn_model_zoo `examples/yolov8/python/yolov8.py`; ultralytics
`nn/modules/head.py` (`Detect`).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.conventions import are_probabilities
from edgemeter.agent.vision.decoders.family import (
    COCO_CLASSES,
    Family,
    Pictures,
    Recognition,
    UnknownModel,
)
from edgemeter.agent.vision.decoders.grids import HeadMaps, grid_side, head_maps

# Four edges of 16 steps or of one step.
_WIDTHS = (64, 4)


class YoloV8Heads(Family):
    """Decodes the maps of all strides."""

    PICTURES = Pictures(nms_iou=0.7)

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Recognise a detector by its maps, which show the number of classes.

        If one map has distances and scores, it must be the known number.
        """
        heads = head_maps(facts.shapes, facts.size, _WIDTHS, facts.known_classes or COCO_CLASSES)
        if heads is None or (
            len(facts.shapes) == len(heads.outputs)
            and heads.classes not in (facts.known_classes, COCO_CLASSES)
        ):
            return None
        doubt = (
            "distances of one value, as YOLO26's and YOLOv6's; set `family` if it "
            "is another model's"
        )
        return Recognition(
            heads.classes,
            (*((doubt,) if heads.distances == 4 else ()), *facts.unnamed(heads.classes)),
        )

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        heads = self._check([output.shape for output in outputs])
        scores = [heads.cells(outputs[at])[-heads.classes :] for _, at in heads.outputs.values()]
        are_logits = not are_probabilities(*scores)
        threshold = (
            boxes.logit(self._output.score_threshold)
            if are_logits
            else self._output.score_threshold
        )
        corners, values, classes = [], [], []
        for (stride, (at, _)), level in zip(heads.outputs.items(), scores, strict=True):
            kinds, cells = boxes.above(level, threshold)
            bins = heads.cells(outputs[at])[: heads.distances, cells].reshape(
                4, heads.distances // 4, len(cells)
            )
            reach = bins[:, 0] if heads.distances == 4 else boxes.means(bins)
            y, x = np.divmod(cells, grid_side(frame.input_width, stride))
            centres = np.stack([x, y]).astype(np.float32) + np.float32(0.5)
            corners.append(
                np.concatenate([centres - reach[:2], centres + reach[2:]]).T * np.float32(stride)
            )
            values.append(level[kinds, cells])
            classes.append(kinds.astype(np.int32))
        best = boxes.logistic(np.concatenate(values)) if are_logits else np.concatenate(values)
        return boxes.select(
            np.concatenate(corners), best, np.concatenate(classes), self._output, frame
        )

    def _check(self, shapes: Sequence[Shape]) -> HeadMaps:
        heads = head_maps(shapes, self._size, _WIDTHS, self._output.classes)
        if heads is not None and self._output.classes in (None, heads.classes):
            return heads
        raise boxes.mismatch(
            "yolov8-heads",
            f"for each stride maps of 64 distances and {self._output.classes or 'all'} scores on "
            f"{self._size[0]} x {self._size[1]}",
            [list(shape) for shape in shapes],
            "height, width, output.classes or `family`",
        )
