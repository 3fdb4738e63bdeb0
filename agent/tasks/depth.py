"""Depth: the distance of every pixel, scored by the mean absolute relative error (AbsRel); delta and RMSE are its details.

A map holds metres: .npy as they are, a PNG of 16 bits in 1/256 m as KITTI's; 0 is no measurement and does not count. A model with
`output.depth = "inverse"` gives inverse depth without scale (MiDaS, Depth Anything): scale and shift are fitted to the inverse ground truth
of each photograph by least squares, as its authors evaluate it. Depths beyond the farthest true one of a photograph count as that.
Source: Eigen et al. 2014 (AbsRel, delta); Ranftl et al. 2020, section 5 (alignment). The figures are means over photographs.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.tasks.photo_items import PixelTask

METRIC = "abs_rel"
DETAILS = ("delta1", "delta2", "delta3", "rmse_m")
_METRES_PER_STEP = 1 / 256
_STEP = 1.25
_NEAREST_M = 1e-3
Depths = NDArray[np.float64]
# Two outputs have a pixel in common where they differ by no more than this.
_SAME_RATIO = 0.05


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
            METRIC, figure, members, self._data, parts=parts, better="lower", detail=dict(zip(DETAILS, means[1:], strict=True))
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
        message = "a depth of the model is no number: its accuracy cannot be computed"
        raise ConfigError(message)
    return errors
