"""Depth: the distance of every pixel, scored by the mean absolute relative error (AbsRel); delta and RMSE are its details.

A map holds metres: .npy as they are, a PNG of 16 bits in 1/256 m as KITTI's; 0 is no measurement and does not count. All figures are means
over photographs. Which pixels count, and what a predicted depth is cut to, is the protocol of the data set, unless the card says otherwise
(`output.depth_min_m`, `depth_max_m`, `depth_crop`). It is taken from a folder of the data that is called after it:

| data | depths | pixels |
|---|---|---|
| kitti | 0.001 to 80 m | Garg's crop |
| nyu | 0.001 to 10 m | Eigen's crop of 640 x 480 |
| any other | above 0.001 m, at most the farthest true one of the photograph | all |

A model with `output.depth = "inverse"` gives inverse depth without scale. `output.depth_scaling = "least-squares"`, which is the default
of inverse depth (MiDaS, Depth Anything), fits scale and shift to the inverse ground truth of each photograph; `median` multiplies by the
ratio of medians (Monodepth2 and other models that learn from videos); `none` takes the depths as they are, the default of metres.
Source: Eigen et al. 2014 (AbsRel, delta); Garg et al. 2016 (crop); Godard et al. 2019, `evaluate_depth.py` (median, order of steps); Ranftl
et al. 2020, section 5 (alignment); Bhat et al. 2023, ZoeDepth (limits and crops by data set).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card, CardOutput, DepthCrop, DepthScaling
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.tasks.pixels import PixelTask

ABS_REL = "abs_rel"
DETAILS = ("delta1", "delta2", "delta3", "rmse_m")
_METRES_PER_STEP = 1 / 256
_STEP = 1.25
# What a ratio is divided by at least.
_SMALLEST = 1e-9
Depths = NDArray[np.float64]
# Two outputs have a pixel in common where they differ by no more than this.
_SAME_RATIO = 0.05
# The parts of height and width (from, to) that count; of Eigen's crop of NYU the pixels of its 480 rows and 640 columns.
_RATIOS = {"garg": (0.40810811, 0.99189189, 0.03594771, 0.96405229), "eigen": (0.3324324, 0.91351351, 0.0359477, 0.96405229)}
_NYU_SHAPE, _NYU_PIXELS = (480, 640), (45, 471, 41, 601)


@dataclass(frozen=True, slots=True)
class DepthProtocol:
    """The depths that count, in metres above the nearest and below the farthest (None: all), in a crop; and how predictions are scaled."""

    name: str = "plain"
    nearest_m: float = 1e-3
    farthest_m: float | None = None
    crop: DepthCrop = "none"
    scaling: DepthScaling = "none"
    is_inverse: bool = False

    @property
    def words(self) -> str:
        """Return all of it, e.g. `kitti: 0.001 to 80 m, crop garg, scaling median`."""
        farthest = "the farthest of each photograph" if self.farthest_m is None else f"{self.farthest_m:g} m"
        return f"{self.name}: {self.nearest_m:g} to {farthest}, crop {self.crop}, scaling {self.scaling}"

    def counts(self, truth: Depths) -> NDArray[np.bool_]:
        """Return which pixels of a map [height, width] count; raises ConfigError where the crop is that of another size."""
        is_measured = np.isfinite(truth) & (truth > self.nearest_m)
        if self.farthest_m is not None:
            is_measured &= truth < self.farthest_m
        if self.crop == "none":
            return is_measured
        height, width = truth.shape
        if self.crop in _RATIOS:
            top, bottom, first, end = (
                int(ratio * side) for ratio, side in zip(_RATIOS[self.crop], (height, height, width, width), strict=True)
            )
        elif truth.shape == _NYU_SHAPE:
            top, bottom, first, end = _NYU_PIXELS
        else:
            raise ConfigError(
                f"the crop {self.crop} is that of maps of 640 x 480, one here has {width} x {height}: set output.depth_crop in the card"
            )
        inside = np.zeros(truth.shape, np.bool_)
        inside[top:bottom, first:end] = True
        return is_measured & inside


KITTI = DepthProtocol("kitti", farthest_m=80.0, crop="garg")
NYU = DepthProtocol("nyu", farthest_m=10.0, crop="eigen-nyu")


def protocol_of(output: CardOutput, names: Sequence[str]) -> DepthProtocol:
    """Return the protocol of a data set, by words in the names of its folders, with what a card sets."""
    words = {word for name in names for word in re.split(r"[^a-z]+", name.lower())}
    protocol = KITTI if "kitti" in words else NYU if words & {"nyu", "nyuv", "nyud", "nyudepth"} else DepthProtocol()
    return DepthProtocol(
        protocol.name,
        protocol.nearest_m if output.depth_min_m is None else output.depth_min_m,
        protocol.farthest_m if output.depth_max_m is None else output.depth_max_m,
        output.depth_crop or protocol.crop,
        output.depth_scaling or ("least-squares" if output.depth == "inverse" else "none"),
        output.depth == "inverse",
    )


class Depth(PixelTask):
    """Keeps the errors of each photograph: AbsRel, the three deltas, RMSE."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        super().__init__(model, loaded, data)
        # Of the folders above the maps the nearest: one further up may be anybody's.
        folders = [part for path in self._truth[:1] for part in path.resolve().parts[-5:-1]]
        self._protocol = protocol_of(model.output, [data.name, *folders])
        self._errors: dict[int, tuple[float, ...]] = {}

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Compare photograph `index`, which was prepared before, with its map."""
        depths = self._depths(index, calls)
        if not self._truth:
            return
        truth = self._true_map(index).astype(np.float64)
        if self._truth[index].suffix.lower() == ".png":
            truth *= _METRES_PER_STEP
        errors = depth_errors(depths, truth, self._protocol)
        if errors is not None:
            self._errors[index] = errors

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return the share of pixels that differ by 5% at most."""
        depths, other_depths = self._depths(index, calls), self._depths(index, other)
        return float((np.abs(depths - other_depths) <= _SAME_RATIO * np.maximum(np.abs(depths), np.abs(other_depths))).mean())

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return AbsRel over all photographs; None without ground truth, or where no pixel counts."""
        return depth_accuracy(self._errors, self._protocol, self._data, parts)

    def _depths(self, index: int, calls: Sequence[Outputs]) -> Depths:
        frame = self._frames[index]
        depths = np.empty((frame.photo_height, frame.photo_width), np.float64)
        for rows, values in self._blocks(index, self._map(calls, 1)):
            depths[rows] = values[0]
        return depths


def depth_accuracy(errors: Mapping[int, Sequence[float]], protocol: DepthProtocol, data: Dataset, parts: Parts = "all") -> Accuracy | None:
    """Return the mean AbsRel over photographs by the errors of each; None without any."""
    if not errors:
        return None
    members = sorted(errors)
    means = np.mean([errors[index] for index in members], axis=0).tolist()
    figure = Jackknifed(lambda members: float(np.mean([errors[index][0] for index in members])), limits=(0.0, math.inf))
    detail = dict(zip(DETAILS, means[1:], strict=True))
    accuracy = item_accuracy(ABS_REL, figure, members, data, parts=parts, better="lower", detail=detail)
    return None if accuracy is None else msgspec.structs.replace(accuracy, normalisation=protocol.words)


def depth_errors(predicted: Depths, truth: Depths, protocol: DepthProtocol) -> tuple[float, ...] | None:
    """Return AbsRel, delta1 to delta3 and RMSE of the pixels that count of two maps [height, width]; None where none does.

    Raises:
        ConfigError: a depth that counts is no number.
    """
    counts = protocol.counts(truth)
    if not counts.any():
        return None
    predicted, truth = predicted[counts], truth[counts]
    nearest, farthest = protocol.nearest_m, truth.max() if protocol.farthest_m is None else protocol.farthest_m
    if protocol.scaling == "least-squares":
        target = 1 / truth if protocol.is_inverse else truth
        matrix = np.column_stack([predicted, np.ones_like(predicted)])
        scale, shift = np.linalg.lstsq(matrix, target, rcond=None)[0]
        predicted = predicted * scale + shift
    if protocol.is_inverse:
        # Of what is scaled by the median the farthest is not known yet.
        predicted = 1 / np.maximum(predicted, _SMALLEST if protocol.scaling == "median" else 1 / farthest)
    if protocol.scaling == "median":
        predicted = predicted * (np.median(truth) / max(float(np.median(predicted)), _SMALLEST))
    predicted = np.clip(predicted, nearest, farthest)
    ratio = np.maximum(predicted / truth, truth / predicted)
    deltas = [float((ratio < _STEP**power).mean()) for power in (1, 2, 3)]
    errors = (float((np.abs(predicted - truth) / truth).mean()), *deltas, float(np.sqrt(np.square(predicted - truth).mean())))
    if not np.isfinite(errors).all():
        raise ConfigError("a depth of the model is no number: its accuracy cannot be computed")
    return errors
