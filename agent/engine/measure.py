"""One run, in this process: cold start, warm-up, idle, timed queries, idle, accuracy. What surrounds it is the session's business."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import card, recognise, records, runtimes, samples, task
from edgemeter.agent.dataset import Dataset, open_folder
from edgemeter.agent.engine import job, memory, noise, statistics, timing
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo

Emit = Callable[[job.Event], None]

# Inputs are prepared before timing: so many, or as many as fit.
PREPARED_INPUTS = 64
PREPARED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Model:
    """The loaded model with what is known of it; `work` and `data` are None where there are no photographs."""

    runtime: runtimes.Runtime
    loaded: Loaded
    card: card.Card | None
    guesses: tuple[str, ...]
    data: Dataset | None
    work: task.Task | None

    def inputs_of(self, index: int, seed: int) -> list[Array]:
        """Return the model's inputs for one item of the data."""
        return self.work.prepare(index) if self.work else noise.inputs(self.loaded, seed)[index]


@dataclass(frozen=True, slots=True)
class Answered:
    """The pass over the data after timing."""

    preprocess_ns: NDArray[np.int64]
    postprocess_ns: NDArray[np.int64]
    check: records.OutputCheck
    accuracy: records.Accuracy | None
    reason: str | None


def measure(work: job.Job, started_ns: int, emit: Emit) -> job.Measured:
    """Measure one run and return what was found; `started_ns` is the monotonic clock at the start of this process.

    Raises:
        EdgemeterError: by what the caller has to do about it.
    """
    runtime = runtimes.create(work.case.runtime)
    try:
        return _measure(work, started_ns, emit, runtime)
    finally:
        runtime.close()


def _measure(work: job.Job, started_ns: int, emit: Emit, runtime: runtimes.Runtime) -> job.Measured:
    case = work.case
    emit(job.Phase(name="load"))
    before_mb = memory.resident_mb()
    model = _load(case, runtime)
    loaded_mb = memory.resident_mb()
    first = model.inputs_of(0, case.seed)
    call = runtime.bind(first)
    begin = time.monotonic_ns()
    call()
    first_ns = time.monotonic_ns() - begin

    emit(job.Phase(name="prepare"))
    prepared = _prepare(model, first, case.seed)
    emit(job.Phase(name="warm-up", seconds=case.warm_up_seconds))
    warmed = timing.warm_up(runtime.bind, prepared, case.warm_up_seconds)
    idle_before = _idle("idle before", work, emit)
    emit(job.Phase(name="timed", seconds=max(case.seconds, case.queries * warmed.median_ns / 1e9)))
    timed = timing.single_stream(
        runtime.bind,
        runtime.outputs,
        prepared,
        queries=case.queries,
        seconds=case.seconds,
        expected_ns=warmed.median_ns,
        seed=work.seed,
    )
    peak_mb = memory.peak_mb()
    idle_after = _idle("idle after", work, emit)
    answered = _answer(work, model, prepared, timed.kept, emit)
    latency = timed.latency_ns
    return job.Measured(
        model=_model(work, model.card),
        runtime=_runtime(case, model.loaded),
        precision=case.precision or (model.card.precision if model.card else _precision(model.loaded)),
        inputs=_tensors(model.loaded.inputs, first),
        outputs=_tensors(model.loaded.outputs, runtime.outputs()),
        dataset=_dataset(model.data, case.seed),
        latency=statistics.summarise(latency),
        throughput_per_s=latency.size / (float(latency.sum()) / 1e9),
        preprocess=statistics.stage(answered.preprocess_ns),
        postprocess=statistics.stage(answered.postprocess_ns),
        cold_start=records.ColdStart(
            process_ms=(started_ns - work.spawned_ns) / 1e6,
            import_ms=model.loaded.import_ns / 1e6,
            load_ms=model.loaded.load_ns / 1e6,
            first_ms=first_ns / 1e6,
        ),
        warm_up=records.WarmUp(queries=warmed.queries, duration_ms=warmed.duration_ns / 1e6, steady=warmed.steady),
        memory=records.Memory(
            peak_mb=peak_mb,
            before_load_mb=before_mb,
            loaded_mb=loaded_mb,
            prepared_inputs_mb=sum(array.nbytes for arrays in prepared for array in arrays) / 1e6,
        ),
        accuracy=answered.accuracy,
        accuracy_reason=answered.reason,
        output_check=answered.check,
        samples=(
            samples.pack("latency", "ns", latency),
            samples.pack("query_start", "ns", timed.starts_ns - timed.starts_ns[0]),
            samples.pack("preprocess", "ns", answered.preprocess_ns),
            samples.pack("postprocess", "ns", answered.postprocess_ns),
        ),
        timed=job.Window(int(timed.starts_ns[0]), timed.end_ns),
        idle_before=idle_before,
        idle_after=idle_after,
        thirds_p50_ms=tuple(float(np.median(third)) / 1e6 for third in np.array_split(latency, min(3, latency.size))),
        guesses=model.guesses,
    )


def _load(case: Case, runtime: runtimes.Runtime) -> Model:
    options = runtimes.Options(threads=case.threads, backend=case.backend, extra=case.options)
    loaded = runtime.load(Path(case.model), options)
    if case.images is None:
        known, guesses = _card_if_known(Path(case.model), loaded)
        return Model(runtime, loaded, known, guesses, None, None)
    data = open_folder(Path(case.images), Path(case.annotations) if case.annotations else None)
    known, guesses = recognise.card_for(Path(case.model), loaded)
    return Model(runtime, loaded, known, tuple(guesses), data, task.create(known, loaded, data))


def _card_if_known(model: Path, loaded: Loaded) -> tuple[card.Card | None, tuple[str, ...]]:
    """Return the card of a model that is only timed: what it answers need not be known then."""
    try:
        known, guesses = recognise.card_for(model, loaded)
    except ConfigError:
        if card.beside(model).exists():
            raise
        return None, ()
    return known, tuple(guesses)


def _prepare(model: Model, first: list[Array], seed: int) -> list[list[Array]]:
    if model.data is None:
        return noise.inputs(model.loaded, seed)
    fits = max(1, PREPARED_BYTES // max(1, sum(array.nbytes for array in first)))
    count = min(len(model.data.files), PREPARED_INPUTS, fits)
    return [first, *(model.inputs_of(index, seed) for index in range(1, count))]


def _idle(name: str, work: job.Job, emit: Emit) -> job.Window | None:
    """Sleep with the model loaded, for the idle power; without a sensor there is nothing to wait for."""
    if not work.idle or work.case.idle_seconds == 0:
        return None
    emit(job.Phase(name=name, seconds=work.case.idle_seconds))  # type: ignore[arg-type]
    begin = time.monotonic_ns()
    time.sleep(work.case.idle_seconds)
    return job.Window(begin, time.monotonic_ns())


def _answer(work: job.Job, model: Model, prepared: Sequence[list[Array]], kept: dict[int, list[Array]], emit: Emit) -> Answered:
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


def _model(work: job.Job, known: card.Card | None) -> records.Model:
    path = Path(work.case.model)
    return records.Model(
        name=work.case.name or (known.name if known else recognise.name_of(path)),
        sha256=work.sha256,
        file=path.name,
        format=path.suffix.lstrip(".").lower(),
        size_bytes=work.size_bytes,
        task=known.task if known else "unknown",
        family=known.family if known else "unknown",
    )


def _runtime(case: Case, loaded: Loaded) -> records.Runtime:
    return records.Runtime(
        name=case.runtime,
        package=loaded.package,
        version=loaded.version,
        backend=loaded.backend,
        threads=case.threads,
        options=dict(case.options),
    )


def _precision(loaded: Loaded) -> str:
    """Return the precision that the inputs and outputs show; weights inside may be smaller than that."""
    kinds = {info.dtype for info in (*loaded.inputs, *loaded.outputs)}
    for dtype, precision in (("int8", "int8"), ("uint8", "int8"), ("float16", "fp16"), ("float32", "fp32")):
        if dtype in kinds:
            return precision
    return "unknown"


def _tensors(infos: Sequence[TensorInfo], arrays: Sequence[Array]) -> tuple[records.Tensor, ...]:
    """Return the tensors as they were in this run: names and quantisation as declared, shapes and types as they came."""
    declared = list(infos) if len(infos) == len(arrays) else [TensorInfo(f"tensor_{n}", (), "") for n in range(len(arrays))]
    return tuple(
        records.Tensor(name=info.name, shape=array.shape, dtype=str(array.dtype), scale=info.scale, zero_point=info.zero_point)
        for info, array in zip(declared, arrays, strict=True)
    )


def _dataset(data: Dataset | None, seed: int) -> records.Dataset:
    if data is None:
        return noise.dataset(seed)
    annotated = data.truth is not None or data.classes is not None
    return records.Dataset(name=data.name, sha256=data.sha256, images=len(data.files), annotated=annotated)
