"""What every task promises (the contract: `edgemeter.agent.tasks.Task`)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.conformance.promise import refused, require, require_declared
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Array, Loaded
from edgemeter.agent.tasks import Task


@dataclass(frozen=True, slots=True)
class TaskCase:
    """A card that names the task, what a runtime finds of its model, a data set with ground truth, and the outputs for each item.

    `value` is the score of these outputs.
    """

    card: Card
    loaded: Loaded
    data: Dataset
    outputs: tuple[tuple[Array, ...], ...]
    value: float = 1.0


Check = Callable[[TaskCase, Path], None]


def _answered(case: TaskCase, data: Dataset | None = None, outputs: Sequence[Sequence[Array]] = ()) -> Task:
    """Return a task that has seen all items."""
    task = tasks.create(case.card, case.loaded, data or case.data)
    for index, given in enumerate(outputs or case.outputs):
        task.prepare(index)
        scores = task.answer(index, given)
        require(scores is None or (scores.dtype == np.float32 and scores.ndim == 1), "answer returns scores, float32 [n], or None")
    return task


def prepared_inputs_are_as_the_model_declares(case: TaskCase, _folder: Path) -> None:
    """Names, dtype and shape, for every item; the same each time."""
    task = tasks.create(case.card, case.loaded, case.data)
    for index in range(len(case.data.files)):
        names, declared = sorted(task.prepare(index)), sorted(info.name for info in case.loaded.inputs)
        require(not declared or names == declared, f"item {index} is prepared by the model's names: {names}, {declared} is right")
        inputs = tasks.prepared(task, index, case.loaded)
        require_declared(inputs, case.loaded.inputs, f"item {index} is prepared as the model declares")
        again = tasks.prepared(task, index, case.loaded)
        require(all(map(np.array_equal, inputs, again)), f"preparing item {index} again gives the same inputs")


def outputs_get_their_score(case: TaskCase, _folder: Path) -> None:
    """With a metric, bounds around the value, the number of items and the hash of the data set."""
    found = _answered(case).score()
    if found is None:
        require(found, "a data set with ground truth is scored")
        return
    require(found.metric, "a score names its metric")
    require(math.isclose(found.value, case.value, abs_tol=1e-9), f"{found.metric} is {found.value}, {case.value} is right")
    require(found.images == len(case.outputs), f"the score counts {found.images} items, {len(case.outputs)} is right")
    require(found.dataset_sha256 == case.data.sha256, "a score names the data set by its hash")
    low, high = (found.value if bound is None else bound for bound in (found.low, found.high))
    require(low <= found.value <= high, f"the bounds {found.low}, {found.high} lie around the value {found.value}")


def the_value_alone_is_the_same(case: TaskCase, _folder: Path) -> None:
    """Leaving out bounds and groups changes no value."""
    task = _answered(case)
    alone, whole = task.score("value"), task.score("all")
    require(alone is not None and whole is not None and alone.value == whole.value, "score('value') and score('all') have one value")


def without_ground_truth_there_is_no_score(case: TaskCase, _folder: Path) -> None:
    """The model still runs; an accuracy is not made up."""
    bare = replace(case.data, truth=None, image_ids=None, classes=None, class_names=None, groups=None, targets=None)
    require(_answered(case, bare).score() is None, "without ground truth score returns None")


def without_predictions_there_is_no_score(case: TaskCase, _folder: Path) -> None:
    """Comparing two outputs keeps nothing for the score."""
    task = tasks.create(case.card, case.loaded, case.data)
    task.prepare(0)
    same = task.same_answer(0, case.outputs[0], case.outputs[0])
    require(same in (1.0, None), f"same_answer of one and the same output is 1.0, or None without predictions, not {same}")
    require(task.score() is None, "same_answer keeps nothing, and without predictions score returns None")


def a_broken_model_gets_no_score_that_is_no_number(case: TaskCase, _folder: Path) -> None:
    """Dead, overflown or exploded outputs end in a finite score, or in one line: no crash and no warning."""
    for value in (0.0, np.nan, np.inf, -np.inf, 1e30):
        broken = [
            [np.full_like(array, value) if array.dtype.kind == "f" else np.zeros_like(array) for array in outputs]
            for outputs in case.outputs
        ]
        try:
            found = _answered(case, outputs=broken).score()
        except ConfigError:
            continue
        require(found is None or math.isfinite(found.value), f"outputs of {value} get a finite score or none")


def an_item_that_cannot_be_read_is_refused_by_its_name(case: TaskCase, folder: Path) -> None:
    """Garbage in place of a file."""
    spoilt = folder / case.data.files[0].name
    spoilt.write_bytes(b"\xff\xfe\x00garbage\n")
    task = tasks.create(case.card, case.loaded, replace(case.data, files=(spoilt, *case.data.files[1:])))
    with refused("preparing a garbled file", ConfigError, mentions=spoilt.name):
        task.prepare(0)


CHECKS: tuple[Check, ...] = (
    prepared_inputs_are_as_the_model_declares,
    outputs_get_their_score,
    the_value_alone_is_the_same,
    without_ground_truth_there_is_no_score,
    without_predictions_there_is_no_score,
    a_broken_model_gets_no_score_that_is_no_number,
    an_item_that_cannot_be_read_is_refused_by_its_name,
)
