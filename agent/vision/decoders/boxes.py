"""Code that families share: sigmoid, coordinates, and class-wise non-maximum suppression."""

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import CardOutput
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, tamed

Ints = NDArray[np.int32]
# Candidates compared together: large enough that numpy's call overhead vanishes, small enough that the pairs stay in the cache.
_BLOCK = 192
# As many candidates as Ultralytics hands to its suppression (`max_nms`); more only cost time, they never reach the first 300.
MOST_CANDIDATES = 30_000
# A coordinate in 0..1 never reaches this, even of a box that leaves the picture; in pixels the rightmost always do.
LARGEST_NORMALISED = 2.0


def sigmoid(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-values)); what is 0..1 throughout comes back as it is, the graph applied it already.

    Logits of scores are below 0 but for the few that found something, so the extremes of all of them decide.
    """
    if values.size and values.min() >= 0 and values.max() <= 1:
        return values
    return logistic(values)


def logistic(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-values)), whatever the values."""
    # Beyond 88 the exponential leaves float32; the sigmoid is 0 there to all its digits.
    return np.asarray(np.float32(1) / (np.float32(1) + np.exp(-np.clip(values, -88, 88))))


def logit(probability: float) -> float:
    """Return the value whose sigmoid this probability is."""
    return float(np.log(probability / (1 - probability))) if 0 < probability < 1 else float(np.copysign(np.inf, probability - 0.5))


def means(bins: Floats) -> Floats:
    """Return the mean of each distribution, in steps: float32 [edges, n] of logits [edges, steps, n]."""
    weights = np.exp(bins - bins.max(axis=1, keepdims=True, initial=-np.inf))
    steps = np.arange(bins.shape[1], dtype=np.float32)[:, None]
    return np.asarray((weights * steps).sum(axis=1) / weights.sum(axis=1))


def above(scores: Floats, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return class and anchor of each score above `threshold`, class by class: int64 [n] each; `scores` is float32 [classes, anchors].

    The highest score of each class takes one pass that writes nothing; few classes have to be searched after it. One with a score that is
    no number is searched too.
    """
    if scores.flags.c_contiguous and scores.size:
        # Of rows that are not in the cache, numpy finds the place of the highest value sooner than the value.
        highest = scores[np.arange(len(scores)), scores.argmax(axis=1)]
    else:
        highest = scores.max(axis=1, initial=-np.inf)
    candidates = np.flatnonzero(~(highest <= threshold))
    is_above = np.empty((len(candidates), scores.shape[1]), np.bool_)
    for row, candidate in zip(is_above, candidates, strict=True):
        np.greater(scores[candidate], threshold, out=row)
    classes, anchors = np.divmod(np.flatnonzero(is_above), max(1, scores.shape[1]))
    return candidates[classes], anchors


def suppress_class_wise(boxes: Floats, scores: Floats, classes: Ints, iou: float, limit: int) -> NDArray[np.int64]:
    """Return the indices of the boxes that survive, best score first, at most `limit`: int64 [k].

    Boxes are float32 [n, 4] as x1, y1, x2, y2, in any unit. One falls when an already kept box of its class overlaps it (intersection
    over union) by more than `iou` (0..1; equal does not fall). Among equal scores the lower index comes first. A box without area,
    or turned inside out, overlaps nothing.
    """
    order = np.argsort(-scores, kind="stable")
    # Each value as an array of its own, which numpy goes through several times as fast: x1, y1, x2, y2, area, class.
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
    """Return whether a box of `a` and one of `b` (float32 [6, n]) are of one class and overlap by more than `iou`: bool [a, b]."""
    a = a[:, :, None]
    width, shared = sides = np.minimum(a[2:4], b[2:4, None])
    sides -= np.maximum(a[:2], b[:2, None])
    # With one side at least 0, boxes apart share 0 or less, which is never more than a part of their union.
    shared *= np.maximum(width, 0, out=width)
    union = np.add(a[4], b[4], out=width)
    union -= shared
    # Multiplied out, so that two boxes without area are no division by zero.
    union *= np.float32(iou)
    over: NDArray[np.bool_] = shared > union
    over &= a[5] == b[5]
    return over


def _greedy(over: NDArray[np.bool_]) -> list[int]:
    """Return which of the candidates survive each other; `over` is symmetric, best candidate first."""
    fallen = np.zeros(len(over), np.bool_)
    survivors = []
    # The memory is read as it changes, and faster than the array.
    for i, has_fallen in enumerate(fallen.data):
        if not has_fallen:
            survivors.append(i)
            fallen |= over[i]
    return survivors


def corners(centred: Floats) -> Floats:
    """Return x1, y1, x2, y2 of boxes given as centre x, centre y, width, height: float32 [n, 4]."""
    centres, halves = centred.T[:2], centred.T[2:] / 2
    ends: Floats = np.concatenate([centres - halves, centres + halves]).T
    return ends


def input_unit(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return what x and y of boxes (four coordinates each) are multiplied by to be pixels of the input: float32 [2].

    Where most boxes reach no further than 2, they are 0..1; of anchors that found nothing some may lie anywhere.
    """
    if len(boxes) and np.median(boxes.max(axis=1)) > LARGEST_NORMALISED:
        return np.ones(2, np.float32)
    return np.array([frame.input_width, frame.input_height], np.float32)


def in_pixels(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return boxes (four coordinates of the input, x first), in pixels or 0..1, in pixels: float32 [n, 4]."""
    return boxes * np.tile(input_unit(boxes, frame), 2)


def unplaced(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return boxes (x1, y1, x2, y2 in pixels of the input) in pixels of the photograph, which they may leave: float32 [n, 4]."""
    offset, scale = np.array([[frame.offset_x, frame.offset_y] * 2, [frame.scale_x, frame.scale_y] * 2], np.float32)
    in_photo: Floats = (boxes - offset) / scale
    return in_photo


def to_photo(boxes: Floats, frame: PhotoFrame) -> Floats:
    """Return boxes (x1, y1, x2, y2 in pixels of the input) in pixels of the photograph, clipped to it: float32 [n, 4]."""
    inside: Floats = np.maximum(unplaced(boxes, frame), np.float32(0))
    return np.minimum(inside, np.array([frame.photo_width, frame.photo_height] * 2, np.float32), out=inside)


def select(boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: CardOutput, frame: PhotoFrame) -> Detections:
    """Return the candidates that survive suppression, best first, in pixels of the photograph; the arguments are those of `surviving`."""
    survivors = surviving(boxes, scores, classes, output)
    return Detections(to_photo(boxes[survivors], frame), scores[survivors], classes[survivors])


def surviving(boxes: Floats, scores: Floats, classes: NDArray[np.int32], output: CardOutput) -> NDArray[np.int64]:
    """Return the places of the candidates that survive suppression, best first: int64 [k].

    Boxes are float32 [n, 4] as x1, y1, x2, y2 in pixels of the input, already above the score threshold of the card's `output`; without
    `nms_iou` there nothing is suppressed. A box that is no number is nowhere and falls; that there was one is the verdict's business.
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
        survivors = suppress_class_wise(boxes, scores, classes, output.nms_iou, output.max_detections)
    return survivors if places is None else places[survivors]


def count_in_words(other_values: int, classes: int | None) -> str:
    """Return how many values an anchor has: its classes, if the card counts them, and these others."""
    return f"{other_values} + classes" if classes is None else str(other_values + classes)


def mismatch(family: str, needs: str, gives: object, correct: str = "`family`") -> ConfigError:
    """Return the error for outputs of other shapes than the family's: what it needs, what the model gives, what to correct."""
    return ConfigError(f"family {family} needs {needs}, the model gives {gives}: correct {correct} in its card")
