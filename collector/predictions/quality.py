"""The quality of the kept predictions of one run: confusion matrix, precision and recall, best threshold, calibration."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract.kept_predictions import SHOWN_SCORE, KeptPredictions
from edgemeter.collector.predictions.matching import FALSE, IGNORED, IOU, match_all, match_labels, overlaps, photographs_of

BACKGROUND = "background"
RECALLS = 101
BINS = 10
# Parts of the items of which one after the other is left out for the bounds of the calibration error; fewer items have none.
PARTS = 20


@dataclass(frozen=True, slots=True)
class ConfusionMatrix:
    """Counts of objects (or items) by annotated label (row) and predicted label (column).

    Of a detector the last row and column are `background`: objects found where nothing is annotated, and annotated ones missed.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class PrecisionRecallCurve:
    """Precision at 101 recalls from 0 to 1, as COCO's evaluation interpolates it at IoU 0.5; crowds are not counted.

    Where no score below the least one was kept, it ends early: its mean is the AP50 of what was kept, below that of the run.
    """

    label: str | None
    objects: int
    precisions: tuple[float, ...]

    @property
    def ap50(self) -> float:
        """Return the mean precision."""
        return sum(self.precisions) / len(self.precisions)


@dataclass(frozen=True, slots=True)
class BestThreshold:
    """The score from which on objects are to be shown for the highest F1 (IoU 0.5), with what is then right, false and missed."""

    label: str | None
    score: float
    f1: float
    precision: float
    recall: float
    right: int
    false: int
    missed: int


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Predictions with a score from `low` to `high`: how many, their mean score, and the share that is right; None of no prediction."""

    low: float
    high: float
    count: int
    mean_score: float | None
    right_ratio: float | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Expected calibration error: how far scores are from the share of right predictions, over ten bins weighted by their counts.

    `by_chance` is the error that a perfectly calibrated model shows on as many predictions. The bounds (95%) are by a jackknife over the
    items, the lower one less `by_chance`; `reason` is why there are none. `error` and `by_chance` are None without predictions.
    """

    error: float | None
    by_chance: float | None
    low: float | None
    high: float | None
    count: int
    bins: tuple[CalibrationBin, ...]
    reason: str | None = None


def confusion(predictions: KeptPredictions, score: float = SHOWN_SCORE, iou: float = IOU) -> ConfusionMatrix:
    """Return the confusion matrix; of a detector of the objects with at least this score."""
    counts: Counter[tuple[int, int]] = Counter()
    is_detector, background = not predictions.answers, len(predictions.labels)
    for photograph in photographs_of(predictions):
        matched = match_all(photograph, score if is_detector else 0.0, iou)
        for thing, index in zip(photograph.truth, matched.found_of, strict=True):
            if not thing.ignored:
                counts[thing.label, background if index is None else photograph.found[index].label] += 1
        for thing, match in zip(photograph.found, matched.truth_of, strict=False):
            counts[background, thing.label] += match == FALSE
    size = background + is_detector
    rows = tuple(tuple(counts[row, column] for column in range(size)) for row in range(size))
    return ConfusionMatrix((*predictions.labels, *[BACKGROUND] * is_detector), rows)


def precision_recall(predictions: KeptPredictions, label: str | None = None) -> PrecisionRecallCurve | None:
    """Return the curve of a label, or with None the mean over all labels that are annotated; None where there is nothing to find."""
    if label is not None and label not in predictions.labels:
        raise ConfigError(f"no label is called {label!r}: {near(label, predictions.labels)}")
    return next((curve for curve in precision_recall_curves(predictions) if curve.label == label), None)


def precision_recall_curves(predictions: KeptPredictions) -> tuple[PrecisionRecallCurve, ...]:
    """Return the mean curve (`label` None), then that of each label that is annotated; none where there is nothing to find."""
    objects_found = _of_detector(predictions)
    curves = [objects_found.curve(index, name) for index, name in enumerate(predictions.labels) if objects_found.objects[index]]
    if not curves:
        return ()
    mean = np.mean([curve.precisions for curve in curves], axis=0)
    return PrecisionRecallCurve(None, sum(curve.objects for curve in curves), tuple(mean.tolist())), *curves


def best_threshold(predictions: KeptPredictions) -> tuple[BestThreshold, ...]:
    """Return the best threshold for all labels together (`label` None), then that of each label of which an object was found rightly."""
    objects_found = _of_detector(predictions)
    best = [objects_found.best(None, None), *(objects_found.best(index, name) for index, name in enumerate(predictions.labels))]
    return tuple(threshold for threshold in best if threshold is not None)


def calibration(predictions: KeptPredictions) -> Calibration:
    """Return the calibration error: of a detector of all kept objects (right at IoU 0.5), of a classifier of the best classes."""
    objects_found = _FoundObjects.of(predictions)
    scores = objects_found.scores
    # By item and bin: predictions, the sum of their scores, and how many are right.
    sums = np.zeros((3, len(predictions.photographs) + len(predictions.answers), BINS))
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    for sum_of, values in zip(sums, (np.ones(len(scores)), scores, objects_found.is_right.astype(float)), strict=True):
        np.add.at(sum_of, (objects_found.photographs, bins), values)
    counts, score_sums, rights = (sum_of.sum(axis=0) for sum_of in sums)
    edges = [index / BINS for index in range(BINS + 1)]
    described = tuple(
        CalibrationBin(low, high, int(count), *((score_sum / count, right / count) if count else (None, None)))
        for low, high, count, score_sum, right in zip(edges, edges[1:], counts.tolist(), score_sums.tolist(), rights.tolist(), strict=False)
    )
    error, by_chance = _calibration_error(sums.sum(axis=1)), _error_by_chance(counts, score_sums)
    reach, reason = _calibration_reach(sums)
    if not len(scores):
        return Calibration(None, None, None, None, 0, described, reason)
    low, high = (None, None) if reach is None else (max(error - by_chance - reach, 0.0), min(error + reach, 1.0))
    return Calibration(error, by_chance, low, high, len(scores), described, reason)


def _calibration_error(sums: NDArray[np.float64]) -> float:
    counts, score_sums, rights = sums
    return float(np.abs(score_sums - rights).sum() / max(counts.sum(), 1.0))


def _error_by_chance(counts: NDArray[np.float64], score_sums: NDArray[np.float64]) -> float:
    """Return the mean absolute deviation of binomial counts, as that of a normal distribution."""
    means = score_sums / np.maximum(counts, 1)
    return float(np.sqrt(2 / np.pi * counts * means * (1 - means)).sum() / max(counts.sum(), 1.0))


def _calibration_reach(sums: NDArray[np.float64]) -> tuple[float | None, str | None]:
    """Return how far the bounds reach from the error by the spread over items, else why that is not known; `sums` are by item and bin."""
    items = np.flatnonzero(sums[0].sum(axis=1))
    if len(items) < PARTS:
        return None, f"too few: {len(items)} items with predictions, bounds need {PARTS}"
    # Every twentieth of the items, which are in the order of their names, is left out.
    values = [_calibration_error(sums.sum(axis=1) - sums[:, items[part::PARTS]].sum(axis=1)) for part in range(PARTS)]
    spread = jackknife_error(values)
    if spread is None:
        return None, "no part of the items moves it"
    return student_quantile(0.95, jackknife_freedom(values)) * spread, None


@dataclass(frozen=True, slots=True)
class _FoundObjects:
    """All found objects that count, best score first, with labels, photographs (indices), and whether each is right; objects by label."""

    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    photographs: NDArray[np.int64]
    is_right: NDArray[np.bool_]
    objects: NDArray[np.int64]

    @classmethod
    def of(cls, predictions: KeptPredictions) -> "_FoundObjects":
        """Return those of a detector, or the best classes of a classifier."""
        objects = np.zeros(len(predictions.labels), np.int64)
        rows: list[tuple[float, int, int, bool]] = []
        for number, photograph in enumerate(photographs_of(predictions)):
            np.add.at(objects, [thing.label for thing in photograph.truth if not thing.ignored], 1)
            matches = match_labels(photograph, overlaps(photograph.found, photograph.truth))
            pairs = zip(photograph.found, matches, strict=True)
            rows += [(thing.score or 0.0, thing.label, number, match >= 0) for thing, match in pairs if match != IGNORED]
        # Those of one score stay in their order.
        rows.sort(key=lambda row: -row[0])
        columns = np.array(rows, float).reshape(-1, 4).T
        return cls(columns[0], columns[1].astype(int), columns[2].astype(int), columns[3].astype(bool), objects)

    def curve(self, label: int, name: str) -> PrecisionRecallCurve:
        """Return the curve of a label that has objects; as `accumulate` of cocoapi's `cocoeval.py`."""
        is_right = self.is_right[self.labels == label]
        right = np.cumsum(is_right)
        precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
        first = np.searchsorted(right / self.objects[label], np.linspace(0, 1, RECALLS), side="left")
        precisions = np.append(precision, 0.0)[np.minimum(first, len(right))]
        return PrecisionRecallCurve(name, int(self.objects[label]), tuple(precisions.tolist()))

    def best(self, label: int | None, name: str | None) -> BestThreshold | None:
        """Return the best threshold of a label, or of all; of equally good ones the highest. None where nothing is found rightly."""
        of_label = slice(None) if label is None else self.labels == label
        scores, right = self.scores[of_label], np.cumsum(self.is_right[of_label])
        objects = int(self.objects.sum() if label is None else self.objects[label])
        if not len(right) or right[-1] == 0:
            return None
        found_count = np.arange(1, len(right) + 1)
        f1 = 2 * right / (found_count + objects)
        # Objects of one score are shown together.
        f1[:-1][scores[:-1] == scores[1:]] = -1
        at = int(f1.argmax())
        count, total = int(right[at]), int(found_count[at])
        return BestThreshold(name, float(scores[at]), float(f1[at]), count / total, count / objects, count, total - count, objects - count)


def _of_detector(predictions: KeptPredictions) -> _FoundObjects:
    if predictions.answers:
        raise ConfigError("a classifier finds no objects: it has a confusion matrix and a calibration, and no curve or threshold")
    return _FoundObjects.of(predictions)
