"""Predictions that something else made, scored item by item as a model's are."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.predictions import ClassLabel, Prediction
from edgemeter.agent.tasks.classification import class_accuracy


def score_classes(predictions: Mapping[str, Prediction], data: Dataset) -> Accuracy | None:
    """Return top-1 and top-5 of the classes predicted for all items of the data.

    Raises:
        ConfigError: an item has no prediction, a prediction no item, or the data have no classes; the message names the first.
    """
    if data.classes is None:
        raise ConfigError(f"predictions for {data.name!r} cannot be scored from a file: give a model")
    of_items = _by_item(predictions, data)
    ranked = {index: [_class_number(label, data.class_names) for label in each.labels] for index, each in of_items.items()}
    if (bare := next((index for index, labels in sorted(ranked.items()) if not labels), None)) is not None:
        raise ConfigError(f"the prediction for {data.items[bare].name!r} has no label or scores: give one")
    return class_accuracy(ranked, tuple(data.classes.values()), data)


def _by_item(predictions: Mapping[str, Prediction], data: Dataset) -> dict[int, Prediction]:
    """Return the prediction of each item by its number."""
    numbers = _numbers(data)
    unknown = [name for name in predictions if name not in numbers]
    if unknown:
        example = data.items[0].name if data.items[0].is_file else next(iter(numbers))
        raise ConfigError(
            f"{len(unknown)} of {len(predictions)} predictions are of items that {data.name!r} does not have, first {unknown[0]!r}: "
            f"write the ids as {example!r} is"
        )
    of_items = {numbers[name]: prediction for name, prediction in predictions.items()}
    absent = [item.name for index, item in enumerate(data.items) if index not in of_items]
    if absent:
        raise ConfigError(f"{len(absent)} of {len(data.items)} items have no prediction, first {absent[0]!r}: give one for each")
    return of_items


def _numbers(data: Dataset) -> dict[str, int]:
    """Return the number of each item by what a prediction may call it.

    A file has its name, also without folder or ending where that tells; what lies inside a file its name and its place from 0 on.
    """
    numbers: dict[str, int] = {}
    names = [item.name for item in data.items]
    if not all(item.is_file for item in data.items):
        return {key: index for index, name in enumerate(names) for key in (str(index), name)}
    paths = [PurePath(name) for name in names]
    for short in ([path.stem for path in paths], [path.name for path in paths], names):
        if len(set(short)) == len(short):
            numbers |= {name: index for index, name in enumerate(short)}
    return numbers


def _class_number(label: ClassLabel, names: Sequence[str] | None) -> int:
    if names is not None and label in names:
        return names.index(str(label))
    if str(label).removesuffix(".0").isdecimal():
        return int(float(label))
    known_names = f": {', '.join(names)[:80]}" if names else ", and the data has numbers"
    raise ConfigError(f"the predicted class {label!r} is none of the data's{known_names}")
