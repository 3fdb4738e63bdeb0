"""The accuracy of a model without timing it: every photograph once, then the corrupted ones where they are asked for."""

from collections.abc import Callable

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.engine import described, job, loading
from edgemeter.agent.engine.answers import robustness
from edgemeter.agent.engine.answers.answer_log import AnswerLog
from edgemeter.agent.engine.answers.collect import objects
from edgemeter.agent.errors import ConfigError


def score(work: job.Job, emit: Callable[[job.Event], None]) -> job.Scored:
    """Return the accuracy of the job's model on its data set.

    Raises:
        EdgemeterError: the model, the runtime or the data cannot be used, or there is no ground truth.
    """
    case = work.case
    runtime = runtimes.create(case.runtime)
    try:
        emit(job.Phase(name="load"))
        model = loading.load(case, runtime)
        if model.work is None or model.data is None or (model.data.truth is None and model.data.classes is None):
            message = "there is nothing to score against: give --images DIR and --annotations FILE (class folders need no annotations)"
            raise ConfigError(message)
        emit(job.Phase(name="accuracy"))
        log = AnswerLog()
        for index in range(len(model.data.files)):
            inputs = model.work.prepare(index)
            runtime.bind(inputs)()
            outputs = runtime.outputs()
            log.add(inputs, outputs, model.work.answer(index, outputs))
            emit(job.Progress(done=index + 1, total=len(model.data.files)))
        accuracy = model.work.score()
        if accuracy is not None and case.corrupt:
            found = robustness.robustness(model, case.corrupt, case.seed, accuracy, emit)
            accuracy = msgspec.structs.replace(accuracy, robustness=found)
    finally:
        runtime.close()
    notes = (*model.guesses, *model.data.warnings)
    return job.Scored(
        accuracy=accuracy,
        images=len(model.data.files),
        subset=model.data.subset,
        notes=notes,
        runtime=described.runtime(case, model.loaded),
        outputs=described.tensors(model.loaded.outputs, outputs),
        answers=log.summary(objects(model)),
    )
