"""YOLOv5 and YOLOv7, three anchors per cell: decoded inside the model (`yolov5`), or cut before the last layer (`yolov5-heads`).

`yolov5`: [1, anchors, 5 + classes]. A row is centre x, centre y, width, height, objectness, class scores; boxes are pixels of the input,
0..1 in TFLite files.
`yolov5-heads`: three maps, [1, 3, rows, columns, 5 + classes], [1, 3 x (5 + classes), rows, columns] or [1, rows, columns,
3 x (5 + classes)], in any order of strides. With s the sigmoid of a value (in the graph of some exports: the values decide), the centre
is (2 s - 0.5 + cell) x stride and the size (2 s) squared x anchor.
The score of a class is objectness x class score; every class of a row above the threshold is a candidate of its own.
Source: ultralytics/yolov5 `utils/general.py` (`non_max_suppression`, multi_label), `export.py` (TFLite divides by the size),
`models/yolo.py` (`Detect.forward`) and `models/yolov5s.yaml`; WongKinYiu/yolov7 `cfg/deploy/yolov7.yaml`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, blanks, boxes
from edgemeter.agent.vision.decoders.boxes import OneTensor, mismatch, sigmoid
from edgemeter.agent.vision.decoders.grids import grid_side

ANCHORS_PER_CELL = 3
STRIDES = (8, 16, 32)
_YOLOV5 = (((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)), ((116, 90), (156, 198), (373, 326)))
_YOLOV7 = (((12, 16), (19, 36), (40, 28)), ((36, 75), (76, 55), (72, 146)), ((142, 110), (192, 243), (459, 401)))


class YoloV5(OneTensor):
    """Decodes the first output; further ones (the raw maps that some exports keep) are left alone."""

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; the first of `outputs` is the tensor, float32."""
        tensor = outputs[0]
        self._check(tensor.shape)
        rows, threshold = tensor[0], self._output.score_threshold
        is_normalised = rows[:, 0].max(initial=0.0) <= boxes.LARGEST_NORMALISED
        # A class score never exceeds 1, so a row whose objectness is below the threshold has no candidate: most rows end here.
        rows = rows[rows[:, 4] > threshold]
        scores = rows[:, 5:] * rows[:, 4:5]
        anchors, classes = np.nonzero(scores > threshold)
        centred = rows[anchors, :4]
        if is_normalised:
            centred = centred * np.array([frame.input_width, frame.input_height] * 2, np.float32)
        return boxes.select(boxes.corners(centred), scores[anchors, classes], classes.astype(np.int32), self._output, frame)

    def _check(self, shape: tuple[int, ...]) -> None:
        classes = self._output.classes
        if len(shape) == 3 and shape[0] == 1 and shape[2] > 5 and classes in (None, shape[2] - 5):
            return
        raise mismatch("yolov5", f"an output of shape [1, anchors, {self._values(5)}]", list(shape), "`classes` or `family`")


class YoloV5Heads:
    """Decodes the maps of strides 8, 16 and 32."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._model, self._output = model, model.output
        self._anchors = np.array(_YOLOV7 if "yolov7" in model.name.lower() else _YOLOV5, np.float32)
        if declared := blanks(loaded):
            self._maps(declared)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; every class of an anchor above the threshold is a candidate of its own."""
        corners, scores, classes = [], [], []
        for level, values in enumerate(self._maps(outputs)):
            rows = sigmoid(values)
            anchors, y, x = np.nonzero(rows[..., 4] > self._output.score_threshold)
            candidates = rows[anchors, y, x]
            products = candidates[:, 5:] * candidates[:, 4:5]
            at, named = np.nonzero(products > self._output.score_threshold)
            cell = np.stack([x, y], axis=1)[at].astype(np.float32)
            centres = (2 * candidates[at, :2] - 0.5 + cell) * STRIDES[level]
            sizes = (2 * candidates[at, 2:4]) ** 2 * self._anchors[level, anchors[at]]
            corners.append(boxes.corners(np.concatenate([centres, sizes], axis=1)))
            scores.append(products[at, named])
            classes.append(named.astype(np.int32))
        return boxes.select(np.concatenate(corners), np.concatenate(scores), np.concatenate(classes), self._output, frame)

    def _maps(self, outputs: Sequence[Floats]) -> list[Floats]:
        """Return the maps by stride, each [3, rows, columns, 5 + classes]."""
        size = self._model.image
        maps: list[Floats] = []
        for stride in STRIDES:
            sides = (grid_side(size.height, stride), grid_side(size.width, stride))
            maps.extend(candidate for candidate in (_as_map(output, sides) for output in outputs) if candidate is not None)
        depths = {level.shape[3] for level in maps}
        classes = self._output.classes
        if len(maps) == len(STRIDES) and len(depths) == 1 and classes in (None, min(depths) - 5) and min(depths) > 5:
            return maps
        values = f"{ANCHORS_PER_CELL} x {'(5 + classes)' if classes is None else 5 + classes} values a cell"
        raise mismatch(
            f"yolov5-heads on an input of {size.height} x {size.width}",
            f"for each of the strides {list(STRIDES)} a map of {values}",
            [list(output.shape) for output in outputs],
            "height, width, output.classes or `family`",
        )


def _as_map(output: Floats, sides: tuple[int, int]) -> Floats | None:
    """Return the output as [3, rows, columns, values], None where its rows and columns are others."""
    shape = output.shape
    if len(shape) == 5 and shape[:2] == (1, ANCHORS_PER_CELL) and shape[2:4] == sides:
        return output.reshape(shape[1:])
    if len(shape) != 4 or shape[0] != 1:
        return None
    if shape[2:] == sides and shape[1] % ANCHORS_PER_CELL == 0:
        return np.asarray(output.reshape(ANCHORS_PER_CELL, -1, *sides).transpose(0, 2, 3, 1))
    if shape[1:3] == sides and shape[3] % ANCHORS_PER_CELL == 0:
        return np.asarray(output.reshape(*sides, ANCHORS_PER_CELL, -1).transpose(2, 0, 1, 3))
    return None
