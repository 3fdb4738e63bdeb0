"""Detection: boxes in photographs, scored by COCO's average precision."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.dataset import Dataset
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.recognition.model_tensors import input_of, real_values
from edgemeter.agent.records import Accuracy
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision import coco_report, decoder, matching
from edgemeter.agent.vision.categories import category_ids
from edgemeter.agent.vision.decoder import Detections, Frame
from edgemeter.agent.vision.preprocess import Preprocessor


class Detection:
    """Keeps the detections of every photograph answered; scores them all together."""

    def __init__(self, model: card.Card, loaded: Loaded, data: Dataset) -> None:
        if data.classes is not None:
            message = (
                f"model {model.name!r} is a detector, the ground truth of {data.name!r} is one class per photograph: give COCO annotations"
            )
            raise ConfigError(message)
        self._loaded, self._data = loaded, data
        self._preprocessor = Preprocessor(model.input, input_of(model, loaded))
        self._decoder = decoder.create(model, loaded)
        self._categories = () if data.truth is None else category_ids(model, data.truth["categories"])
        self._sizes = {} if data.truth is None else {image["id"]: (image["width"], image["height"]) for image in data.truth["images"]}
        self._frames: dict[int, Frame] = {}
        self._answers: dict[int, Detections] = {}

    def prepare(self, index: int) -> list[NDArray[Any]]:
        """Return the one input for photograph `index`.

        Raises:
            ConfigError: it is not an image, or not of the size that the annotations are for.
        """
        tensor, frame = self._preprocessor.load(self._data.files[index])
        self._check_size(index, frame)
        self._frames[index] = frame
        return [tensor]

    def answer(self, index: int, outputs: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Decode and keep the detections of photograph `index`, which was prepared before; return their scores, float32 [n]."""
        found = self._answers[index] = self._decode(index, outputs)
        return found.scores

    def same_answer(self, index: int, one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float | None:
        """Return the share of the boxes in two raw outputs that the other has too; None where neither shows any."""
        return matching.matched_ratio(self._decode(index, one), self._decode(index, other))

    def score(self, parts: Literal["all", "value"] = "all") -> Accuracy | None:
        """Return COCO AP over all photographs answered; None without ground truth, or where it holds no object to find."""
        truth, image_ids = self._data.truth, self._data.image_ids
        if truth is None or image_ids is None or not self._answers:
            return None
        answered = sorted(self._answers)
        rows = [self._rows(image_ids[index], self._answers[index]) for index in answered]
        ids = [image_ids[index] for index in answered]
        score = coco_report.report if parts == "all" else coco_report.value_only
        accuracy = score(truth, np.concatenate(rows), ids, self._data.sha256)
        return None if accuracy is None else msgspec.structs.replace(accuracy, warnings=self._data.warnings)

    def _decode(self, index: int, outputs: Sequence[NDArray[Any]]) -> Detections:
        return self._decoder.decode(real_values(outputs, self._loaded), self._frames[index])

    def _rows(self, image_id: int, found: Detections) -> NDArray[np.float64]:
        """Return [n, 7]: image id, x, y, width, height, score, category id; classes that the annotations do not know are left out."""
        unknown = [k for k in np.unique(found.classes).tolist() if not 0 <= k < len(self._categories)]
        if unknown:
            message = f"the model found class {unknown[0]}, its card says {len(self._categories)} classes: correct output.classes"
            raise ConfigError(message)
        known = np.array([category is not None for category in self._categories], np.bool_)[found.classes]
        ids = np.array([category or 0 for category in self._categories])[found.classes[known]]
        boxes = found.boxes[known].astype(np.float64)
        sizes = boxes[:, 2:] - boxes[:, :2]
        return np.column_stack([np.full(len(ids), image_id), boxes[:, :2], sizes, found.scores[known], ids])

    def _check_size(self, index: int, frame: Frame) -> None:
        if self._data.image_ids is None:
            return
        said = self._sizes[self._data.image_ids[index]]
        real = (frame.photo_width, frame.photo_height)
        if None not in said and said != real:
            message = (
                f"the annotations are for {self._data.files[index].name!r} at {said[0]} x {said[1]}, it is {real[0]} x {real[1]} "
                "(upright): give the photographs they were made for"
            )
            raise ConfigError(message)
