"""Tasks whose model predicts every pixel: the class of each (semantic segmentation), or its distance (depth).

A map holds metres: .npy as they are, a PNG of 16 bits in 1/256 m as KITTI's; 0 is no measurement and does not count. A model with
`output.depth = "inverse"` gives inverse depth without scale (MiDaS, Depth Anything): scale and shift are fitted to the inverse ground truth
of each photograph by least squares, as its authors evaluate it. Depths beyond the farthest true one of a photograph count as that. Depth is
scored by the mean absolute relative error (AbsRel); delta and RMSE are its details; all are means over photographs.
Source: Eigen et al. 2014 (AbsRel, delta); Ranftl et al. 2020, section 5 (alignment).

Classes are scored by the mean over classes of intersection over union (mIoU). Scores are interpolated to the photograph's pixels before the
best class is taken, as the usual evaluations do; a model that gives classes itself keeps those of the nearest cell. A pixel whose map says
255, or a class below the model's first, does not count.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
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
from edgemeter.agent.tasks.photo_items import PhotoTask
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.decoders import tamed
from edgemeter.agent.vision.decoders.boxes import taps
from edgemeter.agent.vision.preprocess import values_of_first

Floats = NDArray[np.float32]
# Rows of the photograph worked on together: the values of all classes for a whole one may be more than a board's memory.
_BLOCK = 32
ABS_REL = "abs_rel"
DETAILS = ("delta1", "delta2", "delta3", "rmse_m")
_METRES_PER_STEP = 1 / 256
_STEP = 1.25
_NEAREST_M = 1e-3
Depths = NDArray[np.float64]
# Two outputs have a pixel in common where they differ by no more than this.
_SAME_RATIO = 0.05


class PixelTask(PhotoTask):
    """Prepares photographs; `_map` is the output of one as float32 [channels, rows, columns]."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        targets = list((data.targets or {}).values())
        if data.has_truth and not (targets and all(isinstance(target, Path) for target in targets)):
            raise ConfigError(
                f"model {model.name!r} predicts every pixel, the ground truth of {data.name!r} is that of another task: "
                "give a folder with a map for each photograph (.png, .npy) as annotations"
            )
        super().__init__(model, loaded, data)
        self._truth = [target for target in targets if isinstance(target, Path)]

    def _map(self, calls: Sequence[Outputs], channels: int | None) -> Floats:
        """Return the first output as [channels, rows, columns]; channels that are last come first, none becomes one."""
        values = values_of_first(calls[0], self._loaded)[0]
        if values.ndim == 4 and values.shape[0] == 1:
            values = values[0]
        elif values.ndim == 2:
            values = values[None]
        if values.ndim == 3 and channels is not None:
            if values.shape[0] == channels:
                return tamed(values)
            if values.shape[2] == channels:
                return tamed(np.ascontiguousarray(values.transpose(2, 0, 1)))
        form = "scores of each class, [1, classes, rows, columns]" if channels != 1 else "[1, rows, columns]"
        raise ConfigError(
            f"task {self._model.task} needs an output of {form}, the model {self._model.name!r} gives {list(calls[0][0].shape)}: "
            "correct output.classes or task in its card"
        )

    def _blocks(self, index: int, values: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield rows of photograph `index` and the output at their pixels, [channels, rows, width], interpolated bilinearly."""
        frame, (_, height, width) = self._frames[index], values.shape
        left_cells, right, across = taps(0, frame.photo_width, frame.scale_x, frame.offset_x, width / frame.input_width, width)
        above, below, down = taps(0, frame.photo_height, frame.scale_y, frame.offset_y, height / frame.input_height, height)
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
                f"the map {str(path)!r} has {values.shape[1]} x {values.shape[0]} pixels, its photograph {frame.photo_width} x "
                f"{frame.photo_height} (upright): give the maps of these photographs"
            )
        return values


class Depth(PixelTask):
    """Keeps the errors of each photograph: AbsRel, the three deltas, RMSE."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        super().__init__(model, loaded, data)
        self._errors: dict[int, tuple[float, ...]] = {}

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Compare photograph `index`, which was prepared before, with its map."""
        depths = self._depths(index, calls)
        if not self._truth:
            return
        truth = self._true_map(index).astype(np.float64)
        if self._truth[index].suffix.lower() == ".png":
            truth *= _METRES_PER_STEP
        counts = np.isfinite(truth) & (truth > 0)
        if counts.any():
            self._errors[index] = depth_errors(depths[counts], truth[counts], is_inverse=self._model.output.depth == "inverse")

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return the share of pixels that differ by 5% at most."""
        depths, other_depths = self._depths(index, calls), self._depths(index, other)
        return float((np.abs(depths - other_depths) <= _SAME_RATIO * np.maximum(np.abs(depths), np.abs(other_depths))).mean())

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return AbsRel over all photographs; None without ground truth, or where no pixel counts."""
        if not self._errors:
            return None
        members = sorted(self._errors)
        means = np.mean([self._errors[index] for index in members], axis=0).tolist()
        figure = Jackknifed(lambda members: float(np.mean([self._errors[index][0] for index in members])), limits=(0.0, math.inf))
        return item_accuracy(
            ABS_REL, figure, members, self._data, parts=parts, better="lower", detail=dict(zip(DETAILS, means[1:], strict=True))
        )

    def _depths(self, index: int, calls: Sequence[Outputs]) -> Depths:
        frame = self._frames[index]
        depths = np.empty((frame.photo_height, frame.photo_width), np.float64)
        for rows, values in self._blocks(index, self._map(calls, 1)):
            depths[rows] = values[0]
        return depths


def depth_errors(predicted: Depths, truth: Depths, *, is_inverse: bool) -> tuple[float, ...]:
    """Return AbsRel, delta1 to delta3 and RMSE of the pixels that count (float64 [n], metres)."""
    if is_inverse:
        matrix = np.column_stack([predicted, np.ones_like(predicted)])
        scale, shift = np.linalg.lstsq(matrix, 1 / truth, rcond=None)[0]
        predicted = 1 / np.maximum(predicted * scale + shift, 1 / truth.max())
    predicted = np.clip(predicted, _NEAREST_M, max(truth.max(), _NEAREST_M))
    ratio = np.maximum(predicted / truth, truth / predicted)
    deltas = [float((ratio < _STEP**power).mean()) for power in (1, 2, 3)]
    errors = (float((np.abs(predicted - truth) / truth).mean()), *deltas, float(np.sqrt(np.square(predicted - truth).mean())))
    if not np.isfinite(errors).all():
        raise ConfigError("a depth of the model is no number: its accuracy cannot be computed")
    return errors


MIOU = "miou"
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
        accuracy = item_accuracy(MIOU, miou, members, self._data, parts=parts, detail=detail)
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
        for rows_of, values in self._blocks(index, self._scores(calls)):
            classes[rows_of] = values.argmax(axis=0)
        return classes

    def _scores(self, calls: Sequence[Outputs]) -> Floats:
        """Return the scores, [classes, rows, columns]; of two classes a model may give the second alone, as a probability or a logit."""
        shape = calls[0][0].shape
        if self._count != 2 or len(shape) != 4 or 1 not in (shape[1], shape[3]):
            return self._map(calls, self._count)
        second = self._map(calls, 1)
        is_probability = second.min() >= 0 and second.max() <= 1
        return np.concatenate([np.full_like(second, 0.5 if is_probability else 0.0), second])

    def _sum(self, members: Sequence[int]) -> Classes:
        return np.asarray(np.sum([self._pixels[index] for index in members], axis=0))

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
