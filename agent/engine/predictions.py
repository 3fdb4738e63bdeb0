"""The pass over the data after timing, which makes and scores predictions.

It finds whether they equal the timed ones, their accuracy, and the accuracy gate.

The gate, `GATE_RATIO`, is 0.9 of the reference on the model card. MLPerf Inference requires 99% or
99.9% of the fp32 model and MLPerf Mobile 93-98%, on full validation sets and of models tuned to
pass. Models in use are quantised by an exporter and scored on tens or hundreds of photographs:
yolov8n, exported to int8 by Ultralytics, keeps 0.91 of its fp32 AP on 80 photographs, and a sample
of that size alone moves an AP by several per cent.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, one_line
from edgemeter.agent.base.metrics import needed_value
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import (
    GATE_RATIO,
    Accuracy,
    OutputCheck,
)
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.energy.queries import Times
from edgemeter.agent.engine import job, loading
from edgemeter.agent.engine.loading import LoadedModel, describe_outputs, describe_runtime
from edgemeter.agent.engine.output_check import (
    Outcome,
    arrays_equal,
    compare_outputs,
    summarise_check,
)
from edgemeter.agent.engine.stopwatch import until_answered
from edgemeter.agent.engine.subject import Emit
from edgemeter.agent.runtimes import Array
from edgemeter.agent.tasks import OF_OBJECTS, BoxExtents, ObjectResults

# Without scoring, the fewest inputs that are run again: constant outputs show only in several of
# them.
FEWEST_INPUTS = 4
_TIMED_VIDEO = (
    "a video is only timed: give its frames as photographs with annotations to score them"
)


class PredictionLog:
    """Summarises predictions; keeps the first, to compare the others with it."""

    def __init__(self) -> None:
        self._first: tuple[list[Array], list[Array]] | None = None
        self._inputs = self._alike = self._not_finite = 0
        # Those of a model with boxes.
        self._scores: list[NDArray[np.float32]] = []

    def add(
        self, inputs: Sequence[Array], outputs: Sequence[Array], scores: NDArray[np.float32] | None
    ) -> None:
        """Add a prediction.

        `scores` are those of its boxes, float32 [n], None for a model without boxes.
        """
        self._inputs += 1
        self._not_finite += any(
            output.dtype.kind == "f" and not np.isfinite(output).all() for output in outputs
        )
        if scores is not None:
            self._scores.append(scores)
        if self._first is None:
            self._first = (list(inputs), list(outputs))
            return
        # Empty outputs are the same for all inputs without objects.
        has_values = any(output.size for output in outputs)
        self._alike += (
            has_values
            and _are_equal(outputs, self._first[1])
            and not _are_equal(inputs, self._first[0])
        )

    def summary(
        self, objects: int | None, extents: tuple[int, int] | None = None
    ) -> job.Answers | None:
        """Return the summary, None without predictions.

        `objects` is the number in the ground truth, `extents` as in `BoxExtents`.
        """
        if self._first is None:
            return None
        if not self._scores:
            return job.Answers(inputs=self._inputs, alike=self._alike, not_finite=self._not_finite)
        scores = np.concatenate(self._scores)
        scores = scores[np.isfinite(scores)]
        boxed, without_extent = extents or (None, None)
        return job.Answers(
            inputs=self._inputs,
            alike=self._alike,
            not_finite=self._not_finite,
            objects=objects,
            found=len(scores),
            highest_score=float(scores.max()) if scores.size else None,
            distinct_scores=int(np.unique(scores).size),
            boxed=boxed,
            without_extent=without_extent,
        )


def _are_equal(arrays: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(arrays) == len(other) and all(map(arrays_equal, arrays, other))


def with_needed_value(accuracy: Accuracy | None, card: Card | None) -> Accuracy | None:
    """Return the accuracy with the value that the gate requires.

    It is added if the card has a reference for this metric and data.
    """
    on_card = card.accuracy if card else {}
    reference = on_card.get("value")
    if (
        accuracy is None
        or not isinstance(reference, (int, float))
        or on_card.get("metric", accuracy.metric) != accuracy.metric
    ):
        return accuracy
    is_same_data = on_card.get("dataset_sha256", accuracy.dataset_sha256) == accuracy.dataset_sha256
    if not is_same_data or on_card.get("images", accuracy.images) != accuracy.images:
        return accuracy
    return msgspec.structs.replace(
        accuracy, needed_value=needed_value(reference, GATE_RATIO, accuracy.better)
    )


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The pass over the data after timing: fields of `Results`, and why there is no accuracy."""

    preprocess_ns: Times
    postprocess_ns: Times
    output_check: OutputCheck
    answers: job.Answers | None
    accuracy: Accuracy | None
    predictions: msgspec.Raw
    reasons: dict[str, str]


def evaluate(
    work: job.RunJob,
    model: LoadedModel,
    prepared: Sequence[Sequence[Array]],
    kept_outputs: dict[int, list[Array]],
    emit: Emit,
    *,
    is_by_item: bool = True,
) -> Evaluation:
    """Run the data set once more, and score the predictions.

    Without an accuracy pass, only the items of the output check are run.

    If `is_by_item`, `prepared[i]` is all of item i of the data. Otherwise (batches, items of
    several calls) these calls are checked by themselves, before the data set.
    """
    # A video has no ground truth.
    scoring = (
        work.accuracy
        and model.work is not None
        and model.data is not None
        and model.data.rate_per_s is None
    )
    before: list[int] = []
    after: list[int] = []
    log = PredictionLog()
    outcomes: list[Outcome] = []
    accuracy, unanswered = None, None
    try:
        if not is_by_item:
            outcomes, kept_outputs = (
                _by_call(model, prepared, kept_outputs, PredictionLog() if scoring else log),
                {},
            )
        fewest = range(min(len(prepared), FEWEST_INPUTS) if is_by_item else 0)
        items = (
            range(len(model.data.items))
            if scoring and model.data
            else sorted({*kept_outputs, *fewest})
        )
        for position, index in enumerate(items):
            begin = time.monotonic_ns()
            calls = model.calls_of(index, work.case.seed) if scoring else [prepared[index]]
            ready = time.monotonic_ns()
            outputs = _run(model.runtime, calls)
            if index in kept_outputs:
                outcomes.append(_compared(model, index, kept_outputs[index], outputs))
            scores = None
            if scoring and model.work:
                begin_decoding = time.monotonic_ns()
                scores = model.work.predict(index, outputs)
                after.append(time.monotonic_ns() - begin_decoding)
                before.append(ready - begin)
                emit(job.RunProgress(done=position + 1, total=len(items)))
            log.add(_flat(calls), _flat(outputs), scores)
        accuracy = (
            with_needed_value(model.work.score(), model.card) if scoring and model.work else None
        )
    except AnswerError as error:
        # The timed queries stay measured, but queries that a server does not answer are neither
        # compared nor scored.
        unanswered = f"the server did not answer a repeated query: {one_line(error)[:140]}."
    return Evaluation(
        preprocess_ns=np.array(before, np.int64),
        postprocess_ns=np.array(after, np.int64),
        output_check=summarise_check(outcomes),
        answers=log.summary(
            annotated_objects(model),
            model.work.box_extents() if isinstance(model.work, BoxExtents) else None,
        ),
        accuracy=accuracy,
        reasons={} if accuracy else {"accuracy": _no_accuracy(work, model, unanswered)},
        predictions=msgspec.Raw(msgspec.json.encode(model.work.results()))
        if work.case.predictions
        and scoring
        and unanswered is None
        and isinstance(model.work, ObjectResults)
        else job.NO_PREDICTIONS,
    )


def check_results(case: Case, model: LoadedModel) -> None:
    """Check that a case can write its predictions, if they are to be written.

    Raises:
        ConfigError: they are to be written, and its task has no COCO results.
    """
    if case.predictions and not isinstance(model.work, ObjectResults):
        task = model.card.task if model.card else "unknown"
        raise ConfigError(
            f"predictions of {case.model!r}: the task {task} has no COCO results; detection, "
            "segmentation and pose have"
        )


def _run(runtime: runtimes.Runtime, calls: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Return the outputs of each call.

    Those of several calls are copied, because the runtime may reuse their memory.
    """
    if len(calls) == 1:
        return [_outputs(runtime, calls[0])]
    return [[np.array(output) for output in _outputs(runtime, inputs)] for inputs in calls]


def _outputs(runtime: runtimes.Runtime, inputs: Sequence[Array]) -> list[Array]:
    def query() -> list[Array]:
        runtime.bind(inputs)()
        return runtime.outputs()

    return until_answered(query)


def _flat(calls: Sequence[Sequence[Array]]) -> list[Array]:
    return [array for arrays in calls for array in arrays]


def _by_call(
    model: LoadedModel,
    prepared: Sequence[Sequence[Array]],
    kept_outputs: dict[int, list[Array]],
    log: PredictionLog,
) -> list[Outcome]:
    outcomes = []
    for index, outputs in sorted(kept_outputs.items()):
        repeated = _outputs(model.runtime, prepared[index])
        log.add(prepared[index], repeated, None)
        outcomes.append(compare_outputs(outputs, repeated))
    return outcomes


def _compared(
    model: LoadedModel, index: int, timed: Sequence[Array], repeated: Sequence[Sequence[Array]]
) -> Outcome:
    """Compare timed outputs with repeated ones.

    If their values differ, they are compared by the boxes that both have. For a classifier the
    values decide, because two photographs of one class have the same prediction.
    """

    def common_predictions() -> float | None:
        # Outputs that cannot be decoded differ.
        with suppress(ConfigError):
            if model.work is not None and model.card is not None and model.card.task in OF_OBJECTS:
                return model.work.same_predictions(index, [timed], repeated)
        return None

    return compare_outputs(timed, _flat(repeated), common_predictions)


def annotated_objects(model: LoadedModel) -> int | None:
    """Return the number of objects in the ground truth, None without one."""
    data = model.data
    if data is None or model.card is None or model.card.task not in OF_OBJECTS:
        return None
    return None if data.truth is None else len(data.truth["annotations"])


def _no_accuracy(work: job.RunJob, model: LoadedModel, unanswered: str | None) -> str:
    if unanswered is not None and work.accuracy:
        return unanswered
    if model.data is None:
        return "no photographs were given (--data), so the model ran on random inputs"
    if not work.accuracy:
        return "only the first run of a case, alone, is scored"
    if model.data.rate_per_s is not None:
        return _TIMED_VIDEO
    return (
        job.NOTHING_TO_FIND
        if model.data.has_truth
        else "the data set has no ground truth (--annotations)"
    )


def score_untimed(work: job.RunJob, emit: Emit) -> job.Scored:
    """Return the accuracy of the job's model on its data set.

    Raises:
        EdgemeterError: the model, the runtime or the data cannot be used, or there is no ground
            truth.
    """
    case = work.case
    runtime = runtimes.create(case.runtime)
    try:
        emit(job.Phase(name="load"))
        model = loading.load_model(case, runtime)
        if model.work is None or model.data is None or not model.data.has_truth:
            raise ConfigError(
                "there is no ground truth: give --data DIR and --annotations FILE (class folders "
                "need no annotations)"
            )
        emit(job.Phase(name="accuracy"))
        scored = evaluate(msgspec.structs.replace(work, accuracy=True), model, [], {}, emit)
        reason = scored.reasons.get("accuracy")
        if reason not in (None, job.NOTHING_TO_FIND):
            raise MeasurementError(reason)
        outputs = describe_outputs(model.loaded.outputs, runtime.outputs())
    finally:
        runtime.close()
    return job.Scored(
        accuracy=scored.accuracy,
        accuracy_reason=reason,
        images=len(model.data.items),
        drawn_from=model.data.drawn_from,
        notes=(*map(str, model.guesses), *model.data.warnings),
        runtime=describe_runtime(case, model.loaded),
        outputs=outputs,
        answers=scored.answers,
    )
