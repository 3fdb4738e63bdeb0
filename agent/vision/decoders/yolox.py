"""YOLOX: [1, cells, 5 + classes], one anchor per cell.

It is a raw grid, or was exported with `--decode_in_inference`. A raw row is x, y (offset from the
cell, in cells), width, height (logarithm, in cells), objectness, class scores. Cells run over the
strides in order, each row by row. The values decide whether rows are raw: an offset stays within a
few cells. Pictures are BGR, 0..255, at the upper left.
Source: Megvii-BaseDetection/YOLOX `yolox/utils/demo_utils.py` (`demo_postprocess`) and
`utils/boxes.py` (`postprocess`: the best class of a cell is its only candidate).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, Shape, boxes
from edgemeter.agent.vision.decoders.family import Family, Pictures, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.grids import anchors_per_cell, grid_cells, strides_of

# No box has e to the 20th cells; a broken model's must not leave float32.
_LARGEST_LOGARITHM = 20


class YoloX(Family):
    """Decodes the grid."""

    NAME = "yolox"
    PICTURES = Pictures(resize="letterbox-top-left", sd=(1.0, 1.0, 1.0), colour="BGR", nms_iou=0.65)

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return the head with one anchor per cell, by its name or by its usual strides."""
        rows, columns = facts.table
        if (
            columns is None
            or columns <= 5
            or (rows is not None and anchors_per_cell(rows, facts.size) != 1)
        ):
            return None
        doubt = (
            "YOLOX's head, pictures in BGR 0..255 at the upper left: models that take RGB 0..1 "
            "have the same shape; "
            "set `family`, input.colour, input.resize, input.mean and input.sd"
        )
        is_usual = facts.named is None and strides_of(rows, facts.size) == (8, 16, 32)
        if facts.named != "yolox" and not is_usual:
            return None
        return facts.one_of_heads("yolox", columns - 5, *((doubt,) if is_usual else ()))

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        rows, threshold = outputs[0][0], self._output.score_threshold
        strides = self._check([outputs[0].shape])
        is_decoded = rows[:, 0].max(initial=0.0) > frame.input_width / 2
        # A class score never exceeds 1, so a row whose objectness is below the threshold has no
        # candidate: most rows end here.
        cells = np.nonzero(rows[:, 4] > threshold)[0]
        rows = rows[cells]
        classes = rows[:, 5:].argmax(axis=1)
        scores = rows[:, 4] * rows[np.arange(len(rows)), 5 + classes]
        above = scores > threshold
        rows, cells = rows[above], cells[above]
        centred = rows[:, :4]
        if not is_decoded:
            corners, sides = grid_cells(*self._size, strides)
            sizes = np.exp(np.minimum(rows[:, 2:4], _LARGEST_LOGARITHM))
            centred = np.concatenate([rows[:, :2] + corners[cells], sizes], axis=1) * sides[cells]
        return boxes.select(
            boxes.corners(centred),
            scores[above],
            classes[above].astype(np.int32),
            self._output,
            frame,
        )

    def _check(self, shapes: Sequence[Shape]) -> tuple[int, ...]:
        shape, classes = shapes[0], self._output.classes
        strides = strides_of(shape[1], self._size) if len(shape) == 3 and shape[0] == 1 else ()
        if strides and (shape[2] or 0) > 5 and classes in (None, (shape[2] or 0) - 5):
            return strides
        raise boxes.mismatch(
            "yolox",
            f"an output of shape [1, cells of {self._size[0]} x {self._size[1]}, "
            f"{boxes.count_in_words(5, classes)}]",
            list(shape),
            "height, width, `classes` or `family`",
        )
