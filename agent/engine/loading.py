"""Loading a model for a run: runtime, model card, photographs, inputs made ready before timing; and how the record describes them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card, ImageInput, card_path, read_card
from edgemeter.agent.contract.record_conditions import Dataset as DatasetRecord
from edgemeter.agent.contract.record_conditions import Model, Runtime, Tensor
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.datasets.dataset import Dataset, open_folder
from edgemeter.agent.engine import job
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo, noise
from edgemeter.agent.tasks import Task, create, prepared
from edgemeter.agent.vision import photograph

# Inputs are prepared before timing: at most this number, and this size.
PREPARED_INPUTS = 64
PREPARED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The loaded model with what is known of it; `work` and `data` are None where there are no photographs."""

    runtime: runtimes.Runtime
    loaded: Loaded
    card: Card | None
    guesses: tuple[str, ...]
    data: Dataset | None
    work: Task | None

    @property
    def family(self) -> str:
        """The decoder family, with a question mark where the outputs may be those of another."""
        if self.card is None:
            return "unknown"
        return self.card.family + "?" * any(recognise.UNSURE_FAMILY in guess for guess in self.guesses)

    def inputs_of(self, index: int, seed: int) -> list[Array]:
        """Return the model's inputs for one item of the data."""
        return prepared(self.work, index, self.loaded) if self.work else noise.inputs(self.loaded, seed)[index]


def load_model(case: Case, runtime: runtimes.Runtime) -> LoadedModel:
    """Return the model of a case, loaded, with its card and its data.

    Raises:
        EdgemeterError: the runtime or a library is missing, the file is broken, or model and data do not fit.
    """
    sha256 = case.sha256 or _hash_on_card(Path(case.model))
    options = runtimes.Options(threads=case.threads, backend=case.backend, extra=case.options, sha256=sha256)
    loaded = runtime.load(Path(case.model), options)
    if case.images is None:
        known, guesses = _card_if_known(Path(case.model), loaded)
        return LoadedModel(runtime, loaded, known, guesses, None, None)
    data = open_folder(Path(case.images), Path(case.annotations) if case.annotations else None, case.subset, case.seed)
    known, guesses = recognise.card_for(Path(case.model), loaded)
    return LoadedModel(runtime, loaded, known, tuple(guesses), data, create(known, loaded, data))


def _hash_on_card(model: Path) -> str | None:
    beside = card_path(model)
    return read_card(beside).sha256 if beside.exists() else None


def _card_if_known(model: Path, loaded: Loaded) -> tuple[Card | None, tuple[str, ...]]:
    """Return the card of a model that is only timed: how to decode its outputs need not be known then."""
    try:
        known, guesses = recognise.card_for(model, loaded)
    except ConfigError:
        if card_path(model).exists():
            raise
        return None, ()
    return known, tuple(guesses)


def prepare_inputs(model: LoadedModel, first: list[Array], seed: int) -> list[list[Array]]:
    """Return the inputs that are timed, one list of arrays an item; `first` is the first of them, made before."""
    if model.data is None:
        return noise.inputs(model.loaded, seed)
    fits = max(1, PREPARED_BYTES // max(1, sum(array.nbytes for array in first)))
    count = min(len(model.data.files), PREPARED_INPUTS, fits)
    return [first, *(model.inputs_of(index, seed) for index in range(1, count))]


def describe_model(work: job.RunJob, model: LoadedModel) -> Model:
    """Return the model, named as in the case or its card, else after its file."""
    path, known = Path(work.case.model), model.card
    return Model(
        name=work.case.name or (known.name if known else recognise.name_of(path)),
        sha256=work.sha256,
        file=path.name,
        format=path.suffix.lstrip(".").lower(),
        size_bytes=work.size_bytes,
        task=known.task if known else "unknown",
        family=model.family,
    )


def describe_runtime(case: Case, loaded: Loaded) -> Runtime:
    """Return the runtime that ran the model."""
    return Runtime(
        name=case.runtime,
        package=loaded.package,
        version=loaded.version,
        backend=loaded.backend,
        threads=case.threads,
        options=dict(case.options),
        facts=dict(loaded.facts),
    )


def describe_precision(loaded: Loaded) -> str:
    """Return the precision of the file, or else that of its inputs and outputs: weights may be smaller."""
    if loaded.precision is not None:
        return loaded.precision
    kinds = {info.dtype for info in (*loaded.inputs, *loaded.outputs)}
    for dtype, precision in (("int8", "int8"), ("uint8", "int8"), ("float16", "fp16"), ("float32", "fp32")):
        if dtype in kinds:
            return precision
    return "unknown"


def describe_tensors(infos: Sequence[TensorInfo], arrays: Sequence[Array]) -> tuple[Tensor, ...]:
    """Return the tensors of this run: names and quantisation as declared, shapes and types as they were."""
    declared = list(infos) if len(infos) == len(arrays) else [TensorInfo(f"tensor_{n}", (), "") for n in range(len(arrays))]
    return tuple(
        Tensor(name=info.name, shape=array.shape, dtype=str(array.dtype), scale=info.scale, zero_point=info.zero_point)
        for info, array in zip(declared, arrays, strict=True)
    )


def describe_dataset(data: Dataset | None, seed: int, card: Card | None = None) -> DatasetRecord:
    """Return the data that the model was timed on; photographs, unless the model's card tells of another kind of input."""
    if data is None:
        return noise.dataset(seed)
    counts: dict[str, int] = {}
    if card is None or isinstance(card.input, ImageInput):
        forms = Counter(form for file in data.files for form in photograph.forms(file))
        counts = {
            "turned_by_exif": forms["turned"],
            "alpha_dropped": forms["alpha"],
            "cmyk_converted": forms["cmyk"],
            "reduced_to_8_bit": forms["wide"],
        }
    return DatasetRecord(
        name=data.name,
        sha256=data.sha256,
        images=len(data.files),
        annotated=data.has_truth,
        subset=data.subset,
        **counts,
    )
