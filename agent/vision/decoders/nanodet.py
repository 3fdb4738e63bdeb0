"""NanoDet and NanoDet-Plus: per cell the class scores and, for each edge, a distribution over 0..reg_max strides from the cell.

One output [1, cells, classes + 4 x (reg_max + 1)] (Plus), or scores and distances apart for each stride, as rows or as maps, in any order.
An edge's distance is the mean of its distribution (softmax). NanoDet's cells (three strides) reach from their centre, those of
Plus (four strides) from their upper left corner. The sigmoid of the scores is in the graph of most exports: the values decide.
Source: RangiLyu/nanodet `nanodet/model/head/nanodet_plus_head.py` (`get_single_level_center_priors`, `get_bboxes`), `gfl_head.py`,
`config/`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, blanks, boxes
from edgemeter.agent.vision.decoders.boxes import sigmoid
from edgemeter.agent.vision.decoders.grids import grid_cells, grid_side

PLUS_STRIDES = (8, 16, 32, 64)
OLD_STRIDES = (8, 16, 32)
# Values of a distribution: reg_max is 7 in most configurations of the project, 10 in nanodet-g and those on EfficientNet-Lite and RepVGG.
STEPS = 8
MORE_STEPS = 11


class NanoDet:
    """Decodes the rows of all strides together; the grid is computed once."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._model, self._output = model, model.output
        self._strides = model.output.strides or PLUS_STRIDES
        self._sides = [(grid_side(model.image.height, stride), grid_side(model.image.width, stride)) for stride in self._strides]
        corners, self._reach = grid_cells(model.image.height, model.image.width, self._strides)
        self._centres = (corners + (0.5 if len(self._strides) == len(OLD_STRIDES) else 0.0)) * self._reach
        if declared := blanks(loaded):
            self._rows(declared)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; every class of a cell above the threshold is a candidate of its own."""
        raw, distances = self._rows(outputs)
        scores = sigmoid(raw)
        cells, classes = np.nonzero(scores > self._output.score_threshold)
        reach = _mean(distances[cells].reshape(len(cells), 4, distances.shape[1] // 4)) * self._reach[cells]
        centres = self._centres[cells]
        size = np.array([frame.input_width, frame.input_height] * 2, np.float32)
        # Clipped before suppression, as NanoDet does: overlaps are those of what can be seen.
        corners = np.clip(np.concatenate([centres - reach[:, :2], centres + reach[:, 2:]], axis=1), 0, size)
        return boxes.select(corners, scores[cells, classes], classes.astype(np.int32), self._output, frame)

    def _rows(self, outputs: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the scores [cells, classes] and the distributions [cells, 4 x steps] of all strides."""
        total = len(self._reach)
        if len(outputs) == 1:
            return self._split(_by_rows(outputs[0], total, None), outputs)
        scores, distances = [], []
        for height, width in self._sides:
            of_level = [rows for rows in (_by_rows(output, height * width, (height, width)) for output in outputs) if rows is not None]
            if len(of_level) == 1:
                level_scores, other = self._split(of_level[0], outputs)
            elif len(of_level) == 2:
                # By the class count, else by the distributions' width.
                classes, widths = self._output.classes, [rows.shape[1] for rows in of_level]
                is_first = widths[1] == 4 * STEPS if classes is None else widths[0] == classes
                level_scores, other = of_level if is_first else of_level[::-1]
            else:
                raise ConfigError(self._mismatch(outputs))
            scores.append(level_scores)
            distances.append(other)
        self._check(scores, distances, outputs)
        return np.concatenate(scores), np.concatenate(distances)

    def _split(self, rows: Floats | None, outputs: Sequence[Floats]) -> tuple[Floats, Floats]:
        classes = self._output.classes
        if rows is None or (rows.shape[1] - (classes or rows.shape[1] - 4 * STEPS)) % 4 or rows.shape[1] <= (classes or 4 * STEPS):
            raise ConfigError(self._mismatch(outputs))
        split = classes or rows.shape[1] - 4 * STEPS
        return rows[:, :split], rows[:, split:]

    def _check(self, scores: Sequence[Floats], distances: Sequence[Floats], outputs: Sequence[Floats]) -> None:
        widths = {(level.shape[1], other.shape[1]) for level, other in zip(scores, distances, strict=True)}
        ((classes, edges), *other_widths) = widths
        if other_widths or edges % 4 or edges < 8 or self._output.classes not in (None, classes):
            raise ConfigError(self._mismatch(outputs))

    def _mismatch(self, outputs: Sequence[Floats]) -> str:
        size, classes = self._model.image, self._output.classes
        return (
            f"family nanodet on an input of {size.height} x {size.width} with strides {list(self._strides)} has {len(self._reach)} cells "
            f"of {'classes' if classes is None else classes} + 4 x {STEPS} values, the model gives "
            f"{[list(output.shape) for output in outputs]}: correct height, width, output.strides or output.classes in its card"
        )


def _by_rows(output: Floats, cells: int, sides: tuple[int, int] | None) -> Floats | None:
    """Return the output as [cells, values], whatever the order of its axes; None where it has not as many cells."""
    shape, flat = output.shape, output
    if len(shape) == 4 and shape[0] == 1 and sides is not None:
        if shape[2:] == sides:
            flat = output.reshape(shape[1], cells)
        elif shape[1:3] == sides:
            flat = output.reshape(cells, shape[3])
    elif len(shape) == 3 and shape[0] == 1:
        flat = output[0]
    if flat.ndim != 2 or cells not in flat.shape:
        return None
    return flat if flat.shape[0] == cells else flat.T


def _mean(logits: Floats) -> Floats:
    """Return the mean of each distribution, in steps: [n, 4] of logits [n, 4, steps]."""
    weights = np.exp(logits - logits.max(axis=2, keepdims=True, initial=-np.inf))
    return np.asarray(weights @ np.arange(logits.shape[2], dtype=np.float32) / weights.sum(axis=2))
