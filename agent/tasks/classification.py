"""Classification: one class per photograph or per array, scored by top-1 and top-5 accuracy."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card, TensorInput
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.array_items import array_inputs
from edgemeter.agent.tasks.class_fit import class_output
from edgemeter.agent.tasks.parts import Share, item_accuracy, noun_of
from edgemeter.agent.tasks.photo_items import load_item
from edgemeter.agent.vision.preprocess import Preprocessor, input_of, values_of_first

METRIC = "top1"
_BEST = 5
# Correct predictions with shifted classes are not chance if they are of as many classes.
_ENOUGH = 5


class Classification:
    """Keeps the five best classes of every item.

    An item is a photograph if the card's input is an image, else an array.
    """

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        if data.has_truth and data.classes is None:
            truth_kind = "COCO boxes" if data.truth is not None else "targets of another task"
            raise ConfigError(
                f"model {model.name!r} is a classifier, {data.name!r} has {truth_kind}: give an "
                f'index {{"file": class}} as annotations'
            )
        self._model, self._loaded, self._data = model, loaded, data
        self._inputs_of = self._front_end()
        self._predictions: dict[int, list[int]] = {}
        self._truth = self._classes()

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for item `index`."""
        return [self._inputs_of(self._data.items[index])]

    def _front_end(self) -> Callable[[Item], Inputs]:
        """Return the function that makes the inputs of an item."""
        if isinstance(self._model.input, TensorInput):
            return lambda item: array_inputs(item, self._loaded)
        info = input_of(self._model, self._loaded)
        preprocessor = Preprocessor(self._model.image, info)
        return lambda item: {info.name: load_item(preprocessor, item)[0]}

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep the classes with the five highest scores, best first.

        For equal scores the lower class comes first.
        """
        scores = self._scores(calls)
        classes = self._model.output.classes
        if classes is not None and len(scores) != classes:
            raise ConfigError(
                f"model {self._model.name!r} gives {len(scores)} scores, its card has {classes} "
                "classes: correct output.classes"
            )
        best = np.argsort(-scores, kind="stable")[:_BEST]
        self._predictions[index] = (best + self._model.output.label_offset).tolist()

    def same_predictions(
        self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]
    ) -> float:
        """Return 1.0 if the best class of both raw outputs is the same, else 0.0."""
        del index
        return float(np.argmax(self._scores(calls)) == np.argmax(self._scores(other)))

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return top-1 (and top-5) over all photographs decoded; None without ground truth."""
        if self._truth is None or not self._predictions:
            return None
        return class_accuracy(self._predictions, self._truth, self._data, parts)

    def _scores(self, calls: Sequence[Outputs]) -> NDArray[np.float32]:
        return values_of_first(calls[0], self._loaded)[0].ravel()

    def _classes(self) -> tuple[int, ...] | None:
        """Return the class of each photograph in the model's own numbers.

        The result is None without ground truth.
        """
        if self._data.classes is None:
            return None
        truth, output = tuple(self._data.classes.values()), self._model.output
        counted = (
            f"{output.classes} classes{class_output(self._loaded.outputs, output.classes or 0)}"
        )
        expected = None if output.classes is None else output.classes + output.label_offset
        # Every label after a missing one would name the wrong class.
        if expected is not None and output.labels and len(output.labels) != expected:
            raise ConfigError(
                f"model {self._model.name!r} has {len(output.labels)} labels and "
                f"{output.classes} classes (label_offset "
                f"{output.label_offset}): give {expected} labels in its card, or none"
            )
        if self._data.class_names is not None:
            places = self._named_places(self._data.class_names, counted)
            return tuple(places[index] for index in truth)
        if expected is not None and max(truth) >= expected:
            hint = "; it seems to count the background as class 0: subtract 1 from every class"
            raise ConfigError(
                f"the ground truth of {self._data.name!r} has class {max(truth)}, model "
                f"{self._model.name!r} has {counted} "
                f"(label_offset {output.label_offset}): give the index that belongs to this model"
                f"{hint if min(truth) >= 1 and max(truth) == expected else ''}"
            )
        return truth

    def _named_places(self, names: Sequence[str], counted: str) -> tuple[int, ...]:
        """Return the model's class of each class folder.

        It is found by label if the labels name all, else by index if there are as many.
        """
        output = self._model.output
        plain = [label.strip().lower() for label in output.labels]
        folders = [name.strip().lower() for name in names]
        if all(plain.count(name) == 1 for name in folders):
            return tuple(plain.index(name) for name in folders)
        if output.classes is not None and len(names) == output.classes + output.label_offset:
            return tuple(range(len(names)))
        unnamed = next((name for name in names if plain.count(name.strip().lower()) != 1), names[0])
        raise ConfigError(
            f"{self._data.name!r} has {len(names)} class folders, model {self._model.name!r} has "
            f"{counted}, and its labels do not name "
            f"{unnamed!r}: give a list of all its classes as annotations (.txt, one a line, "
            "first word the folder's name), or name the "
            "folders by class number. Or write three lines under [output] of its card: classes "
            f"= {output.classes}, label_offset = 0 and "
            "labels = [the name of the folder of each class]"
        )


def class_accuracy(
    ranked: Mapping[int, Sequence[int]], truth: Sequence[int], data: Dataset, parts: Parts = "all"
) -> Accuracy | None:
    """Return top-1 and, where more than one class was ranked, top-5.

    The classes are those predicted for each item, best first.
    """
    right = {index: best[0] == truth[index] for index, best in ranked.items()}
    members, detail = sorted(right), {}
    if any(len(best) > 1 for best in ranked.values()):
        top5 = Share({index: truth[index] in best[:_BEST] for index, best in ranked.items()})
        bounds = top5.bounded(members, noun_of(data), data.copies)
        detail = {"top5": top5.value(members), "top5_low": bounds.low, "top5_high": bounds.high}
    return item_accuracy(
        METRIC,
        Share(right),
        members,
        data,
        parts=parts,
        detail=detail,
        warnings=_shifted(ranked, truth, sum(right.values())),
    )


def _shifted(
    ranked: Mapping[int, Sequence[int]], truth: Sequence[int], top1: int
) -> tuple[str, ...]:
    """Return the warning that the index of the classes may be off by one.

    It is given if most predictions are right with every class shifted by one.
    """
    for shift, word in ((-1, "lower"), (1, "higher")):
        right = [truth[index] for index, best in ranked.items() if best[0] == truth[index] + shift]
        if len(set(right)) >= _ENOUGH and len(right) > 2 * top1:
            return (
                (
                    f"with every class of the ground truth one {word}, top-1 would be "
                    f"{len(right) / len(ranked):.3f}: check whether one of them counts the "
                    "background as class 0, and correct the index, or output.label_offset in the "
                    "card"
                ),
            )
    return ()
