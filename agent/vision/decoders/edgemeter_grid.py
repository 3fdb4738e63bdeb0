"""Family `edgemeter`: the detector that ships; it predicts once per cell of a grid, for each stride of `output.strides`.

Two outputs, in this order, each with its own quantisation scale where the model is quantised:
- boxes, float32 [1, N, 4]: how far the left, top, right and bottom edges lie from the cell's centre, in units of the stride, >= 0;
- scores, float32 [1, N, C]: 0..1 per class, sigmoid already applied.
N counts the cells of every stride's grid one after the other, each grid row by row.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.runtimes.adapter import shape_fits
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.boxes import suppress_class_wise, to_photo
from edgemeter.agent.vision.decoders.grids import grid_cells

# Where the card names none. Boxes of one class that share more than this are taken for one object.
DEFAULT_NMS_IOU = 0.6


class EdgemeterGrid:
    """Reads grids of edge distances and class scores; NMS per class."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        """Lay out the grid that the card describes and compare it with the outputs, where the file declares them."""
        self._model = model
        size, strides = model.image, model.output.strides
        if not strides or any(stride < 1 or size.height % stride or size.width % stride for stride in strides):
            raise ConfigError(
                f"model {model.name!r} of family 'edgemeter' has strides {strides} on an input of {size.height} x {size.width}: "
                "name in its card (output.strides) strides that divide both sides"
            )
        corners, self._strides = grid_cells(size.height, size.width, strides)
        # The cells' centres in pixels of the input: float32 [N, 2] as x, y.
        self._centres = (corners + np.float32(0.5)) * self._strides
        if loaded.outputs:
            self._check([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections of one query; a cell may hold several classes."""
        self._check([output.shape for output in outputs])
        output = self._model.output
        distances, scores = outputs[0][0], outputs[1][0]
        cells, classes = np.nonzero(scores >= output.score_threshold)
        reach = distances[cells] * self._strides[cells]
        centres = self._centres[cells]
        boxes = to_photo(np.concatenate([centres - reach[:, :2], centres + reach[:, 2:]], axis=1), frame)
        best, labels = scores[cells, classes], classes.astype(np.int32)
        iou = DEFAULT_NMS_IOU if output.nms_iou is None else output.nms_iou
        survivors = suppress_class_wise(boxes, best, labels, iou, output.max_detections)
        return Detections(boxes=boxes[survivors], scores=best[survivors], classes=labels[survivors])

    def _check(self, shapes: Sequence[tuple[int | None, ...]]) -> None:
        cells, output = len(self._strides), self._model.output
        expected = [(1, cells, 4), (1, cells, output.classes or len(output.labels) or None)]
        if len(shapes) == 2 and all(shape_fits(shape, want) for shape, want in zip(shapes, expected, strict=True)):
            return
        size = self._model.image
        raise ConfigError(
            f"model {self._model.name!r} of family 'edgemeter' has outputs {list(shapes)}, but strides {output.strides} on an input of "
            f"{size.height} x {size.width} require {expected}: correct strides and classes in its card, or name another family"
        )
