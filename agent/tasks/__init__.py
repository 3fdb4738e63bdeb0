"""Tasks: the inputs of a model, and the scores of its predictions.

The protocol and the table of names; one file per task.

Packages register tasks in the entry point group `edgemeter.tasks`; a card names one as `task`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.runtimes import Array, Loaded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgemeter.agent.datasets.dataset import Dataset

TASKS: Mapping[str, str] = {
    "classification": "edgemeter.agent.tasks.classification:Classification",
    "detection": "edgemeter.agent.tasks.detection:Detection",
    "pose": "edgemeter.agent.tasks.shapes:Pose",
    "segmentation": "edgemeter.agent.tasks.shapes:Segmentation",
    "semantic-segmentation": "edgemeter.agent.tasks.pixels:SemanticSegmentation",
}
ENTRY_POINTS = "edgemeter.tasks"
# Tasks that find objects with scores: if two outputs differ, the objects decide whether they are
# the same.
OF_OBJECTS = frozenset({"detection", "pose", "segmentation"})
# How much of an accuracy is computed.
Parts = Literal["all", "value"]
# The inputs of one call of the model, by name, and its outputs, in the model's order.
Inputs = Mapping[str, Array]
Outputs = Sequence[Array]


class Task(Protocol):
    """Prepares inputs and scores outputs for one model on one data set.

    It is constructed with card, loaded model and data set. For each item: `prepare`, (the
    inferences), `predict`; at the end `score` once. An item is one call of the model or several
    (windows of a recording, tiles of a picture); `predict` joins their outputs, and keeps the
    predictions for the score. `same_predictions` is called after `prepare` of the item, and keeps
    nothing.

    A class in a file may have a `reader`, the class that reads its ground truth
    (`datasets.Reader`).
    """

    def __init__(self, model: Card, loaded: Loaded, data: "Dataset") -> None: ...

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the calls for item `index` of the data set, at least one; decodes the file.

        A call has the model's inputs by their declared names, with the declared dtype, shape and
        quantisation. The order matters only for models that declare no inputs (TorchScript).

        Raises:
            ConfigError: the task cannot use the item, which is named.
        """

    def predict(self, index: int, calls: Sequence[Outputs]) -> "NDArray[np.float32] | None":
        """Take the raw outputs of item `index`, call by call, and keep the predictions.

        The outputs are dequantised, decoded and joined.

        Returns:
            The scores of the detected objects, float32 [n]; None if the task has no objects.
        """

    def same_predictions(
        self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]
    ) -> float | None:
        """Return the share (0..1) of the predictions that two raw outputs have in common.

        The outputs are those for item `index`; the share is None if both are empty. It is used for
        tasks of `OF_OBJECTS`, and to compare a conversion with its source; otherwise values are
        compared.
        """

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the accuracy of all predictions, None without ground truth.

        `value` omits bounds and classes, which take time. The accuracy is 0..1; only an error
        (`better="lower"`) may exceed 1.
        """


@runtime_checkable
class ObjectResults(Protocol):
    """A task whose predictions can be COCO results: boxes, outlines, keypoints."""

    def results(self) -> list[dict[str, Any]]:
        """Return all predictions, each as a dictionary.

        It has image_id, category_id, bbox (x, y, width, height in pixels), score, and the task's
        own shape.
        """


@runtime_checkable
class BoxExtents(Protocol):
    """A task whose predictions are boxes.

    They have no extent if 0..1 is read as pixels, or the reverse.
    """

    def box_extents(self) -> tuple[int, int]:
        """Return the number of photographs with boxes that count, and of those without extent.

        The latter are the photographs whose best boxes have no extent.
        """


def prepared(task: Task, index: int, loaded: Loaded) -> list[list[Array]]:
    """Return the inputs that the task prepares for item `index`.

    They come call by call, in the model's order.

    Raises:
        ConfigError: the file cannot be read, or the task's inputs are not those that the model
            declares.
    """
    calls = [
        _in_order(inputs, [info.name for info in loaded.inputs]) for inputs in task.prepare(index)
    ]
    if not calls:
        raise ConfigError(
            f"the task prepares no call of the model for item {index}: correct the data, "
            "or task in its card"
        )
    return calls


def _in_order(inputs: Inputs, declared: Sequence[str]) -> list[Array]:
    if not declared:
        return list(inputs.values())
    if len(declared) != len(inputs) or set(declared) != set(inputs):
        have, want = (", ".join(map(repr, names_of)) for names_of in (inputs, declared))
        raise ConfigError(
            f"the task prepares the inputs {have}, the model takes {want}: correct task in its card"
        )
    return [inputs[name] for name in declared]


def names() -> list[str]:
    """Return the names of all known tasks, ours first."""
    return plugin_names(TASKS, ENTRY_POINTS)


def create(model: Card, loaded: Loaded, data: "Dataset") -> Task:
    """Return the task that the card names.

    Raises:
        ConfigError: no task has that name, or the model or the data does not fit it.
        UnavailableError: the package of the task cannot be imported.
    """
    task: Task = find_plugin("task", TASKS, model.task, ENTRY_POINTS)(model, loaded, data)
    return task
