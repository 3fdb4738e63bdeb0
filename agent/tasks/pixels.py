"""Semantic segmentation: the class of every pixel.

Predictions are scored by intersection over union, as the mean over classes (mIoU). As in the usual
evaluations, scores are interpolated to the photograph's pixels before the best class is taken. If
the model gives classes itself, a pixel has that of the nearest cell. Pixels with 255 in their map,
or a class below the model's first, do not count.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Outputs, Parts
from edgemeter.agent.tasks.parts import Jackknifed, item_accuracy, numbered
from edgemeter.agent.tasks.photo_items import PhotoTask
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.decoders import tamed
from edgemeter.agent.vision.decoders.masks import taps
from edgemeter.agent.vision.preprocess import values_of_first

Floats = NDArray[np.float32]
# The number of rows that are interpolated together: all classes of a whole photograph may not fit
# into a board's memory.
_BLOCK = 32


MIOU = "miou"
IGNORED = 255
Classes = NDArray[np.int64]


class SemanticSegmentation(PhotoTask):
    """Keeps the numbers of right, predicted and actual pixels of each class in each photograph."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        targets = list((data.targets or {}).values())
        if data.has_truth and not (targets and all(isinstance(target, Path) for target in targets)):
            raise ConfigError(
                f"model {model.name!r} predicts every pixel, the ground truth of {data.name!r} "
                "is that of another task: "
                "give a folder with a map for each photograph (.png, .npy) as annotations"
            )
        super().__init__(model, loaded, data)
        self._truth = [target for target in targets if isinstance(target, Path)]
        if model.output.classes is None:
            raise ConfigError(
                f"model {model.name!r}: task {model.task} needs output.classes in its card"
            )
        self._count = model.output.classes
        # By photograph: right, predicted, actual; int64 [3, classes].
        self._pixels: dict[int, Classes] = {}

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Count the pixels of photograph `index`, which was prepared before."""
        classes = self._classes(index, calls)
        if not self._truth:
            return
        truth = self._true_map(index)
        if truth.dtype.kind not in "iu":
            raise ConfigError(
                f"the map {str(self._truth[index])!r} holds {truth.dtype}: a map of classes "
                "holds whole numbers"
            )
        targets = truth.astype(np.int64) - self._model.output.label_offset
        counts = (truth != IGNORED) & (targets >= 0)
        highest = int(targets[counts].max(initial=0))
        if highest >= self._count:
            offset = self._model.output.label_offset
            raise ConfigError(
                f"the map {str(self._truth[index])!r} has class {highest + offset}, the model "
                f"{self._count} classes from {offset} on: "
                "give maps in the model's classes (255: ignored), or correct output.label_offset"
            )
        self._pixels[index] = pixel_counts(classes[counts], targets[counts], self._count)

    def same_predictions(
        self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]
    ) -> float:
        """Return the share of pixels of the photograph that have the same class in both."""
        return float((self._classes(index, calls) == self._classes(index, other)).mean())

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return mIoU over all photographs; None without ground truth, or where no pixel counts."""
        output = self._model.output
        labels: list[Any] = (
            list(output.labels) if len(output.labels) == self._count else list(range(self._count))
        )
        return map_accuracy(self._pixels, labels, self._data, parts)

    def _classes(self, index: int, calls: Sequence[Outputs]) -> Classes:
        """Return the class of every pixel of the photograph: int64 [height, width]."""
        output = calls[0][0]
        gives_classes = (
            output.dtype.kind in "iu"
            and self._loaded.outputs[:1]
            and self._loaded.outputs[0].scale is None
        )
        frame = self._frames[index]
        classes = np.empty((frame.photo_height, frame.photo_width), np.int64)
        if gives_classes:
            cells = self._map(calls, 1)[0]
            rows, columns = (
                np.clip(
                    ((np.arange(size) + 0.5) * scale + offset) * cells_per_px, 0, last - 1
                ).astype(np.int64)
                for size, scale, offset, cells_per_px, last in (
                    (
                        frame.photo_height,
                        frame.scale_y,
                        frame.offset_y,
                        cells.shape[0] / frame.input_height,
                        cells.shape[0],
                    ),
                    (
                        frame.photo_width,
                        frame.scale_x,
                        frame.offset_x,
                        cells.shape[1] / frame.input_width,
                        cells.shape[1],
                    ),
                )
            )
            classes[...] = np.clip(cells[np.ix_(rows, columns)], 0, self._count - 1)
            return classes
        for rows_of, values in self._blocks(index, self._scores(calls)):
            classes[rows_of] = values.argmax(axis=0)
        return classes

    def _scores(self, calls: Sequence[Outputs]) -> Floats:
        """Return the scores, [classes, rows, columns].

        For two classes a model may give the second alone, as probability or logit.
        """
        shape = calls[0][0].shape
        if self._count != 2 or len(shape) != 4 or 1 not in (shape[1], shape[3]):
            return self._map(calls, self._count)
        second = self._map(calls, 1)
        is_probability = second.min() >= 0 and second.max() <= 1
        return np.concatenate([np.full_like(second, 0.5 if is_probability else 0.0), second])

    def _map(self, calls: Sequence[Outputs], channels: int) -> Floats:
        """Return the first output as [channels, rows, columns], whatever its layout."""
        values = values_of_first(calls[0], self._loaded)[0]
        if values.ndim == 4 and values.shape[0] == 1:
            values = values[0]
        elif values.ndim == 2:
            values = values[None]
        if values.ndim == 3:
            if values.shape[0] == channels:
                return tamed(values)
            if values.shape[2] == channels:
                return tamed(np.ascontiguousarray(values.transpose(2, 0, 1)))
        form = (
            "scores of each class, [1, classes, rows, columns]"
            if channels != 1
            else "[1, rows, columns]"
        )
        raise ConfigError(
            f"task {self._model.task} needs an output of {form}, the model {self._model.name!r} "
            f"gives {list(calls[0][0].shape)}: "
            "correct output.classes or task in its card"
        )

    def _blocks(self, index: int, values: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield rows of photograph `index` and the output at their pixels.

        The output is [channels, rows, width], interpolated bilinearly.
        """
        frame, (_, height, width) = self._frames[index], values.shape
        left_cells, right, across = taps(
            0, frame.photo_width, frame.scale_x, frame.offset_x, width / frame.input_width, width
        )
        above, below, down = taps(
            0,
            frame.photo_height,
            frame.scale_y,
            frame.offset_y,
            height / frame.input_height,
            height,
        )
        for begin in range(0, frame.photo_height, _BLOCK):
            rows = slice(begin, min(begin + _BLOCK, frame.photo_height))
            weight, unit = down[rows][:, None], np.float32(1)
            lines = values[:, above[rows]] * (unit - weight) + values[:, below[rows]] * weight
            block: Floats = lines[..., left_cells] * (unit - across) + lines[..., right] * across
            yield rows, block

    def _true_map(self, index: int) -> NDArray[Any]:
        """Return the map of photograph `index`, [height, width].

        Raises:
            ConfigError: it cannot be read, or is of another size than the photograph.
        """
        path, frame = self._truth[index], self._frames[index]
        values = photograph.read_map(path)
        if values.shape != (frame.photo_height, frame.photo_width):
            raise ConfigError(
                f"the map {str(path)!r} has {values.shape[1]} x {values.shape[0]} pixels, its "
                f"photograph {frame.photo_width} x "
                f"{frame.photo_height} (upright): give the maps of these photographs"
            )
        return values


def pixel_counts(predicted: Classes, truth: Classes, count: int) -> Classes:
    """Return the numbers of right, predicted and actual pixels of each class.

    They are int64 [3, count]; the arguments are classes from 0, int64 [n].
    """
    pairs = np.bincount(truth * count + predicted, minlength=count**2).reshape(count, -1)
    return np.stack([pairs.diagonal(), pairs.sum(axis=0), pairs.sum(axis=1)])


def map_accuracy(
    pixels: Mapping[int, Classes], labels: Sequence[Any], data: Dataset, parts: Parts = "all"
) -> Accuracy | None:
    """Return mIoU over photographs from their counts of pixels; None if none count."""
    if not pixels:
        return None

    def ious(members: Sequence[int]) -> NDArray[np.float64]:
        """Return intersection over union of each class.

        It is NaN if the class is neither actual nor predicted.
        """
        right, predicted, present = np.sum([pixels[index] for index in members], axis=0)
        with np.errstate(invalid="ignore"):
            return np.asarray(right / (predicted + present - right))

    members = sorted(pixels)
    right, _, present = np.sum([pixels[index] for index in members], axis=0)
    with np.errstate(invalid="ignore"):
        detail = (
            {
                "pixel_accuracy": float(right.sum() / present.sum()),
                "class_accuracy": _mean(right / present),
            }
            if present.sum()
            else {}
        )
    miou = Jackknifed(lambda members: _mean(ious(members)) if members else None)
    accuracy = item_accuracy(MIOU, miou, members, data, parts=parts, detail=detail)
    if accuracy is None or parts == "value":
        return accuracy
    per_class = {
        name: None if np.isnan(iou) else float(iou)
        for name, iou in zip(numbered(map(str, labels)), ious(members), strict=True)
    }
    return msgspec.structs.replace(accuracy, per_class=per_class)


def _mean(values: NDArray[np.float64]) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else None
