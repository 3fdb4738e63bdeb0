"""Tasks: what a model is asked to do, and how its answers are scored. The protocol, and the table of names.

A task is one file in `tasks/` and one line in `TASKS`; its name is the `task` of a model card.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.dataset import Dataset
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.records import Accuracy
from edgemeter.agent.runtimes import Loaded

TASKS: Mapping[str, str] = {
    "classification": "edgemeter.agent.tasks.classification:Classification",
    "detection": "edgemeter.agent.tasks.detection:Detection",
}
# How much of an accuracy is computed.
Parts = Literal["all", "value"]


class Task(Protocol):
    """Prepares inputs and scores outputs for one model on one data set; constructed with card, loaded model and data set.

    For each item: `prepare`, (the inference), `answer`; at the end `score` once. `answer` keeps the item's answer for the score, and
    `same_answer`, of an item that was prepared, keeps nothing.
    """

    def __init__(self, model: card.Card, loaded: Loaded, data: Dataset) -> None: ...

    def prepare(self, index: int) -> list[NDArray[Any]]:
        """Return the model's inputs (dtype, shape and quantisation as it declares) for item `index` of the data set; decodes the file.

        Raises:
            ConfigError: the file is not an image (named).
        """
        ...

    def answer(self, index: int, outputs: Sequence[NDArray[Any]]) -> NDArray[np.float32] | None:
        """Take the raw outputs of item `index`: dequantise, decode, keep the answer.

        Returns:
            The scores of the objects found, float32 [n]; None of a task that looks for none.
        """
        ...

    def same_answer(self, index: int, one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> float | None:
        """Return the share (0..1) of the answer for item `index` that two raw outputs have in common; None where neither says anything."""
        ...

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the accuracy of all answers taken, None when the data set has no ground truth.

        `value` leaves out what costs time beside the value and its details: bounds, classes, groups.
        """
        ...


def create(model: card.Card, loaded: Loaded, data: Dataset) -> Task:
    """Return the task that the card names.

    Raises:
        ConfigError: no task has that name, or the model or the data does not fit it.
    """
    if model.task not in TASKS:
        message = f"no task is called {model.task!r}: choose one of {', '.join(TASKS)}"
        raise ConfigError(message)
    module, _, attribute = TASKS[model.task].partition(":")
    task: Task = getattr(import_module(module), attribute)(model, loaded, data)
    return task
