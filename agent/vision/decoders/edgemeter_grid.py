"""The shipped detector: boxes [1, N, 4], scores [1, N, classes], a row for each cell of two grids.

- boxes, float32: how far the left, top, right and bottom edges lie from the cell's centre, in units
  of the stride, >= 0;
- scores, float32: 0..1 per class, after the sigmoid.

The outputs come in this order, each with its own quantisation scale if the model is quantised. N
counts the cells of both grids (strides 8 and 16) one after the other, each grid row by row. A cell
may hold several classes.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.conventions import two_tables
from edgemeter.agent.vision.decoders.family import Family, Pictures, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.grids import cell_count, grid_cells

STRIDES = (8, 16)
# The default if the card has none; boxes of one class that overlap more count as one object.
DEFAULT_NMS_IOU = 0.6


class EdgemeterGrid(Family):
    """Reads grids of edge distances and class scores; NMS per class."""

    PICTURES = Pictures("stretch", nms_iou=DEFAULT_NMS_IOU)

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return models with as many rows as these grids have cells."""
        at, rows, columns = two_tables(facts.shapes) or (1, 0, 0)
        if at != 0 or facts.size is None or rows != cell_count(*facts.size, STRIDES):
            return None
        doubt = (
            "boxes as distances from the cells of our own detector's grids; set `family` if it "
            "is another model"
        )
        return Recognition(columns, (doubt, *facts.unnamed(columns)))

    def __init__(self, model: Card, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        corners, self._strides = grid_cells(*self._size, STRIDES)
        # The cells' centres in pixels of the input: float32 [N, 2] as x, y.
        self._centres = (corners + np.float32(0.5)) * self._strides

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        self._check([output.shape for output in outputs])
        distances, scores = outputs[0][0], outputs[1][0]
        cells, classes = np.nonzero(scores >= self._output.score_threshold)
        reach = distances[cells] * self._strides[cells]
        centres = self._centres[cells]
        corners = boxes.to_photo(
            np.concatenate([centres - reach[:, :2], centres + reach[:, 2:]], axis=1), frame
        )
        best, labels = scores[cells, classes], classes.astype(np.int32)
        iou = DEFAULT_NMS_IOU if self._output.nms_iou is None else self._output.nms_iou
        survivors = boxes.suppress_class_wise(
            corners, best, labels, iou, self._output.max_detections
        )
        return Detections(
            boxes=corners[survivors], scores=best[survivors], classes=labels[survivors]
        )

    def _check(self, shapes: Sequence[Shape]) -> None:
        cells, classes = (
            cell_count(*self._size, STRIDES),
            self._output.classes or len(self._output.labels) or None,
        )
        fits = (
            len(shapes) == 2
            and shapes[0] == (1, cells, 4)
            and shapes[1][:2] == (1, cells)
            and len(shapes[1]) == 3
        )
        if not fits or classes not in (None, shapes[1][2]):
            raise boxes.mismatch(
                "edgemeter",
                f"on an input of {self._size[0]} x {self._size[1]} boxes [1, {cells}, 4] and "
                f"scores [1, {cells}, {classes or 'classes'}]",
                [list(shape) for shape in shapes],
                "height, width, output.classes or `family`",
            )
