"""The values of a detector's outputs show what their shapes do not.

This module alone decides it, and all rows of a query vote.

- 0..1 or pixels: in pixels, most boxes with a score reach beyond 2; as 0..1, none does.
- Corners or centres: corners grow (x2 >= x1, y2 >= y1), while centres and sizes seldom do; boxes
  around centres lie in the picture. DETR's sets are read as centres unless they show corners, other
  boxes as corners unless they show centres.
- Background: the first or the last score, whichever wins in most rows. For DETR it is the last,
  unless the first wins and the last does not.
- Probabilities or logits: probabilities lie in 0..1. Logits with a background go through a softmax,
  others through a sigmoid.
"""

from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.vision.decoders import Floats, PhotoFrame, Shape
from edgemeter.agent.vision.decoders.boxes import corners, input_unit, logistic

Form = Literal["corners", "centres"]
# Shares of the rows: corners grow apart from rounding; boxes around centres may leave the picture a
# little.
_ALL, _NEARLY_ALL, _MOST = 0.98, 0.9, 0.5
# Centres of boxes are all over the picture; distances from anchors are similar everywhere.
_LEAST_SPREAD = 0.25
# A quantised probability may leave 0..1 by a step; logits of rows without an object lie far below.
_STEP = 0.1


def boxes_in_pixels(
    boxes: Floats, candidates: NDArray[np.int64], frame: PhotoFrame, usual: Form
) -> Floats:
    """Return the candidates among the boxes as x1, y1, x2, y2 in pixels of the input.

    The boxes are float32 [n, 4], the result is float32 [candidates, 4].

    Raises:
        ConfigError: many boxes make no sense in any form.
    """
    rows = boxes[candidates]
    if not len(rows):
        return rows
    size = np.array([frame.input_width, frame.input_height] * 2, np.float32)
    unit = np.tile(input_unit(rows, frame), 2)
    is_centred = _form(boxes * (unit / size), usual) == "centres"
    return (corners(rows) if is_centred else rows) * unit


def _form(boxes: Floats, usual: Form) -> Form:
    """Return the form of boxes as shares of the picture.

    Raises:
        ConfigError: the boxes have neither form.
    """
    first, second = boxes[:, :2], boxes[:, 2:]
    are_corners = float((second >= first).all(axis=1).mean()) >= _ALL
    if usual == "centres":
        return "corners" if are_corners and _inside(first, second, 0.05) < _NEARLY_ALL else usual
    if are_corners:
        return usual
    if _inside(first, second, 0.3) < _MOST or float(np.ptp(first, axis=0).max()) < _LEAST_SPREAD:
        raise ConfigError(
            "the boxes are neither corners nor centres and sizes, but may be distances or "
            "offsets from anchors: correct `family`"
        )
    return "centres"


def _inside(centres: Floats, sizes: Floats, margin: float) -> float:
    """Return the share of boxes around these centres that leave the picture by at most a margin."""
    return float(
        ((centres - sizes / 2 >= -margin) & (centres + sizes / 2 <= 1 + margin)).all(axis=1).mean()
    )


def are_probabilities(*values: Floats) -> bool:
    """Return whether all of these are probabilities, not logits."""
    return all(part.min() >= -_STEP and part.max() <= 1 + _STEP for part in values if part.size)


def class_scores(
    values: Floats, classes: int | None, usual: Literal["last"] | None = None
) -> tuple[Floats, bool]:
    """Return the scores of the classes, 0..1, without a background; and whether there was one.

    The scores are float32 [n, classes]. With `usual` there is a background in that column, or in
    the other if that one wins in most rows.
    """
    are_done = are_probabilities(values)
    column = (
        None if classes == values.shape[1] else _background(values, 0.5 if are_done else 0.0, usual)
    )
    if column is None:
        return values if are_done else logistic(values), False
    if not are_done:
        weights = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
        values = weights / weights.sum(axis=1, keepdims=True)
    return values[:, 1:] if column == 0 else values[:, :-1], True


def _background(values: Floats, least: float, usual: Literal["last"] | None) -> int | None:
    """Return the column of the background, 0 or -1.

    It is None if neither wins in most rows with a score above `least`.
    """
    winners = values.argmax(axis=1)
    first, last = (np.count_nonzero(winners == column) for column in (0, values.shape[1] - 1))
    if usual == "last":
        return 0 if 2 * first > len(values) and 10 * last < len(values) else -1
    column = 0 if first > last else -1
    wins = values[winners == column % values.shape[1], column]
    return column if 2 * np.count_nonzero(wins > least) > len(values) else None


class TwoTables(NamedTuple):
    """The index of the output with boxes, the number of rows, and that of scores in each."""

    boxes_at: int
    rows: int | None
    columns: int


def two_tables(shapes: Sequence[Shape]) -> TwoTables | None:
    """Return the tables of boxes and scores, None for other outputs."""
    # YOLOv4's boxes are [1, n, 1, 4].
    flat = [
        shape if len(shape) == 3 else (*shape[:2], *shape[3:])
        for shape in shapes
        if len(shape) == 3 or shape[2:3] == (1,)
    ]
    if (
        len(shapes) != 2
        or [len(shape) for shape in flat] != [3, 3]
        or not {shape[0] for shape in flat} <= {1, None}
    ):
        return None
    for at, boxes_axis, scores_axis in product((0, 1), (1, 2), (1, 2)):
        corners, scores = flat[at], flat[1 - at]
        columns = scores[3 - scores_axis]
        if corners[3 - boxes_axis] == 4 and corners[boxes_axis] == scores[scores_axis] and columns:
            return TwoTables(at, corners[boxes_axis], columns)
    return None
