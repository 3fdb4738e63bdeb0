"""Tasks: what a model is asked to do, and how its predictions are scored. The protocol, and the table of names; one file per task.

Others register theirs through the entry point group `edgemeter.tasks`; a card names it as `task`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded

TASKS: Mapping[str, str] = {
    "classification": "edgemeter.agent.tasks.classification:Classification",
    "detection": "edgemeter.agent.tasks.detection:Detection",
    "pose": "edgemeter.agent.tasks.shapes:Pose",
    "segmentation": "edgemeter.agent.tasks.shapes:Segmentation",
    "semantic-segmentation": "edgemeter.agent.tasks.pixels:SemanticSegmentation",
}
ENTRY_POINTS = "edgemeter.tasks"
# Those that find objects in a picture, each with a score: of two outputs that differ, what was found decides whether they are the same.
OF_OBJECTS = frozenset({"detection", "pose", "segmentation"})
# How much of an accuracy is computed.
Parts = Literal["all", "value"]
# What one call of the model takes, by name, and what it gives, in the model's order.
Inputs = Mapping[str, NDArray[Any]]
Outputs = Sequence[NDArray[Any]]


class Task(Protocol):
    """Prepares inputs and scores outputs for one model on one data set; constructed with card, loaded model and data set.

    For each item: `prepare`, (the inferences), `predict`; at the end `score` once. An item is one call of the model or several (windows of
    a recording, tiles of a picture, choices of a question), and `predict` joins their outputs. It keeps the item's predictions for the
    score, and `same_predictions`, of an item that was prepared, keeps nothing.

    A class in a file may name, as `reader`, the class that reads its ground truth (`datasets.Reader`).
    """

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None: ...

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the calls for item `index` of the data set, at least one; decodes the file.

        A call is the model's inputs by the names that the model declares.

        Dtype, shape and quantisation are as declared. The order plays no part, but for a model that declares no inputs (TorchScript).

        Raises:
            ConfigError: the item is not of the kind that the task takes (named).
        """

    def predict(self, index: int, calls: Sequence[Outputs]) -> NDArray[np.float32] | None:
        """Take the raw outputs of item `index`, call by call: dequantise, decode, join, keep the predictions.

        Returns:
            The scores of the objects found, float32 [n]; None of a task without objects.
        """

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float | None:
        """Return the share (0..1) of the predictions for item `index` that two raw outputs have in common; None if both are empty.

        It decides for a task of `OF_OBJECTS`, and where a conversion is compared with its source; else the values do.
        """

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the accuracy of all predictions kept, None when the data set has no ground truth.

        `value` leaves out what costs time beside the value and its details: bounds and classes.
        """


@runtime_checkable
class ObjectResults(Protocol):
    """A task whose predictions have a form in COCO's results: boxes, outlines, keypoints."""

    def results(self) -> list[dict[str, Any]]:
        """Return all predictions kept: image_id, category_id, bbox (x, y, width, height in pixels), score; and the task's own shape."""


@runtime_checkable
class BoxExtents(Protocol):
    """A task whose predictions are boxes, which have no extent where 0..1 is read as pixels, or the reverse."""

    def box_extents(self) -> tuple[int, int]:
        """Return in how many photographs there are boxes with a score that counts, and in how many of these the best have no extent."""


def prepared(task: Task, index: int, loaded: Loaded) -> list[list[NDArray[Any]]]:
    """Return the inputs that the task prepares for item `index`, call by call, in the model's order.

    Raises:
        ConfigError: the file cannot be read, or the task's inputs are not those that the model declares.
    """
    calls = [_in_order(inputs, [info.name for info in loaded.inputs]) for inputs in task.prepare(index)]
    if not calls:
        raise ConfigError(f"the task prepares no call of the model for item {index}: correct the data, or task in its card")
    return calls


def _in_order(inputs: Inputs, declared: Sequence[str]) -> list[NDArray[Any]]:
    if not declared:
        return list(inputs.values())
    if len(declared) != len(inputs) or set(declared) != set(inputs):
        have, want = (", ".join(map(repr, names_of)) for names_of in (inputs, declared))
        raise ConfigError(f"the task prepares the inputs {have}, the model takes {want}: correct task in its card")
    return [inputs[name] for name in declared]


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
