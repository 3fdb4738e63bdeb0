"""Tasks: what a model is asked to do, and how its predictions are scored. The protocol, and the table of names; one file per task.

Others register theirs through the entry point group `edgemeter.tasks`; a card names it as `task`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_figures import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded

TASKS: Mapping[str, str] = {
    "classification": "edgemeter.agent.tasks.classification:Classification",
    "detection": "edgemeter.agent.tasks.detection:Detection",
}
ENTRY_POINTS = "edgemeter.tasks"
# How much of an accuracy is computed.
Parts = Literal["all", "value"]


class Task(Protocol):
    """Prepares inputs and scores outputs for one model on one data set; constructed with card, loaded model and data set.

    For each item: `prepare`, (the inference), `answer`; at the end `score` once. `answer` keeps the item's predictions for the score, and
    `same_answer`, of an item that was prepared, keeps nothing.
    """

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None: ...

    def prepare(self, index: int) -> Mapping[str, NDArray[Any]]:
        """Return the model's inputs for item `index` of the data set, by the names that the model declares; decodes the file.

        Dtype, shape and quantisation are as declared. The order plays no part, but for a model that declares no inputs (TorchScript).

        Raises:
            ConfigError: the file is not of the kind that the task takes (named).
        """
        ...

    def answer(self, index: int, outputs: Sequence[NDArray[Any]]) -> NDArray[np.float32] | None:
        """Take the raw outputs of item `index`: dequantise, decode, keep the predictions.

        Returns:
            The scores of the objects found, float32 [n]; None of a task without objects.
        """
        ...

    def same_answer(self, index: int, one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float | None:
        """Return the share (0..1) of the predictions for item `index` that two raw outputs have in common; None if both are empty."""
        ...

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the accuracy of all predictions kept, None when the data set has no ground truth.

        `value` leaves out what costs time beside the value and its details: bounds, classes, groups.
        """
        ...


def prepared(task: Task, index: int, loaded: Loaded) -> list[NDArray[Any]]:
    """Return the inputs that the task prepares for item `index`, in the model's order.

    Raises:
        ConfigError: the file cannot be read, or the task's inputs are not those that the model declares.
    """
    given, declared = task.prepare(index), [info.name for info in loaded.inputs]
    if not declared:
        return list(given.values())
    if len(declared) != len(given) or set(declared) != set(given):
        have, want = (", ".join(map(repr, one)) for one in (given, declared))
        raise ConfigError(f"the task prepares the inputs {have}, the model takes {want}: correct task in its card")
    return [given[name] for name in declared]


def names() -> list[str]:
    """Return the names of all known tasks, ours first."""
    return plugin_names(TASKS, ENTRY_POINTS)


def create(model: Card, loaded: Loaded, data: Dataset) -> Task:
    """Return the task that the card names.

    Raises:
        ConfigError: no task has that name, or the model or the data does not fit it.
        UnavailableError: it is another package's, and cannot be imported.
    """
    task: Task = find_plugin("task", TASKS, model.task, ENTRY_POINTS)(model, loaded, data)
    return task
