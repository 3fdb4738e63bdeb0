"""Oriented boxes: turned rectangles around objects seen from above, scored by the mean AP that DOTA's devkit computes (task 1).

Overlap of polygons above 0.5, difficult objects ignored, 11 points.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.dota import OrientedObject
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Outputs, Parts
from edgemeter.agent.tasks.detection import ObjectTask
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.vision.decoders import Detections

METRIC = "dota_map50"
OVERLAP = 0.5
_POINTS = np.linspace(0, 1, 11)
Polygon = NDArray[np.float64]


def by_corners(detections: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the overlap (intersection over union) of an oriented box with others, float32 [n]."""
    if detections.corners is None or other.corners is None:
        return np.zeros(len(other.scores), np.float32)
    polygon = detections.corners[index].astype(np.float64)
    return np.array([overlap(polygon, corners.astype(np.float64)) for corners in other.corners], np.float32)


class OrientedBoxes(ObjectTask):
    """Keeps the matched detections of every photograph."""

    similar = staticmethod(by_corners)

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        targets: list[Any] = list((data.targets or {}).values())
        if data.has_truth and not (targets and all(isinstance(target, tuple) for target in targets)):
            raise ConfigError(
                f"model {model.name!r} finds oriented boxes, the ground truth of {data.name!r} is that of another task: "
                "give a folder of DOTA's labels as annotations"
            )
        super().__init__(model, loaded, data)
        # The objects (OrientedObject) of each photograph.
        self._truth = targets
        self._names = tuple(model.output.labels)
        unknown = sorted({labelled.name for objects in self._truth for labelled in objects} - set(self._names))
        if unknown:
            raise ConfigError(
                f"the labels of {data.name!r} name {unknown[0]!r}, none of the {len(self._names)} classes of model {model.name!r}: "
                "correct output.labels in its card"
            )

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return DOTA's mean AP over all photographs; None without ground truth, or where it holds no object to find."""
        if not self._truth or not self._predictions:
            return None
        return oriented_accuracy(self._predictions, self._names, self._data, parts)

    def _decode(self, index: int, calls: Sequence[Outputs]) -> Detections:
        detections = super()._decode(index, calls)
        if detections.corners is None:
            raise ConfigError(f"family {self._model.family!r} finds upright boxes: correct task or family in the card")
        return detections

    def _kept(self, index: int, detections: Detections) -> "MatchedPhotograph | None":
        if not self._truth:
            return None
        highest = int(detections.classes.max(initial=-1))
        if highest >= len(self._names):
            raise ConfigError(f"the model found class {highest}, its card has {len(self._names)} labels: correct output.labels")
        corners = np.zeros((0, 4, 2)) if detections.corners is None else detections.corners
        return match(corners, detections.scores, [self._names[number] for number in detections.classes], self._truth[index])


def _mean(by_class: dict[str, float | None]) -> float | None:
    values = [value for value in by_class.values() if value is not None]
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class MatchedPhotograph:
    """The matched detections of one photograph: by class the score of each and whether it is right; objects to find by class.

    What lies on a difficult object is neither right nor wrong, and left out.
    """

    found: Mapping[str, tuple[tuple[float, bool], ...]]
    objects: Mapping[str, int]


def oriented_accuracy(
    matched: Mapping[int, MatchedPhotograph], names: Sequence[str], data: Dataset, parts: Parts = "all"
) -> Accuracy | None:
    """Return DOTA's mean AP over these photographs and classes; None where they hold no object to find."""
    members = sorted(matched)

    def by_class(members: Sequence[int], *, by_area: bool = False) -> dict[str, float | None]:
        return average_precisions([matched[index] for index in members], names, by_area=by_area)

    figure = Jackknifed(lambda members: _mean(by_class(members)))
    accuracy = item_accuracy(METRIC, figure, members, data, parts=parts, detail={"map50_area": _mean(by_class(members, by_area=True))})
    if accuracy is None or parts == "value":
        return accuracy
    values = by_class(members)
    counts = [[matched[index].objects.get(name, 0) for index in members] for name in names]
    per_class = tuple(
        PartAccuracy(name=name, value=values[name], images=sum(count > 0 for count in its), objects=sum(its))
        for name, its in zip(names, counts, strict=True)
    )
    return msgspec.structs.replace(accuracy, per_class=per_class)


def match(corners: NDArray[Any], scores: NDArray[Any], names: Sequence[str], objects: Sequence[OrientedObject]) -> MatchedPhotograph:
    """Return the detections of a photograph matched to its objects, best first: each takes the object that it overlaps most.

    `corners` [n, 4, 2] are in pixels; `names` are those of the classes. An object that is taken already makes the next detection on it a
    false one.
    """
    by_name: defaultdict[str, list[OrientedObject]] = defaultdict(list)
    for labelled in objects:
        by_name[labelled.name].append(labelled)
    matches: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    matched_ids: set[int] = set()
    corners = corners.astype(np.float64)
    for index in np.argsort(-scores, kind="stable").tolist():
        name, score = names[index], float(scores[index])
        overlaps = [overlap(corners[index], np.array(candidate.corners)) for candidate in by_name[name]]
        best = int(np.argmax(overlaps)) if overlaps else -1
        if best < 0 or overlaps[best] <= OVERLAP:
            matches[name].append((score, False))
            continue
        labelled = by_name[name][best]
        if not labelled.is_difficult:
            matches[name].append((score, id(labelled) not in matched_ids))
            matched_ids.add(id(labelled))
    counts = {name: sum(not labelled.is_difficult for labelled in its) for name, its in by_name.items()}
    return MatchedPhotograph({name: tuple(its) for name, its in matches.items()}, counts)


def average_precisions(photographs: Sequence[MatchedPhotograph], names: Sequence[str], *, by_area: bool = False) -> dict[str, float | None]:
    """Return AP by class over these photographs, None of one without an object to find; `by_area` takes all points of the curve."""
    return {name: _average_precision(photographs, name, by_area=by_area) for name in names}


def _average_precision(photographs: Sequence[MatchedPhotograph], name: str, *, by_area: bool) -> float | None:
    objects = sum(photograph.objects.get(name, 0) for photograph in photographs)
    if not objects:
        return None
    matches = sorted((pair for photograph in photographs for pair in photograph.found.get(name, ())), key=lambda pair: -pair[0])
    right = np.cumsum([is_right for _, is_right in matches])
    recall, precision = right / objects, right / np.arange(1, len(matches) + 1)
    if not by_area:
        return float(np.mean([precision[recall >= point].max(initial=0.0) for point in _POINTS]))
    recall, precision = np.concatenate([[0.0], recall, [1.0]]), np.concatenate([[0.0], precision, [0.0]])
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall) * envelope[1:]).sum())


def overlap(polygon: Polygon, other: Polygon) -> float:
    """Return intersection over union of two convex polygons, [n, 2] each, in order either way round."""
    if (polygon.max(axis=0) <= other.min(axis=0)).any() or (other.max(axis=0) <= polygon.min(axis=0)).any():
        return 0.0
    areas = abs(_area(polygon)), abs(_area(other))
    window = other if _area(other) > 0 else other[::-1]
    remainder = polygon
    for begin, end in zip(window, np.roll(window, -1, axis=0), strict=True):
        remainder = _cut(remainder, begin, end)
        if len(remainder) < 3:
            return 0.0
    shared = abs(_area(remainder))
    union = areas[0] + areas[1] - shared
    return float(shared / union) if union > 0 else 0.0


def _area(polygon: Polygon) -> float:
    """Return the signed area."""
    x, y = polygon.T
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


def _cut(polygon: Polygon, begin: Polygon, end: Polygon) -> Polygon:
    """Return the part of a polygon on the inner side of an edge."""
    side = (end[0] - begin[0]) * (polygon[:, 1] - begin[1]) - (end[1] - begin[1]) * (polygon[:, 0] - begin[0])
    corners: list[Polygon] = []
    for index, point in enumerate(polygon):
        following = (index + 1) % len(polygon)
        if side[index] >= 0:
            corners.append(point)
        if (side[index] > 0 > side[following]) or (side[index] < 0 < side[following]):
            corners.append(point + (polygon[following] - point) * side[index] / (side[index] - side[following]))
    return np.array(corners).reshape(-1, 2)
