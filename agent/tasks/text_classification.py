"""Text classification: one class per text or pair of texts, scored as GLUE does: accuracy, F1 of class 1, or Matthews' correlation.

Model: token ids in (and, where it takes them, attention mask and token types), one score per class out. A card chooses it by
`task = "text-classification"`, and its output.labels name the classes as the data does; 0 and 1 need no labels.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.texts import TextClass
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import ItemFigure, Jackknifed, Share
from edgemeter.agent.text.tokenizer import TextTokenizer
from edgemeter.agent.vision.preprocess import values_of_first


class TextClassification:
    """Keeps the best class of every text."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        self._model, self._loaded, self._data = model, loaded, data
        self._tokenizer = TextTokenizer(model, loaded)
        self._truth, self._metric = self._classes()
        self._predictions: dict[int, int] = {}
        self._cut: set[int] = set()

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for text `index`, or pair of texts."""
        item = self._data.items[index]
        window, is_cut = self._tokenizer.call(item.read_text(), item.context)
        if is_cut:
            self._cut.add(index)
        return [self._tokenizer.inputs(window)]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep the class with the highest score, of equal ones the lowest."""
        self._predictions[index] = self._best(calls)

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return 1.0 where the best class of both raw outputs is the same, else 0.0."""
        del index
        return float(self._best(calls) == self._best(other))

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the metric of the data over all texts decoded; None without ground truth, or where F1 has no text of class 1."""
        truth = self._truth
        if truth is None or not self._predictions:
            return None
        members = sorted(self._predictions)
        share = Share({index: self._predictions[index] == truth[index] for index in members})
        targets, predicted = np.array(truth), np.zeros(len(truth), np.int64)
        predicted[members] = [self._predictions[index] for index in members]
        figures: dict[str, ItemFigure] = {
            "accuracy": share,
            "f1": Jackknifed(lambda members: f1_of_class_1(targets[list(members)], predicted[list(members)])),
            "matthews": Jackknifed(lambda members: matthews(targets[list(members)], predicted[list(members)]), limits=(-1.0, 1.0)),
        }
        cut = len(self._cut.intersection(members))
        limit = f"{cut} of {len(members)} texts are longer than {self._tokenizer.length or self._model.text.tokens} tokens and were cut"
        detail = {} if self._metric == "accuracy" else {"accuracy": share.value(members)}
        warnings = (limit,) if cut else ()
        return item_accuracy(self._metric, figures[self._metric], members, self._data, parts=parts, detail=detail, warnings=warnings)

    def _best(self, calls: Sequence[Outputs]) -> int:
        scores: NDArray[np.float32] = values_of_first(calls[0], self._loaded)[0].ravel()
        classes = self._model.output.classes or len(self._model.output.labels)
        if len(scores) < 2 or (classes and len(scores) != classes):
            raise ConfigError(
                f"model {self._model.name!r} gives {len(scores)} scores, its card has {classes or 'no'} classes: correct output.classes"
            )
        return int(np.argmax(scores))

    def _classes(self) -> tuple[tuple[int, ...] | None, str]:
        """Return the class of each text in the model's numbers, and the metric of the data; None without ground truth."""
        if not self._data.has_truth:
            return None, "accuracy"
        targets = [target for target in (self._data.targets or {}).values() if isinstance(target, TextClass)]
        if len(targets) != len(self._data.items):
            raise ConfigError(
                f"model {self._model.name!r} classifies texts, {self._data.name!r} has other ground truth: give a table of texts (.tsv)"
            )
        labels = [label.strip().lower() for label in self._model.output.labels]
        names = sorted({target.label for target in targets})
        numbers = {label: labels.index(label.lower()) for label in names if labels.count(label.lower()) == 1}
        # Numbers are the model's own where its labels do not say otherwise.
        if not numbers and all(label.isascii() and label.isdigit() for label in names):
            numbers = {label: int(label) for label in names}
        unknown = [label for label in names if label not in numbers]
        if unknown:
            raise ConfigError(
                f"{self._data.name!r} has the class {unknown[0]!r}, the labels of model {self._model.name!r} do not: write "
                f"output.labels in its card, in the model's order (of the data: {', '.join(names)[:80]})"
            )
        classes = self._model.output.classes or len(labels)
        if classes and max(numbers.values()) >= classes:
            raise ConfigError(
                f"{self._data.name!r} has class {max(numbers.values())}, model {self._model.name!r} has {classes} classes, from 0 on: give "
                "the data that belongs to this model"
            )
        return tuple(numbers[target.label] for target in targets), targets[0].metric


def f1_of_class_1(targets: NDArray[np.int64], predicted: NDArray[np.int64]) -> float | None:
    """Return the harmonic mean of precision and recall of class 1; None where neither has it."""
    right = int(((targets == 1) & (predicted == 1)).sum())
    total = int((targets == 1).sum() + (predicted == 1).sum())
    return 2 * right / total if total else None


def matthews(targets: NDArray[np.int64], predicted: NDArray[np.int64]) -> float:
    """Return Matthews' correlation of two classes, -1..1; 0 where one side has one class only, as scikit-learn has it."""
    both, neither = int(((targets == 1) & (predicted == 1)).sum()), int(((targets != 1) & (predicted != 1)).sum())
    false, missed = int(((targets != 1) & (predicted == 1)).sum()), int(((targets == 1) & (predicted != 1)).sum())
    under = (both + false) * (both + missed) * (neither + false) * (neither + missed)
    return (both * neither - false * missed) / math.sqrt(under) if under else 0.0
