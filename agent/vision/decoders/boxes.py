"""Common code of families: sigmoid, coordinates, and class-wise non-maximum suppression."""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import CardOutput
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, tamed

# The number of candidates compared together: large against numpy's call overhead, small enough for
# the cache.
_BLOCK = 192
# The most candidates for suppression, as in Ultralytics (`max_nms`); further ones never reach the
# first 300.
MOST_CANDIDATES = 30_000
# Coordinates in 0..1 are smaller, even outside the picture; in pixels the rightmost ones are
# larger.
LARGEST_NORMALISED = 2.0


def sigmoid(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-values)), or the values themselves if all are in 0..1.

    The graph has applied the sigmoid then. Nearly all logits of scores are below 0, so the extremes
    decide.
    """
    if values.size and values.min() >= 0 and values.max() <= 1:
        return values
    return logistic(values)


def logistic(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-values)), whatever the values."""
    # Beyond 88 the exponential leaves float32, and the sigmoid is 0.
    return np.asarray(np.float32(1) / (np.float32(1) + np.exp(-np.clip(values, -88, 88))))


def logit(probability: float) -> float:
    return (
        float(np.log(probability / (1 - probability)))
        if 0 < probability < 1
        else float(np.copysign(np.inf, probability - 0.5))
    )


def means(bins: Floats) -> Floats:
    """Return the mean of each distribution, in steps: float32 [edges, n].

    The distributions are logits [edges, steps, n].
    """
    weights = np.exp(bins - bins.max(axis=1, keepdims=True, initial=-np.inf))
    steps = np.arange(bins.shape[1], dtype=np.float32)[:, None]
    return np.asarray((weights * steps).sum(axis=1) / weights.sum(axis=1))


def above(scores: Floats, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return class and anchor of each score above `threshold`, class by class: int64 [n] each.

    `scores` is float32 [classes, anchors].

    A first pass finds the highest score of each class, after which few classes have to be searched:
    those above the threshold or with NaN.
    """
    if scores.flags.c_contiguous and scores.size:
        # For rows that are not in the cache, numpy's argmax is faster than max.
        highest = scores[np.arange(len(scores)), scores.argmax(axis=1)]
    else:
        highest = scores.max(axis=1, initial=-np.inf)
    candidates = np.flatnonzero(~(highest <= threshold))
    is_above = np.empty((len(candidates), scores.shape[1]), np.bool_)
    for row, candidate in zip(is_above, candidates, strict=True):
        np.greater(scores[candidate], threshold, out=row)
    classes, anchors = np.divmod(np.flatnonzero(is_above), max(1, scores.shape[1]))
    return candidates[classes], anchors


def suppress_class_wise(
    boxes: Floats, scores: Floats, classes: NDArray[np.int32], iou: float, limit: int
) -> NDArray[np.int64]:
    """Return the indices of the remaining boxes, best score first, at most `limit`: int64 [k].

    Boxes are float32 [n, 4] as x1, y1, x2, y2, in any unit. A box is suppressed if a better
    remaining box of its class overlaps it (intersection over union) by more than `iou`. Among equal
    scores the lower index comes first. A box without area, or turned inside out, overlaps nothing.
    """
    order = np.argsort(-scores, kind="stable")
    # Rows x1, y1, x2, y2, area, class: contiguous rows are several times as fast in numpy.
    rows = np.empty((6, len(order)), np.float32)
    rows[:4], rows[5] = boxes.take(order, axis=0).T, classes[order]
    np.multiply(np.maximum(rows[2] - rows[0], 0), np.maximum(rows[3] - rows[1], 0), out=rows[4])
    survivors: list[int] = []
    for start in range(0, len(order), _BLOCK):
        if len(survivors) >= limit:
            break
        block = rows[:, start : start + _BLOCK]
        places = np.arange(start, start + block.shape[1])
        if survivors:
            standing = np.flatnonzero(~_overlaps(rows.take(survivors, 1), block, iou).any(axis=0))
            block, places = block.take(standing, 1), places[standing]
        survivors += places[_greedy(_overlaps(block, block, iou))].tolist()
    return order[survivors[: max(limit, 0)]]


def _overlaps(a: Floats, b: Floats, iou: float) -> NDArray[np.bool_]:
    """Return whether boxes of `a` and `b` have the same class and overlap by more than `iou`.

    The boxes are float32 [6, n], the result is bool [a, b].
    """
    a = a[:, :, None]
    width, shared = sides = np.minimum(a[2:4], b[2:4, None])
    sides -= np.maximum(a[:2], b[:2, None])
    # With one side at least 0, separate boxes share 0 or less, which never exceeds a part of their
    # union.
    shared *= np.maximum(width, 0, out=width)
    union = np.add(a[4], b[4], out=width)
    union -= shared
    # Multiplied, so that there is no division by zero for boxes without area.
    union *= np.float32(iou)
    over: NDArray[np.bool_] = shared > union
    over &= a[5] == b[5]
    return over


def _greedy(over: NDArray[np.bool_]) -> list[int]:
    """Return the indices of the candidates that remain.

    `over` is symmetric; the best candidate comes first.
    """
    fallen = np.zeros(len(over), np.bool_)
    survivors = []
    # The memory shows changes during the loop, and is faster than the array.
    for i, has_fallen in enumerate(fallen.data):
        if not has_fallen:
            survivors.append(i)
            fallen |= over[i]
    return survivors


def corners(centred: Floats) -> Floats:
    """Return x1, y1, x2, y2 of boxes given as centre x, centre y, width, height: float32 [n, 4]."""
    centres, halves = centred.T[:2], centred.T[2:] / 2
    return np.asarray(np.concatenate([centres - halves, centres + halves]).T)


def input_unit(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return the factors of x and y that give pixels of the input: float32 [2].

    They are for boxes of four coordinates each. If most boxes do not exceed 2, they are 0..1; boxes
    of anchors without objects may lie anywhere.
    """
    if len(boxes) and np.median(boxes.max(axis=1)) > LARGEST_NORMALISED:
        return np.ones(2, np.float32)
    return np.array([frame.input_width, frame.input_height], np.float32)


def in_pixels(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return boxes, in pixels or 0..1, in pixels of the input: float32 [n, 4].

    A box has four coordinates of the input, x first.
    """
    return boxes * np.tile(input_unit(boxes, frame), 2)


def unplaced(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return boxes in pixels of the photograph, not clipped: float32 [n, 4].

    The given boxes are x1, y1, x2, y2 in pixels of the input.
    """
    offset, scale = np.array(
        [[frame.offset_x, frame.offset_y] * 2, [frame.scale_x, frame.scale_y] * 2], np.float32
    )
    return np.asarray((boxes - offset) / scale)


def to_photo(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return boxes in pixels of the photograph, clipped to it: float32 [n, 4].

    The given boxes are x1, y1, x2, y2 in pixels of the input.
    """
    inside: Floats = np.maximum(unplaced(boxes, frame), np.float32(0))
    return np.minimum(
        inside, np.array([frame.photo_width, frame.photo_height] * 2, np.float32), out=inside
    )


def select(
    boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: CardOutput, frame: PhotoFrame
) -> Detections:
    """Return the candidates after suppression, best first, in pixels of the photograph.

    The arguments are as in `surviving`.
    """
    survivors = surviving(boxes, scores, classes, output)
    return Detections(to_photo(boxes[survivors], frame), scores[survivors], classes[survivors])


def surviving(
    boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: CardOutput
) -> NDArray[np.int64]:
    """Return the indices of the candidates that remain after suppression, best first: int64 [k].

    Boxes are float32 [n, 4] as x1, y1, x2, y2 in pixels of the input, above the score threshold of
    the card's `output`; without `nms_iou` there, nothing is suppressed. Boxes with NaN or infinity
    are dropped; the verdict reports them.
    """
    places: NDArray[np.int64] | None = None
    if tamed(boxes) is not boxes:
        places = np.flatnonzero(np.isfinite(boxes).all(axis=1))
        boxes, scores, classes = boxes[places], scores[places], classes[places]
    if len(scores) > MOST_CANDIDATES:
        best = np.sort(np.argpartition(-scores, MOST_CANDIDATES)[:MOST_CANDIDATES])
        boxes, scores, classes = boxes[best], scores[best], classes[best]
        places = best if places is None else places[best]
    if output.nms_iou is None:
        survivors = np.argsort(-scores, kind="stable")[: output.max_detections]
    else:
        survivors = suppress_class_wise(
            boxes, scores, classes, output.nms_iou, output.max_detections
        )
    return survivors if places is None else places[survivors]


def count_in_words(other_values: int, classes: int | None) -> str:
    """Return the number of values of an anchor in words.

    They are the classes, if the card has their number, and these others.
    """
    return f"{other_values} + classes" if classes is None else str(other_values + classes)


def mismatch(family: str, needs: str, gives: object, correct: str = "`family`") -> ConfigError:
    """Return the error for outputs that do not have the family's shapes."""
    return ConfigError(
        f"family {family} needs {needs}, the model gives {gives}: correct {correct} in its card"
    )
