"""The pass over the data after timing: the accuracy of the answers, and whether they are those that were timed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records
from edgemeter.agent.engine import job
from edgemeter.agent.engine.loading import Model
from edgemeter.agent.runtimes import Array

Emit = Callable[[job.Event], None]


@dataclass(frozen=True, slots=True)
class Answered:
    """The pass over the data after timing."""

    preprocess_ns: NDArray[np.int64]
    postprocess_ns: NDArray[np.int64]
    check: records.OutputCheck
    accuracy: records.Accuracy | None
    reason: str | None


def answer(work: job.Job, model: Model, prepared: Sequence[list[Array]], kept: dict[int, list[Array]], emit: Emit) -> Answered:
    """Run the data set (or only what the output check needs) once more, and score the answers."""
    scoring = work.accuracy and model.work is not None and model.data is not None
    items = range(len(model.data.files)) if scoring and model.data else sorted(kept)
    emit(job.Phase(name="accuracy"))
    before: list[int] = []
    after: list[int] = []
    differences: list[float] = []
    for done, index in enumerate(items):
        begin = time.monotonic_ns()
        inputs = model.inputs_of(index, work.case.seed) if scoring else prepared[index]
        ready = time.monotonic_ns()
        model.runtime.bind(inputs)()
        outputs = model.runtime.outputs()
        if index in kept:
            differences.append(difference(kept[index], outputs))
        if scoring and model.work:
            begin_answer = time.monotonic_ns()
            model.work.answer(index, outputs)
            after.append(time.monotonic_ns() - begin_answer)
            before.append(ready - begin)
            emit(job.Progress(done=done + 1, total=len(items)))
    accuracy = model.work.score() if scoring and model.work else None
    check = records.OutputCheck(
        compared=len(differences), identical=differences.count(0.0), worst_ratio=max(differences) if differences else None
    )
    return Answered(np.array(before, np.int64), np.array(after, np.int64), check, accuracy, _no_accuracy(work, model, accuracy))


def _no_accuracy(work: job.Job, model: Model, accuracy: records.Accuracy | None) -> str | None:
    if accuracy is not None:
        return None
    if model.data is None:
        return "no photographs were given (--images): the model was timed on noise"
    if not work.accuracy:
        return 'accuracy was not asked of this repeat (accuracy = "first" or "never")'
    return "the data set has no ground truth (--annotations)"


def difference(kept: Sequence[Array], again: Sequence[Array]) -> float:
    """Return the largest difference between two sets of outputs, relative to the largest value; infinite when the shapes differ."""
    worst = 0.0
    for one, other in zip(kept, again, strict=True):
        if one.shape != other.shape:
            return float("inf")
        if one.size == 0 or np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            continue
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64)).max()
        largest = np.abs(one.astype(np.float64)).max()
        worst = max(worst, float(apart / largest) if largest > 0 else float("inf"))
    return worst
