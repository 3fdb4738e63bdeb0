"""Conformance checks for tasks (the contract: `edgemeter.agent.tasks.Task`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent import tasks
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import gain
from edgemeter.agent.conformance.promise import public_imports, refused, require, require_declared
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Array, Loaded
from edgemeter.agent.tasks import Task
from edgemeter.agent.tasks.item_accuracy import SMALLEST_GROUP


@dataclass(frozen=True, slots=True)
class TaskCase:
    """A card that names the task, what a runtime finds of its model, a data set with ground truth, and the outputs for each item.

    `value` is the score of these outputs. The outputs are those of one call an item; of a task that makes several, `calls` holds them all.
    """

    card: Card
    loaded: Loaded
    data: Dataset
    outputs: tuple[tuple[Array, ...], ...] = ()
    value: float = 1.0
    calls: tuple[tuple[tuple[Array, ...], ...], ...] = ()

    @property
    def by_item(self) -> list[list[list[Array]]]:
        """Return the outputs of each call of each item."""
        return [[list(call) for call in item] for item in self.calls or [(outputs,) for outputs in self.outputs]]


Check = Callable[[TaskCase, Path], None]


def _answered(case: TaskCase, data: Dataset | None = None, outputs: Sequence[Sequence[Sequence[Array]]] = ()) -> Task:
    task = tasks.create(case.card, case.loaded, data or case.data)
    for index, answers in enumerate(outputs or case.by_item):
        calls = task.prepare(index)
        require(len(calls) == len(answers), f"item {index} takes {len(calls)} calls, the case has outputs of {len(answers)}")
        scores = task.predict(index, answers)
        require(scores is None or (scores.dtype == np.float32 and scores.ndim == 1), "predict returns scores, float32 [n], or None")
    return task


def prepared_inputs_are_as_the_model_declares(case: TaskCase, _folder: Path) -> None:
    """Names, dtype and shape, for every item; the same each time."""
    task = tasks.create(case.card, case.loaded, case.data)
    for index in range(len(case.data.items)):
        declared = sorted(info.name for info in case.loaded.inputs)
        for by_name in task.prepare(index):
            require(
                not declared or sorted(by_name) == declared,
                f"item {index} is prepared by the model's names: {sorted(by_name)}, {declared} is right",
            )
        calls, repeated_calls = (tasks.prepared(task, index, case.loaded) for _ in range(2))
        require(len(calls) == len(repeated_calls), f"preparing item {index} again gives as many calls")
        for inputs, repeated in zip(calls, repeated_calls, strict=True):
            require_declared(inputs, case.loaded.inputs, f"item {index} is prepared as the model declares")
            require(all(map(np.array_equal, inputs, repeated)), f"preparing item {index} again gives the same inputs")


def outputs_get_their_score(case: TaskCase, _folder: Path) -> None:
    """With a metric, bounds around the value, the number of items and the hash of the data set."""
    accuracy = _answered(case).score()
    if accuracy is None:
        require(accuracy, "a data set with ground truth is scored")
        return
    require(accuracy.metric, "a score names its metric")
    require(math.isclose(accuracy.value, case.value, abs_tol=1e-9), f"{accuracy.metric} is {accuracy.value}, {case.value} is right")
    require(accuracy.images == len(case.by_item), f"the score counts {accuracy.images} items, {len(case.by_item)} is right")
    require(accuracy.dataset_sha256 == case.data.sha256, "a score names the data set by its hash")
    low, high = (accuracy.value if bound is None else bound for bound in (accuracy.low, accuracy.high))
    require(low <= accuracy.value <= high, f"the bounds {accuracy.low}, {accuracy.high} lie around the value {accuracy.value}")


def the_value_alone_is_the_same(case: TaskCase, _folder: Path) -> None:
    """Leaving out bounds and groups changes no value."""
    task = _answered(case)
    alone, accuracy = task.score("value"), task.score("all")
    require(alone is not None and accuracy is not None and alone.value == accuracy.value, "score('value') and score('all') have one value")


def without_ground_truth_there_is_no_score(case: TaskCase, _folder: Path) -> None:
    """The model still runs; an accuracy is not made up."""
    bare = replace(case.data, truth=None, image_ids=None, classes=None, class_names=None, groups=None, targets=None)
    require(_answered(case, bare).score() is None, "without ground truth score returns None")


def without_predictions_there_is_no_score(case: TaskCase, _folder: Path) -> None:
    """Comparing two outputs keeps nothing for the score."""
    task = tasks.create(case.card, case.loaded, case.data)
    task.prepare(0)
    same = task.same_predictions(0, case.by_item[0], case.by_item[0])
    require(same in (1.0, None), f"same_predictions of one and the same output is 1.0, or None without predictions, not {same}")
    require(task.score() is None, "same_predictions keeps nothing, and without predictions score returns None")


def a_broken_model_gets_no_score_that_is_no_number(case: TaskCase, _folder: Path) -> None:
    """Dead, overflown or exploded outputs end in a finite score, or in one line: no crash and no warning."""
    for value in (0.0, np.nan, np.inf, -np.inf, 1e30):
        broken = [
            [[np.full_like(array, value) if array.dtype.kind == "f" else np.zeros_like(array) for array in call] for call in calls]
            for calls in case.by_item
        ]
        try:
            accuracy = _answered(case, outputs=broken).score()
        except ConfigError:
            continue
        require(accuracy is None or math.isfinite(accuracy.value), f"outputs of {value} get a finite score or none")


def wrong_outputs_get_a_worse_score(case: TaskCase, _folder: Path) -> None:
    """Turned round, all alike, or those of another item: never better, and worse at least once."""
    best = _answered(case).score("value")
    require(best is not None, "a data set with ground truth is scored")
    right = case.by_item
    spoilt = [
        [[[np.asarray(-array if array.dtype.kind == "f" else ~array) for array in call] for call in item] for item in right],
        [[[np.zeros_like(array) for array in call] for call in item] for item in right],
        *([[*right[1:], right[0]]] if len({len(item) for item in right}) == 1 else []),
    ]
    losses = []
    for outputs in spoilt:
        try:
            accuracy = _answered(case, outputs=outputs).score("value")
        except ConfigError:
            continue
        if best is not None and accuracy is not None:
            losses.append(gain(best.value, best.better) - gain(accuracy.value, accuracy.better))
    require(all(loss >= 0 for loss in losses), "wrong outputs get no better score than the right ones")
    require(any(loss > 0 for loss in losses), "some wrong outputs get a worse score than the right ones")


def groups_are_scored_as_if_alone(case: TaskCase, _folder: Path) -> None:
    """A group's figure is that of its items alone, and all items with a group are in one."""
    copies = SMALLEST_GROUP
    first, further = [0] * copies, [index for index in range(1, len(case.data.items)) for _ in range(copies)]

    def score(members: Sequence[int], groups: Sequence[str] | None = None) -> Accuracy | None:
        outputs = [case.by_item[index] for index in members]
        return _answered(case, _of_copies(case, members, groups), outputs).score()

    accuracy = score([*first, *further], ["first"] * len(first) + ["others"] * len(further))
    if accuracy is None:
        require(accuracy, "a data set with ground truth is scored")
        return
    sizes = {group.name: group.images for group in accuracy.groups}
    require(sizes == {"first": len(first), "others": len(further)}, f"the groups of the data set have figures, these have: {sizes}")
    for group, members in zip(accuracy.groups, (first, further), strict=True):
        scored = score(members)
        right = None if scored is None else scored.value
        same = group.value == right or (group.value is not None and right is not None and math.isclose(group.value, right, abs_tol=1e-9))
        require(same, f"the group {group.name!r} has {group.value}, its items alone have {right}")
        low, high = (group.value if bound is None else bound for bound in (group.low, group.high))
        if group.value is not None and low is not None and high is not None:
            require(low <= group.value <= high, f"the bounds of the group {group.name!r} lie around its value")
    values = [group.value for group in accuracy.groups if group.value is not None]
    gap = accuracy.group_gap
    largest = max(values) - min(values) if len(values) > 1 else None
    same = gap is None if largest is None else gap is not None and math.isclose(gap.value, largest, abs_tol=1e-9)
    require(same, f"the gap is the largest difference of two groups, {largest}")
    if gap is not None:
        named = {group.name: gain(group.value, accuracy.better) for group in accuracy.groups if group.value is not None}
        require(named[gap.best] == max(named.values()) and named[gap.worst] == min(named.values()), "the gap names the best and the worst")


def _of_copies(case: TaskCase, of: Sequence[int], groups: Sequence[str] | None) -> Dataset:
    """Return a data set whose item i is a copy of item `of[i]` of the case's, with a group if any, and ground truth in the same form."""
    data = case.data
    names = [f"{number:04d} {data.items[index].name}" for number, index in enumerate(of)]

    def copied(by_name: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if by_name is None else {name: by_name[data.items[index].name] for name, index in zip(names, of, strict=True)}

    copies = replace(
        data,
        items=tuple(replace(data.items[index], name=name) for name, index in zip(names, of, strict=True)),
        classes=copied(data.classes),
        targets=copied(data.targets),
        groups=None if groups is None else dict(zip(names, groups, strict=True)),
    )
    if data.truth is None or data.image_ids is None:
        return copies
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for copy, index in enumerate(of):
        (image,) = (candidate for candidate in data.truth["images"] if candidate["id"] == data.image_ids[index])
        images.append({**image, "id": copy + 1, "file_name": names[copy], "group": groups[copy] if groups else None})
        its = [annotation for annotation in data.truth["annotations"] if annotation["image_id"] == image["id"]]
        annotations += [{**annotation, "id": len(annotations) + number, "image_id": copy + 1} for number, annotation in enumerate(its, 1)]
    truth = {**data.truth, "images": images, "annotations": annotations}
    return replace(copies, truth=truth, image_ids=tuple(range(1, len(of) + 1)))


def an_item_that_cannot_be_read_is_refused_by_its_name(case: TaskCase, folder: Path) -> None:
    """Garbage in place of a file; of items inside a file their reader sees to that."""
    first = case.data.items[0]
    if not first.is_file:
        return
    spoilt = folder / first.path.name
    spoilt.write_bytes(b"\xff\xfe\x00garbage\n")
    task = tasks.create(case.card, case.loaded, replace(case.data, items=(replace(first, path=spoilt), *case.data.items[1:])))
    with refused("preparing a garbled file", ConfigError, mentions=spoilt.name):
        task.prepare(0)


CHECKS: tuple[Check, ...] = (
    public_imports("task", tasks.TASKS, tasks.ENTRY_POINTS, lambda case: case.card.task),
    prepared_inputs_are_as_the_model_declares,
    outputs_get_their_score,
    the_value_alone_is_the_same,
    without_ground_truth_there_is_no_score,
    without_predictions_there_is_no_score,
    a_broken_model_gets_no_score_that_is_no_number,
    wrong_outputs_get_a_worse_score,
    groups_are_scored_as_if_alone,
    an_item_that_cannot_be_read_is_refused_by_its_name,
)
