"""Classification: one class per photograph, scored by top-1 accuracy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.dataset import Dataset
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.recognition.model_tensors import input_of, real_values
from edgemeter.agent.records import Accuracy
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.preprocess import Preprocessor

_BEST = 5


class Classification:
    """Keeps the five best classes of every photograph answered."""

    def __init__(self, model: card.Card, loaded: Loaded, data: Dataset) -> None:
        if data.truth is not None:
            message = f'model {model.name!r} is a classifier, {data.name!r} has COCO boxes: give an index {{"file": class}} as annotations'
            raise ConfigError(message)
        self._model, self._loaded, self._data = model, loaded, data
        self._preprocessor = Preprocessor(model.input, input_of(model, loaded))
        self._answers: dict[int, list[int]] = {}
        self._check_classes()

    def prepare(self, index: int) -> list[NDArray[Any]]:
        """Return the one input for photograph `index`.

        Raises:
            ConfigError: it is not an image.
        """
        return [self._preprocessor.load(self._data.files[index])[0]]

    def answer(self, index: int, outputs: Sequence[NDArray[Any]]) -> None:
        """Keep the classes with the five highest scores, best first; of equal scores the lower class comes first.

        Raises:
            ConfigError: the output does not have as many scores as the card has classes.
        """
        scores = self._scores(outputs)
        wanted = self._model.output.classes
        if wanted is not None and len(scores) != wanted:
            message = f"model {self._model.name!r} gives {len(scores)} scores, its card says {wanted} classes: correct output.classes"
            raise ConfigError(message)
        best = np.argsort(-scores, kind="stable")[:_BEST] + self._model.output.label_offset
        self._answers[index] = best.tolist()

    def same_answer(self, index: int, one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float:
        """Return 1.0 where the best class of both raw outputs is the same, else 0.0."""
        del index
        return float(np.argmax(self._scores(one)) == np.argmax(self._scores(other)))

    def score(self) -> Accuracy | None:
        """Return top-1 (and top-5) over all photographs answered; None without ground truth."""
        if self._data.classes is None or not self._answers:
            return None
        truth = tuple(self._data.classes.values())
        top1 = sum(best[0] == truth[index] for index, best in self._answers.items()) / len(self._answers)
        top5 = sum(truth[index] in best for index, best in self._answers.items()) / len(self._answers)
        return Accuracy(metric="top1", value=top1, images=len(self._answers), dataset_sha256=self._data.sha256, detail={"top5": top5})

    def _scores(self, outputs: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        return real_values(outputs, self._loaded)[0].ravel()

    def _check_classes(self) -> None:
        output = self._model.output
        if self._data.classes is None or output.classes is None:
            return
        last = max(self._data.classes.values())
        if last >= output.classes + output.label_offset:
            message = (
                f"the ground truth of {self._data.name!r} has class {last}, model {self._model.name!r} has {output.classes} classes "
                f"(label_offset {output.label_offset}): give the index that belongs to this model"
            )
            raise ConfigError(message)
