"""What a run measured, in the record's words: model, runtime, precision, tensors, data set."""

from collections.abc import Sequence
from pathlib import Path

from edgemeter.agent import records
from edgemeter.agent.dataset import Dataset
from edgemeter.agent.engine import job, noise
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.recognition import card, recognise
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo


def model(work: job.Job, known: card.Card | None) -> records.Model:
    """Return the model: under the name that the case or its card gives, else its file."""
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


def runtime(case: Case, loaded: Loaded) -> records.Runtime:
    """Return what ran it."""
    return records.Runtime(
        name=case.runtime,
        package=loaded.package,
        version=loaded.version,
        backend=loaded.backend,
        threads=case.threads,
        options=dict(case.options),
        facts=dict(loaded.facts),
    )


def precision(loaded: Loaded) -> str:
    """Return the precision of the file, or where nobody looked into it that of its inputs and outputs: weights may be smaller."""
    if loaded.precision is not None:
        return loaded.precision
    kinds = {info.dtype for info in (*loaded.inputs, *loaded.outputs)}
    for dtype, precision in (("int8", "int8"), ("uint8", "int8"), ("float16", "fp16"), ("float32", "fp32")):
        if dtype in kinds:
            return precision
    return "unknown"


def tensors(infos: Sequence[TensorInfo], arrays: Sequence[Array]) -> tuple[records.Tensor, ...]:
    """Return the tensors as they were in this run: names and quantisation as declared, shapes and types as they came."""
    declared = list(infos) if len(infos) == len(arrays) else [TensorInfo(f"tensor_{n}", (), "") for n in range(len(arrays))]
    return tuple(
        records.Tensor(name=info.name, shape=array.shape, dtype=str(array.dtype), scale=info.scale, zero_point=info.zero_point)
        for info, array in zip(declared, arrays, strict=True)
    )


def dataset(data: Dataset | None, seed: int) -> records.Dataset:
    """Return the data that it was timed on."""
    if data is None:
        return noise.dataset(seed)
    annotated = data.truth is not None or data.classes is not None
    return records.Dataset(name=data.name, sha256=data.sha256, images=len(data.files), annotated=annotated, subset=data.subset)
