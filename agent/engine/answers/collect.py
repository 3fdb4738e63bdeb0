"""The pass over the data after timing: the accuracy of the answers, and whether they are those that were timed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records
from edgemeter.agent.engine import job
from edgemeter.agent.engine.answers import output_check, robustness
from edgemeter.agent.engine.answers.answer_log import AnswerLog
from edgemeter.agent.engine.loading import Model
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Array

Emit = Callable[[job.Event], None]
# Where nothing is scored, so many inputs are run again at least: one answer for all of them can only be told from several.
LOOKED_AT = 4


@dataclass(frozen=True, slots=True)
class Answered:
    """The pass over the data after timing."""

    preprocess_ns: NDArray[np.int64]
    postprocess_ns: NDArray[np.int64]
    check: records.OutputCheck
    looks: records.Answers | None
    accuracy: records.Accuracy | None
    reason: str | None


def answer(
    work: job.Job, model: Model, prepared: Sequence[list[Array]], kept: dict[int, list[Array]], emit: Emit, *, is_joined: bool = False
) -> Answered:
    """Run the data set (or only what the output check needs) once more, and score the answers.

    `prepared[i]` holds item i of the data; several items where `is_joined`: they are checked by themselves, before the data set.
    """
    scoring = work.accuracy and model.work is not None and model.data is not None
    emit(job.Phase(name="accuracy"))
    before: list[int] = []
    after: list[int] = []
    log = AnswerLog()
    differences: list[output_check.Compared] = []
    if is_joined:
        differences, kept = _joined(model, prepared, kept, AnswerLog() if scoring else log), {}
    looked_at = range(0 if is_joined else min(len(prepared), LOOKED_AT))
    items = range(len(model.data.files)) if scoring and model.data else sorted({*kept, *looked_at})
    for done, index in enumerate(items):
        begin = time.monotonic_ns()
        inputs = model.inputs_of(index, work.case.seed) if scoring else prepared[index]
        ready = time.monotonic_ns()
        model.runtime.bind(inputs)()
        outputs = model.runtime.outputs()
        scores = None
        if index in kept:
            differences.append(_compared(model, index, kept[index], outputs))
        if scoring and model.work:
            begin_answer = time.monotonic_ns()
            scores = model.work.answer(index, outputs)
            after.append(time.monotonic_ns() - begin_answer)
            before.append(ready - begin)
            emit(job.Progress(done=done + 1, total=len(items)))
        log.add(inputs, outputs, scores)
    accuracy = model.work.score() if scoring and model.work else None
    if work.corrupt and accuracy is not None:
        found = robustness.robustness(model, work.case.corrupt, work.case.seed, accuracy, emit)
        accuracy = msgspec.structs.replace(accuracy, robustness=found)
    return Answered(
        preprocess_ns=np.array(before, np.int64),
        postprocess_ns=np.array(after, np.int64),
        check=output_check.summarise(differences),
        looks=log.summary(objects(model)),
        accuracy=accuracy,
        reason=_no_accuracy(work, model, accuracy),
    )


def _joined(model: Model, prepared: Sequence[list[Array]], kept: dict[int, list[Array]], log: AnswerLog) -> list[output_check.Compared]:
    """Return how the outputs of whole batches, run once more, differ from those that were kept."""
    found = []
    for place, outputs in sorted(kept.items()):
        model.runtime.bind(prepared[place])()
        again = model.runtime.outputs()
        log.add(prepared[place], again, None)
        found.append(output_check.Compared(output_check.difference(outputs, again), None))
    return found


def _compared(model: Model, index: int, kept: Sequence[Array], again: Sequence[Array]) -> output_check.Compared:
    """Return the difference, and the share of answers that both have where the values alone do not settle it.

    Of a classifier the values settle it: two photographs of one class would have the same answer.
    """
    found = output_check.difference(kept, again)
    is_detector = model.card is not None and model.card.task == "detection"
    if found.is_rounding or model.work is None or not is_detector:
        return output_check.Compared(found, None)
    try:
        return output_check.Compared(found, model.work.same_answer(index, kept, again))
    except ConfigError:
        # What was kept cannot even be decoded: no answer at all is another answer.
        return output_check.Compared(found, None)


def objects(model: Model) -> int | None:
    """Return how many objects the ground truth of the photographs holds, None without one."""
    truth = model.data.truth if model.data else None
    return None if truth is None else len(truth["annotations"])


def _no_accuracy(work: job.Job, model: Model, accuracy: records.Accuracy | None) -> str | None:
    if accuracy is not None:
        return None
    if model.data is None:
        return "no photographs were given (--images): the model was timed on noise"
    if not work.accuracy:
        return 'accuracy was not asked of this repeat (accuracy = "first" or "never")'
    return "the data set has no ground truth (--annotations)"
