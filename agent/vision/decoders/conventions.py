"""The values of a detector's outputs show what their shapes do not. This is the one place that decides it; all rows of a query vote.

- 0..1 or pixels: most boxes with a score reach beyond 2 in pixels, and none does as 0..1.
- Corners or centres: corners grow (x2 >= x1, y2 >= y1), and boxes around centres lie in the picture. What a family usually has counts where
  nearly all its boxes are possible; else the reading in which more boxes are.
- Background: of one column more than there are classes, first or last, it is the one that wins in more rows.
- Probabilities or logits: probabilities lie in 0..1. Logits beside a background go through a softmax, others through a sigmoid.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision.decoders import Floats, PhotoFrame, Shape
from edgemeter.agent.vision.decoders.boxes import LARGEST_NORMALISED, corners, logistic

Form = Literal["corners", "centres"]
# Of a family's usual reading; what is predicted may leave the picture a little.
_NEARLY_ALL, _BEYOND = 0.9, 0.05
# Of boxes in either reading; distances to edges and offsets from anchors are possible as boxes less often.
_MOST = 0.8
# A quantised probability may miss 0..1 by a step; logits of rows without an object lie far below.
_STEP = 0.1


def boxes_in_pixels(boxes: Floats, candidates: NDArray[np.int64], frame: PhotoFrame, usual: Form) -> Floats:
    """Return the candidates among the boxes (float32 [n, 4]) as x1, y1, x2, y2 in pixels of the input: float32 [candidates, 4].

    Raises:
        ConfigError: many boxes are possible in no reading.
    """
    rows = boxes[candidates]
    if not len(rows):
        return rows
    size = np.array([frame.input_width, frame.input_height] * 2, np.float32)
    unit = size if np.median(rows.max(axis=1)) <= LARGEST_NORMALISED else np.float32(1)
    form = _form(boxes * (unit / size), usual)
    return (corners(rows) if form == "centres" else rows) * unit


def _form(boxes: Floats, usual: Form) -> Form:
    """Return what boxes as parts of the picture are."""
    first, second = boxes[:, :2], boxes[:, 2:]
    reach = second / 2
    shares: dict[Form, float] = {
        "corners": float((second >= first).all(axis=1).mean()),
        "centres": float(((first - reach >= -_BEYOND) & (first + reach <= 1 + _BEYOND)).all(axis=1).mean()),
    }
    if max(shares.values()) < _MOST:
        raise ConfigError(
            "the boxes are neither corners nor centres and sizes: distances or offsets from anchors are decoded otherwise; correct `family`"
        )
    other: Form = "corners" if usual == "centres" else "centres"
    return other if shares[usual] < min(_NEARLY_ALL, shares[other]) else usual


def are_probabilities(*values: Floats) -> bool:
    """Return whether all of these are probabilities, not logits."""
    return all(part.min() >= -_STEP and part.max() <= 1 + _STEP for part in values if part.size)


def class_scores(values: Floats, classes: int | None) -> tuple[Floats, bool]:
    """Return the scores of the classes, 0..1, without a background, float32 [n, classes]; and whether there was one."""
    is_done = are_probabilities(values)
    background = None if classes == values.shape[1] else _background(values, 0.5 if is_done else 0.0, is_sure=classes is not None)
    if background is None:
        return values if is_done else logistic(values), False
    if not is_done:
        weights = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
        values = weights / weights.sum(axis=1, keepdims=True)
    return values[:, 1:] if background == 0 else values[:, :-1], True


def _background(values: Floats, least: float, *, is_sure: bool) -> int | None:
    """Return the column of the background, 0 or -1; None where neither wins in most rows and none is sure to be there."""
    winners = values.argmax(axis=1)
    wins = [np.count_nonzero(winners == 0), np.count_nonzero(winners == values.shape[1] - 1)]
    column = 0 if wins[0] > wins[1] else -1
    is_seen = 2 * np.count_nonzero(values[winners == column % values.shape[1], column] > least) > len(values)
    return column if is_sure or is_seen else None


def two_tables(shapes: Sequence[Shape]) -> tuple[int, int | None, int] | None:
    """Return which output holds the boxes, how many rows and how many scores in each; None where these are other outputs."""
    # YOLOv4's boxes are [1, n, 1, 4].
    flat = [shape if len(shape) == 3 else (*shape[:2], *shape[3:]) for shape in shapes if len(shape) == 3 or shape[2:3] == (1,)]
    if len(shapes) != 2 or [len(shape) for shape in flat] != [3, 3] or not {shape[0] for shape in flat} <= {1, None}:
        return None
    for at, boxes_axis, scores_axis in product((0, 1), (1, 2), (1, 2)):
        corners, scores = flat[at], flat[1 - at]
        columns = scores[3 - scores_axis]
        if corners[3 - boxes_axis] == 4 and corners[boxes_axis] == scores[scores_axis] and columns:
            return at, corners[boxes_axis], columns
    return None
