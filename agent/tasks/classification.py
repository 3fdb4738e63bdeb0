"""Classification: one class per photograph, scored by top-1 and top-5 accuracy."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.statistics import wilson_interval, wilson_standard_error
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_figures import Accuracy, PartAccuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import groups as groups_of
from edgemeter.agent.tasks.groups import ScoredGroup
from edgemeter.agent.tasks.parts import without_parts
from edgemeter.agent.vision.preprocess import Preprocessor, input_of, values_of_first

METRIC = "top1"
_BEST = 5
# Correct predictions one class further for so many classes are not chance.
_ENOUGH = 5


class Classification:
    """Keeps the five best classes of every photograph."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        if data.has_truth and data.classes is None:
            what = "COCO boxes" if data.truth is not None else "targets of another task"
            raise ConfigError(
                f'model {model.name!r} is a classifier, {data.name!r} has {what}: give an index {{"file": class}} as annotations'
            )
        self._model, self._loaded, self._data = model, loaded, data
        self._input = input_of(model, loaded)
        self._preprocessor = Preprocessor(model.image, self._input)
        self._predictions: dict[int, list[int]] = {}
        self._truth = self._classes()

    def prepare(self, index: int) -> Mapping[str, NDArray[Any]]:
        """Return the one input for photograph `index`."""
        return {self._input.name: self._preprocessor.load(self._data.files[index])[0]}

    def answer(self, index: int, outputs: Sequence[NDArray[Any]]) -> None:
        """Keep the classes with the five highest scores, best first; of equal scores the lower class comes first."""
        scores = self._scores(outputs)
        wanted = self._model.output.classes
        if wanted is not None and len(scores) != wanted:
            raise ConfigError(
                f"model {self._model.name!r} gives {len(scores)} scores, its card has {wanted} classes: correct output.classes"
            )
        best = np.argsort(-scores, kind="stable")[:_BEST] + self._model.output.label_offset
        self._predictions[index] = best.tolist()

    def same_answer(self, index: int, one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float:
        """Return 1.0 where the best class of both raw outputs is the same, else 0.0."""
        del index
        return float(np.argmax(self._scores(one)) == np.argmax(self._scores(other)))

    def score(self, parts: Literal["all", "value"] = "all") -> Accuracy | None:
        """Return top-1 (and top-5) over all photographs decoded; None without ground truth."""
        if self._truth is None or not self._predictions:
            return None
        right = {index: best[0] == self._truth[index] for index, best in self._predictions.items()}
        top1, top5 = sum(right.values()), sum(self._truth[index] in best for index, best in self._predictions.items())
        low, high = wilson_interval(top1, len(right))
        low5, high5 = wilson_interval(top5, len(right))
        whole = parts == "all"
        groups = self._groups(right) if whole else []
        return Accuracy(
            metric=METRIC,
            value=top1 / len(right),
            images=len(right),
            dataset_sha256=self._data.sha256,
            detail={"top5": top5 / len(right), "top5_low": low5, "top5_high": high5},
            low=low,
            high=high,
            interval="95 %, Wilson",
            without_parts=without_parts(sorted(right), lambda some: sum(right[index] for index in some) / len(some)) if whole else (),
            group_metric=METRIC if groups else None,
            groups=tuple(group.part for group in groups),
            group_gap=groups_of.largest_gap(groups, math.inf),
            warnings=(*self._data.warnings, *self._shifted(self._truth, top1)),
        )

    def _shifted(self, truth: Sequence[int], top1: int) -> tuple[str, ...]:
        """Return what an index that counts from another class than the model would explain: more correct predictions one class further."""
        for shift, word in ((-1, "lower"), (1, "higher")):
            right = [truth[index] for index, best in self._predictions.items() if best[0] == truth[index] + shift]
            if len(set(right)) >= _ENOUGH and len(right) > 2 * top1:
                share = len(right) / len(self._predictions)
                hint = (
                    f"with every class of the ground truth one {word}, top-1 would be {share:.3f}: check whether one of them counts the "
                    "background as class 0, and correct the index, or output.label_offset in the card"
                )
                return (hint,)
        return ()

    def _groups(self, right: Mapping[int, bool]) -> list[ScoredGroup]:
        """Return top-1 of each group by name, with Wilson's bounds; none of a group that is too small."""
        members: defaultdict[str, list[bool]] = defaultdict(list)
        for index, is_right in right.items():
            name = (self._data.groups or {}).get(list(self._data.classes or ())[index])
            if name is not None:
                members[name].append(is_right)
        return [_group(name, sum(its), len(its)) for name, its in sorted(members.items())]

    def _scores(self, outputs: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        return values_of_first(outputs, self._loaded)[0].ravel()

    def _check_labels(self) -> None:
        """Refuse labels that are not as many as the classes: every label after the missing one would name the wrong class."""
        output = self._model.output
        if output.classes is None or not output.labels:
            return
        wanted = output.classes + output.label_offset
        if len(output.labels) != wanted:
            raise ConfigError(
                f"model {self._model.name!r} has {len(output.labels)} labels and {output.classes} classes (label_offset "
                f"{output.label_offset}): give {wanted} labels in its card, or none"
            )

    def _classes(self) -> tuple[int, ...] | None:
        """Return the class of each photograph in the model's own numbers, None without ground truth."""
        if self._data.classes is None:
            return None
        self._check_labels()
        truth, output = tuple(self._data.classes.values()), self._model.output
        if self._data.class_names is not None:
            places = self._named_places(self._data.class_names)
            return tuple(places[place] for place in truth)
        if output.classes is not None and max(truth) >= output.classes + output.label_offset:
            raise ConfigError(
                f"the ground truth of {self._data.name!r} has class {max(truth)}, model {self._model.name!r} has {output.classes} classes "
                f"(label_offset {output.label_offset}): give the index that belongs to this model"
                f"{self._background_hint(min(truth), max(truth))}"
            )
        return truth

    def _background_hint(self, first: int, last: int) -> str:
        """Return what an index 1 to 1000 suggests: it counts the background as class 0."""
        output = self._model.output
        is_shifted = output.classes is not None and first >= 1 and last == output.classes + output.label_offset
        return "; it seems to count the background as class 0: subtract 1 from every class" if is_shifted else ""

    def _named_places(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the model's class of each class folder: by its labels where they name all, else by place where there are as many."""
        output = self._model.output
        plain = [label.strip().lower() for label in output.labels]
        wanted = [name.strip().lower() for name in names]
        if all(plain.count(name) == 1 for name in wanted):
            return tuple(plain.index(name) for name in wanted)
        if output.classes is not None and len(names) == output.classes + output.label_offset:
            return tuple(range(len(names)))
        raise ConfigError(
            f"{self._data.name!r} has {len(names)} class folders, model {self._model.name!r} has {output.classes} classes, and its labels "
            "do not name the folders: give a list of all its classes as annotations (.txt, one a line, first word the folder's name), "
            "or name the folders by class number"
        )


def _group(name: str, right: int, images: int) -> ScoredGroup:
    if images < groups_of.SMALLEST_GROUP:
        return groups_of.scored_group(name, None, None, images, None, math.inf)
    low, high = wilson_interval(right, images)
    part = PartAccuracy(name=name, value=right / images, images=images, low=low, high=high)
    return ScoredGroup(part, wilson_standard_error(right, images))
