"""Oriented boxes: turned rectangles around objects seen from above, scored by the mean AP that DOTA's devkit computes (task 1)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Outputs, Parts
from edgemeter.agent.tasks.detection import ObjectTask, Similarity
from edgemeter.agent.tasks.dota_ap import MatchedPhotograph, average_precisions, match, overlap
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.vision.decoders import Detections

METRIC = "dota_map50"


def by_corners(detections: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    """Return the overlap (intersection over union) of an oriented box with others, float32 [n]."""
    if detections.corners is None or other.corners is None:
        return np.zeros(len(other.scores), np.float32)
    polygon = detections.corners[index].astype(np.float64)
    return np.array([overlap(polygon, corners.astype(np.float64)) for corners in other.corners], np.float32)


class OrientedBoxes(ObjectTask):
    """Keeps the matched detections of every photograph."""

    similar: ClassVar[Similarity] = staticmethod(by_corners)

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        targets = list((data.targets or {}).values())
        if data.has_truth and not (targets and all(isinstance(target, tuple) for target in targets)):
            raise ConfigError(
                f"model {model.name!r} finds oriented boxes, the ground truth of {data.name!r} is that of another task: "
                "give a folder of DOTA's labels as annotations"
            )
        super().__init__(model, loaded, data)
        # The objects (OrientedObject) of each photograph.
        self._truth: list[Any] = targets
        self._names = tuple(model.output.labels)
        unknown = sorted({one.name for objects in self._truth for one in objects} - set(self._names))
        if unknown:
            raise ConfigError(
                f"the labels of {data.name!r} name {unknown[0]!r}, none of the {len(self._names)} classes of model {model.name!r}: "
                "correct output.labels in its card"
            )

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return DOTA's mean AP over all photographs; None without ground truth, or where it holds no object to find."""
        if not self._truth or not self._predictions:
            return None
        members = sorted(self._predictions)
        by_class = average_precisions([self._predictions[index] for index in members], self._names)
        by_area = _mean(average_precisions([self._predictions[index] for index in members], self._names, by_area=True))
        found = item_accuracy(METRIC, Jackknifed(self._map), members, self._data, parts=parts, detail={"map50_area": by_area})
        if found is None or parts == "value":
            return found
        counts = [[self._predictions[index].objects.get(name, 0) for index in members] for name in self._names]
        per_class = tuple(
            PartAccuracy(name=name, value=by_class[name], images=sum(count > 0 for count in its), objects=sum(its))
            for name, its in zip(self._names, counts, strict=True)
        )
        return msgspec.structs.replace(found, per_class=per_class)

    def _decode(self, index: int, calls: Sequence[Outputs]) -> Detections:
        found = super()._decode(index, calls)
        if found.corners is None:
            raise ConfigError(f"family {self._model.family!r} finds upright boxes: correct task or family in the card")
        return found

    def _kept(self, index: int, found: Detections) -> MatchedPhotograph | None:
        if not self._truth:
            return None
        highest = int(found.classes.max(initial=-1))
        if highest >= len(self._names):
            raise ConfigError(f"the model found class {highest}, its card has {len(self._names)} labels: correct output.labels")
        return match(found, self._names, self._truth[index])

    def _map(self, members: Sequence[int]) -> float | None:
        return _mean(average_precisions([self._predictions[index] for index in members], self._names))


def _mean(by_class: dict[str, float | None]) -> float | None:
    known = [value for value in by_class.values() if value is not None]
    return sum(known) / len(known) if known else None
