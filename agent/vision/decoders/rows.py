"""Rows of one object each, suppressed inside the model, with boxes as x1, y1, x2, y2 in pixels of the input or 0..1.

- `yolov7-rows`: [n, 7] as image, box, class, score (YOLOv7 with `--end2end --max-wh`);
- `paddle-rows`: [n, 6] as class, score, box (PP-YOLOE, PicoDet);
- `openvino-rows`: [1, 1, n, 7] as image, class, score, box (OpenVINO's DetectionOutput): -1 ends the list, class 0 is the background.
Source: WongKinYiu/yolov7 `models/experimental.py` (`ONNX_ORT`); PaddleDetection `ppdet/modeling/layers.py` (`MultiClassNMS`);
OpenVINO's specification of DetectionOutput.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes
from edgemeter.agent.vision.decoders.boxes import mismatch


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of a row: how many, the first of the box, those of class and score, of the image (None: none), and the first class."""

    width: int
    box: int
    label: int
    score: int
    image: int | None = None
    first_label: int = 0


COLUMNS: Mapping[str, RowColumns] = {
    "yolov7-rows": RowColumns(7, box=1, label=5, score=6, image=0),
    "paddle-rows": RowColumns(6, box=2, label=0, score=1),
    "openvino-rows": RowColumns(7, box=3, label=1, score=2, image=0, first_label=1),
}


class Rows:
    """Decodes the rows of the card's family."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output, self._family = model.output, model.family
        self._columns = COLUMNS[model.family]
        if loaded.outputs:
            self._at([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; further outputs (the number of rows) are left alone."""
        of = self._columns
        rows = outputs[self._at([output.shape for output in outputs])].reshape(-1, of.width)
        if of.image is not None:
            ends = np.flatnonzero(rows[:, of.image] < 0)
            rows = rows[: ends[0]] if ends.size else rows
        labels = np.rint(rows[:, of.label]).astype(np.int32) - of.first_label
        are_found = (rows[:, of.score] > self._output.score_threshold) & (labels >= 0)
        rows, labels = rows[are_found], labels[are_found]
        corners = boxes.in_pixels(rows[:, of.box : of.box + 4], frame)
        return boxes.select(corners, rows[:, of.score], labels, self._output, frame)

    def _at(self, shapes: Sequence[tuple[int | None, ...]]) -> int:
        """Return which of the outputs holds the rows."""
        width = self._columns.width
        at = [i for i, shape in enumerate(shapes) if len(shape) >= 2 and shape[-1] in (width, None) and set(shape[:-2]) <= {1, None}]
        if not at:
            raise mismatch(self._family, f"rows [n, {width}]", [list(shape) for shape in shapes])
        return at[0]
