"""Loading a model for a run, and its description in the record.

The runtime, model card, data and prepared inputs are loaded.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.base import python_target, untried
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import (
    Card,
    Guess,
    ImageInput,
    TensorInput,
    card_path,
    read_card,
)
from edgemeter.agent.contract.record_conditions import Model, RuntimeInfo, Tensor
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.recognition import recognise
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo, noise
from edgemeter.agent.sandbox.user_code import plugin_class
from edgemeter.agent.tasks import Task, create, prepared

if TYPE_CHECKING:
    from edgemeter.agent.datasets.dataset import Dataset
    from edgemeter.agent.generators import LoadedGenerator

# The most inputs, and the most bytes of inputs, that are prepared before timing.
PREPARED_INPUTS = 64
PREPARED_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The loaded model with its facts; `work` and `data` are None without a data set."""

    runtime: runtimes.Runtime
    loaded: Loaded
    card: Card | None
    guesses: tuple[Guess, ...]
    data: "Dataset | None"
    work: Task | None

    def calls_of(self, index: int, seed: int) -> list[list[Array]]:
        """Return the model's inputs for one item of the data, call by call."""
        return prepared(self.work, index, self.loaded) if self.work else [self.noise(seed)[index]]

    def noise(self, seed: int) -> list[list[Array]]:
        """Return random inputs, for a run without data."""
        image = (
            self.card.input
            if self.card is not None and isinstance(self.card.input, ImageInput)
            else None
        )
        return noise.inputs(self.loaded, seed, image)


def open_data(case: Case, first: int | None = None) -> "Dataset | None":
    """Return the data of a case, None without; `first` as of `open_folder`.

    Raises ConfigError if they cannot be used.
    """
    if case.data is None:
        return None
    # A run without data needs none of it.
    from edgemeter.agent.datasets.dataset import open_folder  # noqa: PLC0415

    annotations = Path(case.annotations) if case.annotations else None
    task = plugin_class("task", case.task or "", Task)
    reader = task.reader() if hasattr(task, "reader") else None
    return open_folder(Path(case.data), annotations, case.subset, case.seed, reader, first)


def options_of(case: Case) -> runtimes.Options:
    """Return the runtime's options, with the hash from the case or the model card."""
    card_file = card_path(Path(case.model))
    return runtimes.Options(
        threads=case.threads,
        backend=case.backend,
        extra=case.options,
        sha256=case.sha256 or (read_card(card_file).sha256 if card_file.exists() else None),
    )


def load_model(case: Case, runtime: runtimes.Runtime, first: int | None = None) -> LoadedModel:
    """Return the model of a case, loaded, with its card and its data.

    It has only the `first` items of the data if that is set.

    Raises:
        EdgemeterError: the runtime or a library is missing, the file is broken, or model and data
            do not fit.
    """
    loaded = runtime.load(Path(case.model), options_of(case))
    if case.sha256 and loaded.sha256:
        model_file.check_sha256(case.model, loaded.sha256, case.sha256)
    data = open_data(case, first)
    if data is None:
        card, guesses = _card_if_known(Path(case.model), loaded)
        return LoadedModel(runtime, loaded, card, guesses, None, None)
    card, guesses = _card_for(
        case,
        loaded,
        [str(category["name"]) for category in data.truth["categories"]] if data.truth else (),
    )
    # Only a task that the user names is code of theirs: a card may have come with its model.
    in_file = plugin_class("task", case.task or "", Task)
    return LoadedModel(
        runtime,
        loaded,
        card,
        guesses,
        data,
        in_file(card, loaded, data) if in_file else create(card, loaded, data),
    )


def _card_for(
    case: Case, loaded: Loaded, categories: Sequence[str]
) -> tuple[Card, tuple[Guess, ...]]:
    """Return the model's card with the task of the case.

    A task in a file may make its inputs itself, and then needs no card.
    """
    path, task = Path(case.model), python_target.plain_name(case.task or "")
    try:
        card, guesses = recognise.card_for(path, loaded, categories)
    except ConfigError:
        if not task or card_path(path).exists():
            raise
        return Card(
            name=recognise.name_of(recognise.named_path(path, loaded)),
            task=task,
            family="none",
            precision=describe_precision(loaded),
            input=TensorInput(),
        ), ()
    return msgspec.structs.replace(card, task=task or card.task), guesses


def _card_if_known(model: Path, loaded: Loaded) -> tuple[Card | None, tuple[Guess, ...]]:
    """Return the card of a model that is only timed, or None: its outputs need not be decoded."""
    try:
        return recognise.card_for(model, loaded)
    except ConfigError:
        if card_path(model).exists():
            raise
        return None, ()


def prepare_calls(
    model: LoadedModel, first: list[list[Array]], seed: int
) -> tuple[list[list[Array]], bool]:
    """Return the inputs of timed calls, and whether call i is all of item i of the data.

    `first` is the prepared first item.
    """
    if model.data is None:
        return model.noise(seed), True
    fits = max(1, PREPARED_BYTES // max(1, sum(array.nbytes for array in first[0])))
    limit = min(PREPARED_INPUTS, fits)
    items = [first]
    while len(items) < len(model.data.items) and sum(map(len, items)) < limit:
        items.append(model.calls_of(len(items), seed))
    calls = [call for item in items for call in item]
    return calls[:limit], all(len(item) == 1 for item in items)


def describe_model(work: job.RunJob, model: LoadedModel) -> Model:
    """Return the model, named after the case, its card or its file."""
    path, card, loaded = Path(work.case.model), model.card, model.loaded
    return Model(
        name=work.case.name
        or (card.name if card else recognise.name_of(recognise.named_path(path, loaded))),
        sha256=loaded.sha256 or work.sha256,
        file=path.name,
        size_bytes=loaded.size_bytes or work.size_bytes,
        task=card.task if card else "unknown",
    )


def shapes_of(inputs: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the inputs of a call."""
    return tuple(array.shape for array in inputs)


def describe_runtime(
    case: Case, loaded: "Loaded | LoadedGenerator", calls: Sequence[Sequence[Array]] = ()
) -> RuntimeInfo:
    """Return the runtime, or the generator, that ran the model.

    The smallest and the largest shapes come with it if those of `calls` differ.
    """
    shapes = sorted(set(map(shapes_of, calls)), key=lambda shapes: sum(map(math.prod, shapes)))
    sizes = (
        [", ".join(str(list(shape)) for shape in shapes[index]) for index in (0, -1)]
        if len(shapes) > 1
        else []
    )
    threads_reason = loaded.threads_reason if isinstance(loaded, Loaded) else None
    in_file, name = python_target.of_file(case.runtime), python_target.plain_name(case.runtime)
    return RuntimeInfo(
        name=name,
        package=loaded.package,
        # A file may be edited between runs, so its hash is part of the version.
        version=f"{loaded.version}, file {model_file.sha256(in_file.source)[:8]}"
        if in_file
        else loaded.version,
        backend=loaded.backend,
        threads=1 if threads_reason else case.threads,
        threads_reason=threads_reason,
        options=dict(case.options),
        facts={
            **loaded.facts,
            **({"timed_shapes": f"{len(shapes)}, from {' to '.join(sizes)}"} if sizes else {}),
            **({"untried": untried.RUNTIME} if untried.is_untried(name, loaded.backend) else {}),
        },
    )


def describe_precision(loaded: Loaded) -> str:
    """Return the precision of the file, or else that of inputs and outputs.

    Weights may be smaller than those.
    """
    return loaded.precision or precision_of(
        {info.dtype for info in (*loaded.inputs, *loaded.outputs)}
    )


def precision_of(dtypes: Collection[str]) -> str:
    """Return the precision by the types of inputs and outputs."""
    precisions = {"int8": "int8", "uint8": "int8", "float16": "fp16", "float32": "fp32"}
    return next(
        (precision for dtype, precision in precisions.items() if dtype in dtypes), "unknown"
    )


def describe_inputs(infos: Sequence[TensorInfo], arrays: Sequence[Array]) -> tuple[Tensor, ...]:
    """Return the inputs of this run: declared names, actual shapes and types."""
    return tuple(
        Tensor(name=info.name, shape=array.shape, dtype=str(array.dtype))
        for info, array in zip(_declared(infos, len(arrays)), arrays, strict=True)
    )


def describe_outputs(
    infos: Sequence[TensorInfo], arrays: Sequence[Array]
) -> tuple[job.OutputTensor, ...]:
    """Return the outputs of this run: declared names and quantisation, actual shapes and types."""
    return tuple(
        job.OutputTensor(
            name=info.name,
            shape=array.shape,
            dtype=str(array.dtype),
            scale=info.scale,
            zero_point=info.zero_point,
        )
        for info, array in zip(_declared(infos, len(arrays)), arrays, strict=True)
    )


def _declared(infos: Sequence[TensorInfo], count: int) -> Sequence[TensorInfo]:
    return (
        infos if len(infos) == count else [TensorInfo(f"tensor_{n}", (), "") for n in range(count)]
    )
