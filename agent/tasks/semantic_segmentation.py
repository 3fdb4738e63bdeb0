"""Semantic segmentation: the class of every pixel, scored by the mean over classes of intersection over union (mIoU).

Scores are interpolated to the photograph's pixels before the best class is taken, as the usual evaluations do; a model that gives classes
itself keeps those of the nearest cell. A pixel whose map says 255, or a class below the model's first, does not count.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.tasks.photo_items import PixelTask

METRIC = "miou"
IGNORED = 255
Classes = NDArray[np.int64]


class SemanticSegmentation(PixelTask):
    """Keeps for each photograph how many pixels of each class were right, predicted and there."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        super().__init__(model, loaded, data)
        if model.output.classes is None:
            raise ConfigError(f"model {model.name!r}: task {model.task} needs output.classes in its card")
        self._count = model.output.classes
        # By photograph: right, predicted, there; int64 [3, classes].
        self._pixels: dict[int, Classes] = {}

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Count the pixels of photograph `index`, which was prepared before."""
        classes = self._classes(index, calls)
        if not self._truth:
            return
        truth = self._true_map(index)
        if truth.dtype.kind not in "iu":
            raise ConfigError(f"the map {str(self._truth[index])!r} holds {truth.dtype}: a map of classes holds whole numbers")
        targets = truth.astype(np.int64) - self._model.output.label_offset
        counts = (truth != IGNORED) & (targets >= 0)
        highest = int(targets[counts].max(initial=0))
        if highest >= self._count:
            offset = self._model.output.label_offset
            raise ConfigError(
                f"the map {str(self._truth[index])!r} has class {highest + offset}, the model {self._count} classes from {offset} on: "
                "give maps in the model's classes (255: ignored), or correct output.label_offset"
            )
        pairs = np.bincount(targets[counts] * self._count + classes[counts], minlength=self._count**2).reshape(self._count, -1)
        self._pixels[index] = np.stack([pairs.diagonal(), pairs.sum(axis=0), pairs.sum(axis=1)])

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return the share of pixels of the photograph that have the same class in both."""
        return float((self._classes(index, calls) == self._classes(index, other)).mean())

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return mIoU over all photographs; None without ground truth, or where no pixel counts."""
        if not self._pixels:
            return None
        members = sorted(self._pixels)
        right, _, present = self._sum(members)
        with np.errstate(invalid="ignore"):
            detail = (
                {"pixel_accuracy": float(right.sum() / present.sum()), "class_accuracy": _mean(right / present)} if present.sum() else {}
            )
        miou = Jackknifed(lambda members: _mean(self._ious(members)) if members else None)
        accuracy = item_accuracy(METRIC, miou, members, self._data, parts=parts, detail=detail)
        if accuracy is None or parts == "value":
            return accuracy
        return msgspec.structs.replace(accuracy, per_class=self._per_class(members))

    def _classes(self, index: int, calls: Sequence[Outputs]) -> Classes:
        """Return the class of every pixel of the photograph: int64 [height, width]."""
        output = calls[0][0]
        gives_classes = output.dtype.kind in "iu" and self._loaded.outputs[:1] and self._loaded.outputs[0].scale is None
        frame = self._frames[index]
        classes = np.empty((frame.photo_height, frame.photo_width), np.int64)
        if gives_classes:
            cells = self._map(calls, 1)[0]
            rows, columns = (
                np.clip(((np.arange(size) + 0.5) * scale + offset) * cells_per_px, 0, last - 1).astype(np.int64)
                for size, scale, offset, cells_per_px, last in (
                    (frame.photo_height, frame.scale_y, frame.offset_y, cells.shape[0] / frame.input_height, cells.shape[0]),
                    (frame.photo_width, frame.scale_x, frame.offset_x, cells.shape[1] / frame.input_width, cells.shape[1]),
                )
            )
            classes[...] = np.clip(cells[np.ix_(rows, columns)], 0, self._count - 1)
            return classes
        for rows_of, values in self._blocks(index, self._map(calls, self._count)):
            classes[rows_of] = values.argmax(axis=0)
        return classes

    def _sum(self, members: Sequence[int]) -> Classes:
        total: Classes = np.sum([self._pixels[index] for index in members], axis=0)
        return total

    def _ious(self, members: Sequence[int]) -> NDArray[np.float64]:
        """Return intersection over union of each class; NaN of one that is neither there nor predicted."""
        right, predicted, present = self._sum(members)
        with np.errstate(invalid="ignore"):
            ious: NDArray[np.float64] = right / (predicted + present - right)
        return ious

    def _per_class(self, members: Sequence[int]) -> tuple[PartAccuracy, ...]:
        output, ious = self._model.output, self._ious(members)
        labels: list[Any] = list(output.labels) if len(output.labels) == self._count else list(range(self._count))
        image_counts = [sum(int(self._pixels[index][2, class_index] > 0) for index in members) for class_index in range(self._count)]
        return tuple(
            PartAccuracy(name=str(label), value=None if np.isnan(iou) else float(iou), images=images)
            for label, iou, images in zip(labels, ious, image_counts, strict=True)
        )


def _mean(values: NDArray[np.float64]) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else None
