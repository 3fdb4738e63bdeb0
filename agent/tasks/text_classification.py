"""Text classification: one class per text or pair of texts, scored as GLUE does: accuracy, F1 of class 1, or Matthews' correlation.

A number for each (STS-B) is scored by Pearson's correlation, with Spearman's.

Model: token ids in (and, where it takes them, attention mask and token types), one score per class out. A card chooses it by
`task = "text-classification"`, and its output.labels name the classes as the data does; 0 and 1 need no labels.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.run_statistics import ranks
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.texts import TextClass, TextMetric
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import ItemFigure, Jackknifed, Share
from edgemeter.agent.text.tokenizer import TextTokenizer
from edgemeter.agent.vision.preprocess import values_of_first

Floats = NDArray[np.float64]
# Two numbers that differ by less than this share are the same.
_SAME_RATIO = 0.05


class TextClassification:
    """Keeps the best class of every text, or the number that a model of one output gives it."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        self._model, self._loaded, self._data = model, loaded, data
        self._tokenizer = TextTokenizer(model, loaded)
        self._truth, self._metric = self._targets()
        self._predictions: dict[int, float] = {}
        self._cut: set[int] = set()

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for text `index`, or pair of texts."""
        item = self._data.items[index]
        window, is_cut = self._tokenizer.call(item.read_text(), item.context)
        if is_cut:
            self._cut.add(index)
        return [self._tokenizer.inputs(window)]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep the class with the highest score, of equal ones the lowest; of a regression the number."""
        self._predictions[index] = self._best(calls)

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return 1.0 where both raw outputs give the same class (numbers: to 5%), else 0.0."""
        del index
        first, second = self._best(calls), self._best(other)
        return float(first == second or (self._metric == "pearson" and math.isclose(first, second, rel_tol=_SAME_RATIO)))

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the metric of the data over all texts decoded; None without ground truth, or where F1 has no text of class 1."""
        if self._truth is None or not self._predictions:
            return None
        cut = len(self._cut.intersection(self._predictions))
        longest = self._tokenizer.length or self._model.text.tokens
        limit = f"{cut} of {len(self._predictions)} texts are longer than {longest} tokens and were cut"
        return text_accuracy(self._predictions, self._truth, self._metric, self._data, parts, (limit,) if cut else ())

    def _best(self, calls: Sequence[Outputs]) -> float:
        scores: NDArray[np.float32] = values_of_first(calls[0], self._loaded)[0].ravel()
        if self._metric == "pearson":
            if len(scores) != 1:
                raise ConfigError(
                    f"model {self._model.name!r} gives {len(scores)} values, and {self._data.name!r} holds a number for each text: give a "
                    "model of one output"
                )
            return float(scores[0])
        classes = self._model.output.classes or len(self._model.output.labels)
        if len(scores) < 2 or (classes and len(scores) != classes):
            raise ConfigError(
                f"model {self._model.name!r} gives {len(scores)} scores, its card has {classes or 'no'} classes: correct output.classes"
            )
        return int(np.argmax(scores))

    def _targets(self) -> tuple[tuple[float, ...] | None, TextMetric]:
        """Return the class of each text in the model's numbers (else its number), and the metric of the data; None without ground truth."""
        if not self._data.has_truth:
            return None, "accuracy"
        targets = [target for target in (self._data.targets or {}).values() if isinstance(target, TextClass)]
        if len(targets) != len(self._data.items):
            raise ConfigError(
                f"model {self._model.name!r} classifies texts, {self._data.name!r} has other ground truth: give a table of texts (.tsv)"
            )
        if targets[0].metric == "pearson":
            return tuple(float(target.label) for target in targets), "pearson"
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


def text_accuracy(
    predictions: Mapping[int, float],
    truth: Sequence[float],
    metric: TextMetric,
    data: Dataset,
    parts: Parts = "all",
    warnings: Sequence[str] = (),
) -> Accuracy | None:
    """Return the metric of the classes (or numbers) predicted for texts; None where it is not defined, as F1 without a text of class 1."""
    members = sorted(predictions)
    targets, predicted = np.array(truth, np.float64), np.zeros(len(truth))
    predicted[members] = [predictions[index] for index in members]

    def over(figure: Callable[[Floats, Floats], float | None]) -> Callable[[Sequence[int]], float | None]:
        return lambda members: figure(targets[list(members)], predicted[list(members)])

    share = Share({index: predictions[index] == truth[index] for index in members})
    figures: dict[TextMetric, ItemFigure] = {
        "accuracy": share,
        "f1": Jackknifed(over(f1_of_class_1)),
        "matthews": Jackknifed(over(matthews), limits=(-1.0, 1.0)),
        "pearson": Jackknifed(over(pearson), limits=(-1.0, 1.0)),
    }
    detail: dict[str, float | None] = {}
    if metric == "pearson":
        detail = {"spearman": spearman(targets[members], predicted[members])}
    elif metric != "accuracy":
        detail = {"accuracy": share.value(members)}
    return item_accuracy(metric, figures[metric], members, data, parts=parts, detail=detail, warnings=warnings)


def pearson(targets: Floats, predicted: Floats) -> float | None:
    """Return the linear correlation of two series, -1..1; None of constant targets, 0 of predictions that are constant or no numbers."""
    if len(targets) == 0 or (targets == targets[0]).all():
        return None
    if not np.isfinite(predicted).all() or (predicted == predicted[0]).all():
        return 0.0
    first, second = targets - targets.mean(), predicted - predicted.mean()
    return min(max(float(first @ second) / math.sqrt(float(first @ first) * float(second @ second)), -1.0), 1.0)


def spearman(targets: Floats, predicted: Floats) -> float | None:
    """Return the correlation of the ranks of two series, of equals the mean of theirs; None and 0 as `pearson`."""
    return pearson(ranks(targets), ranks(predicted) if np.isfinite(predicted).all() else predicted)


def f1_of_class_1(targets: Floats, predicted: Floats) -> float | None:
    """Return the harmonic mean of precision and recall of class 1; None where neither has it."""
    right = int(((targets == 1) & (predicted == 1)).sum())
    total = int((targets == 1).sum() + (predicted == 1).sum())
    return 2 * right / total if total else None


def matthews(targets: Floats, predicted: Floats) -> float:
    """Return Matthews' correlation of two classes, -1..1; 0 where one side has one class only, as scikit-learn has it."""
    both, neither = int(((targets == 1) & (predicted == 1)).sum()), int(((targets != 1) & (predicted != 1)).sum())
    false, missed = int(((targets != 1) & (predicted == 1)).sum()), int(((targets == 1) & (predicted != 1)).sum())
    under = (both + false) * (both + missed) * (neither + false) * (neither + missed)
    return (both * neither - false * missed) / math.sqrt(under) if under else 0.0
