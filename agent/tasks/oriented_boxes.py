"""Oriented boxes: turned rectangles around objects seen from above, scored by the mean AP that DOTA's devkit computes (task 1)."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy, PartAccuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.dota import OrientedObject
from edgemeter.agent.runtimes import Loaded, with_batch_of_1
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.detection import matched_ratio
from edgemeter.agent.tasks.dota_ap import MatchedPhotograph, average_precisions, match, overlap
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.tasks.photo_items import load_item
from edgemeter.agent.vision.decoders import Detections, PhotoFrame, create
from edgemeter.agent.vision.preprocess import Preprocessor, input_of, values_of_first

METRIC = "dota_map50"


class OrientedBoxes:
    """Keeps the matched detections of every photograph."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        targets = list((data.targets or {}).values())
        if data.has_truth and not (targets and all(isinstance(target, tuple) for target in targets)):
            raise ConfigError(
                f"model {model.name!r} finds oriented boxes, the ground truth of {data.name!r} is that of another task: "
                "give a folder of DOTA's labels as annotations"
            )
        self._model, self._loaded, self._data = model, loaded, data
        self._truth = [_objects(target) for target in targets if isinstance(target, tuple)]
        self._names = tuple(model.output.labels)
        unknown = sorted({one.name for objects in self._truth for one in objects} - set(self._names))
        if unknown:
            raise ConfigError(
                f"the labels of {data.name!r} name {unknown[0]!r}, none of the {len(self._names)} classes of model {model.name!r}: "
                "correct output.labels in its card"
            )
        self._input = input_of(model, loaded)
        self._preprocessor = Preprocessor(model.image, self._input)
        self._decoder = create(model, with_batch_of_1(loaded))
        self._frames: dict[int, PhotoFrame] = {}
        self._matched: dict[int, MatchedPhotograph] = {}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for photograph `index`."""
        tensor, self._frames[index] = load_item(self._preprocessor, self._data.items[index])
        return [{self._input.name: tensor}]

    def predict(self, index: int, calls: Sequence[Outputs]) -> NDArray[np.float32]:
        """Decode and match what was found in photograph `index`, which was prepared before; return the scores, float32 [n]."""
        found = self._decode(index, calls)
        if self._truth:
            highest = int(found.classes.max(initial=-1))
            if highest >= len(self._names):
                raise ConfigError(f"the model found class {highest}, its card has {len(self._names)} labels: correct output.labels")
            self._matched[index] = match(found, self._names, self._truth[index])
        return found.scores

    def same_predictions(self, index: int, one: Sequence[Outputs], other: Sequence[Outputs]) -> float | None:
        """Return the share of the objects in two raw outputs that the other has too; None where neither shows any."""
        return matched_ratio(self._decode(index, one), self._decode(index, other), _by_corners)

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return DOTA's mean AP over all photographs; None without ground truth, or where it holds no object to find."""
        if not self._matched:
            return None
        members = sorted(self._matched)
        by_class = average_precisions([self._matched[index] for index in members], self._names)
        by_area = _mean(average_precisions([self._matched[index] for index in members], self._names, by_area=True))
        found = item_accuracy(METRIC, Jackknifed(self._map), members, self._data, parts=parts, detail={"map50_area": by_area})
        if found is None or parts == "value":
            return found
        counts = [[self._matched[index].objects.get(name, 0) for index in members] for name in self._names]
        per_class = tuple(
            PartAccuracy(name=name, value=by_class[name], images=sum(count > 0 for count in its), objects=sum(its))
            for name, its in zip(self._names, counts, strict=True)
        )
        return msgspec.structs.replace(found, per_class=per_class)

    def _decode(self, index: int, calls: Sequence[Outputs]) -> Detections:
        found = self._decoder.decode(values_of_first(calls[0], self._loaded), self._frames[index])
        if found.corners is None:
            raise ConfigError(f"family {self._model.family!r} finds upright boxes: correct task or family in the card")
        return found

    def _map(self, members: Sequence[int]) -> float | None:
        return _mean(average_precisions([self._matched[index] for index in members], self._names))


def _objects(target: tuple[object, ...]) -> tuple[OrientedObject, ...]:
    return tuple(one for one in target if isinstance(one, OrientedObject))


def _mean(by_class: dict[str, float | None]) -> float | None:
    known = [value for value in by_class.values() if value is not None]
    return sum(known) / len(known) if known else None


def _by_corners(one: Detections, index: int, other: Detections) -> NDArray[np.float32]:
    if one.corners is None or other.corners is None:
        return np.zeros(len(other.scores), np.float32)
    return np.array([overlap(one.corners[index].astype(np.float64), its.astype(np.float64)) for its in other.corners], np.float32)
