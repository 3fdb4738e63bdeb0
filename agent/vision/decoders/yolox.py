"""YOLOX: [1, cells, 5 + classes], one anchor per cell: its exporter writes the raw grid or (`--decode_in_inference`) boxes in pixels.

A raw row is x, y (offset from the cell, in cells), width, height (logarithm, in cells), objectness, class scores; cells run over the
strides in order, each row by row. The values decide: an offset stays within a few cells, a centre in pixels does not.
Source: Megvii-BaseDetection/YOLOX `yolox/utils/demo_utils.py` (`demo_postprocess`) and `utils/boxes.py` (`postprocess`: the best class
of a cell is its only candidate).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes
from edgemeter.agent.vision.decoders.boxes import OneTensor, mismatch
from edgemeter.agent.vision.decoders.grids import grid_cells

DEFAULT_STRIDES = (8, 16, 32)
# No box has e to the 20th cells; a broken model's must not leave float32.
_LARGEST_LOGARITHM = 20


class YoloX(OneTensor):
    """Decodes the raw grid; cell corners and strides are computed once."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._corners, self._strides = grid_cells(model.image.height, model.image.width, model.output.strides or DEFAULT_STRIDES)
        super().__init__(model, loaded)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` is the one tensor, float32."""
        self._check(outputs[0].shape)
        rows, threshold = outputs[0][0], self._output.score_threshold
        is_decoded = rows[:, 0].max(initial=0.0) > frame.input_width / 2
        # A class score never exceeds 1, so a row whose objectness is below the threshold has no candidate: most rows end here.
        cells = np.nonzero(rows[:, 4] > threshold)[0]
        rows = rows[cells]
        classes = rows[:, 5:].argmax(axis=1)
        scores = rows[:, 4] * rows[np.arange(len(rows)), 5 + classes]
        above = scores > threshold
        rows, cells = rows[above], cells[above]
        centred = rows[:, :4]
        if not is_decoded:
            sizes = np.exp(np.minimum(rows[:, 2:4], _LARGEST_LOGARITHM))
            centred = np.concatenate([rows[:, :2] + self._corners[cells], sizes], axis=1) * self._strides[cells]
        corners = boxes.corners(centred)
        return boxes.select(corners, scores[above], classes[above].astype(np.int32), self._output, frame)

    def _check(self, shape: tuple[int, ...]) -> None:
        classes = self._output.classes
        if len(shape) == 3 and shape[:2] == (1, len(self._corners)) and shape[2] > 5 and classes in (None, shape[2] - 5):
            return
        needs = f"an output of shape [1, {len(self._corners)}, {self._values(5)}]"
        raise mismatch("yolox", needs, list(shape), "`classes` or `family`")
