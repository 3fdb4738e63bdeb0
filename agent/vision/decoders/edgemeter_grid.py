"""Family `edgemeter`: the detector that ships; it answers once per cell of a grid, for each stride of `output.strides`.

Two outputs, in this order, each with its own quantisation scale where the model is quantised:
- boxes, float32 [1, N, 4]: how far the left, top, right and bottom edges lie from the cell's centre, in units of the stride, >= 0;
- scores, float32 [1, N, C]: 0..1 per class, sigmoid already applied.
N counts the cells of every stride's grid one after the other, each grid row by row.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoder import Detections, Floats, Frame
from edgemeter.agent.vision.nms import class_wise

# Where the card names none. Boxes of one class that share more than this are taken for one object.
DEFAULT_NMS_IOU = 0.6


class EdgemeterGrid:
    """Reads grids of edge distances and class scores; NMS per class."""

    def __init__(self, model: card.Card, loaded: Loaded) -> None:
        """Lay out the grid that the card describes and compare it with the outputs, where the file declares them.

        Raises:
            ConfigError: the card names no strides or one that does not divide the input, or the outputs have other shapes.
        """
        self._model = model
        self._centres, self._strides = _grid(model)
        if loaded.outputs:
            self._check([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: Frame) -> Detections:
        """Return the detections of one query; a cell may answer for several classes.

        Raises:
            ConfigError: the outputs, which a TorchScript file does not declare, do not fit.
        """
        self._check([output.shape for output in outputs])
        wanted = self._model.output
        distances, scores = outputs[0][0], outputs[1][0]
        cells, classes = np.nonzero(scores >= wanted.score_threshold)
        reach = distances[cells] * self._strides[cells, None]
        centres = self._centres[cells]
        boxes = _in_photo(np.concatenate([centres - reach[:, :2], centres + reach[:, 2:]], axis=1), frame)
        best, labels = scores[cells, classes], classes.astype(np.int32)
        iou = DEFAULT_NMS_IOU if wanted.nms_iou is None else wanted.nms_iou
        kept = class_wise(boxes, best, labels, iou, wanted.max_detections)
        return Detections(boxes=boxes[kept], scores=best[kept], classes=labels[kept])

    def _check(self, shapes: Sequence[tuple[int | None, ...]]) -> None:
        cells, output = len(self._strides), self._model.output
        wanted = [(1, cells, 4), (1, cells, output.classes or len(output.labels) or None)]
        if len(shapes) == 2 and all(_fits(shape, want) for shape, want in zip(shapes, wanted, strict=True)):
            return
        size = self._model.input
        message = (
            f"model {self._model.name!r} of family 'edgemeter' has outputs {list(shapes)}, but strides {output.strides} on an input of "
            f"{size.height} x {size.width} ask for {wanted}: correct strides and classes in its card, or name another family"
        )
        raise ConfigError(message)


def _grid(model: card.Card) -> tuple[Floats, Floats]:
    """Return all cells' centres in pixels of the input, float32 [N, 2] as x, y, and their strides, float32 [N].

    Raises:
        ConfigError: there are no strides, or one does not divide the input.
    """
    height, width = model.input.height, model.input.width
    strides = model.output.strides
    if not strides or any(stride < 1 or height % stride or width % stride for stride in strides):
        message = (
            f"model {model.name!r} of family 'edgemeter' has strides {strides} on an input of {height} x {width}: "
            "name in its card (output.strides) strides that divide both sides"
        )
        raise ConfigError(message)
    centres, sizes = [], []
    for stride in strides:
        rows, columns = np.mgrid[0 : height // stride, 0 : width // stride]
        centres.append((np.stack([columns.ravel(), rows.ravel()], axis=1) + 0.5) * stride)
        sizes.append(np.full(rows.size, stride))
    return np.concatenate(centres).astype(np.float32), np.concatenate(sizes).astype(np.float32)


def _fits(shape: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    """Tell whether a declared shape is the wanted one; a dimension that either side leaves open fits."""
    return len(shape) == len(wanted) and all(a is None or b is None or a == b for a, b in zip(shape, wanted, strict=True))


def _in_photo(boxes: NDArray[np.float32], frame: Frame) -> Floats:
    """Return boxes (pixels of the input) in pixels of the photograph, clipped to it: float32 [n, 4]."""
    offset = np.array([frame.offset_x, frame.offset_y] * 2, np.float32)
    scale = np.array([frame.scale_x, frame.scale_y] * 2, np.float32)
    limit = np.array([frame.photo_width, frame.photo_height] * 2, np.float32)
    clipped: Floats = np.clip((boxes - offset) / scale, 0, limit)
    return clipped
