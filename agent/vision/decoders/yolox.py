"""YOLOX as its exporter writes it: the raw grid [1, cells, 5 + classes], one anchor per cell, not decoded inside the model.

A row is x, y (offset from the cell, in cells), width, height (logarithm, in cells), objectness, class scores; cells run over the
strides in order, each row by row.
Source: Megvii-BaseDetection/YOLOX `yolox/utils/demo_utils.py` (`demo_postprocess`) and `utils/boxes.py` (`postprocess`: the best class
of a cell is its only candidate).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision import boxes
from edgemeter.agent.vision.decoder import Detections, Floats, Frame

DEFAULT_STRIDES = (8, 16, 32)


class YoloX:
    """Decodes the raw grid; cell corners and strides are computed once."""

    def __init__(self, model: card.Card, loaded: Loaded) -> None:
        self._output = model.output
        self._corners, self._strides = _grid(model.input.height, model.input.width, model.output.strides or DEFAULT_STRIDES)
        for info in loaded.outputs:
            if len(info.shape) == 3 and None not in info.shape:
                self._check(tuple(size or 0 for size in info.shape))

    def decode(self, outputs: Sequence[Floats], frame: Frame) -> Detections:
        """Return the detections; `outputs` is the one tensor, float32."""
        self._check(outputs[0].shape)
        rows, threshold = outputs[0][0], self._output.score_threshold
        # A class score never exceeds 1, so a row whose objectness is below the threshold has no candidate: most rows end here.
        cells = np.nonzero(rows[:, 4] > threshold)[0]
        rows = rows[cells]
        classes = rows[:, 5:].argmax(axis=1)
        scores = rows[:, 4] * rows[np.arange(len(rows)), 5 + classes]
        above = scores > threshold
        rows, cells = rows[above], cells[above]
        centres = (rows[:, :2] + self._corners[cells]) * self._strides[cells]
        sizes = np.exp(rows[:, 2:4]) * self._strides[cells]
        found = boxes.corners(np.concatenate([centres, sizes], axis=1))
        return boxes.select(found, scores[above], classes[above].astype(np.int32), self._output, frame)

    def _check(self, shape: tuple[int, ...]) -> None:
        classes = self._output.classes
        if len(shape) == 3 and shape[:2] == (1, len(self._corners)) and shape[2] > 5 and classes in (None, shape[2] - 5):
            return
        wanted = f"[1, {len(self._corners)}, {'5 + classes' if classes is None else 5 + classes}]"
        message = f"family yolox needs an output of shape {wanted}, the model gives {list(shape)}: correct its card"
        raise ConfigError(message)


def _grid(height: int, width: int, strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the cells' x, y (in cells) and their strides (pixels): float32 [cells, 2] and [cells, 1]."""
    corners, sizes = [], []
    for stride in strides:
        y, x = np.mgrid[: height // stride, : width // stride]
        corners.append(np.stack([x.ravel(), y.ravel()], axis=1))
        sizes.append(np.full((x.size, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(sizes).astype(np.float32)
