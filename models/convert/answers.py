"""What a model file answers: run by its own runtime over pictures, as `edgemeter run` does, or over noise where nothing is known of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from edgemeter.agent import runtimes, task
from edgemeter.agent.dataset import Dataset
from edgemeter.agent.engine import noise
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition.card import Card
from edgemeter.agent.records import Accuracy
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo
from edgemeter.models.convert import failures
from edgemeter.models.progress import Tell
from edgemeter.models.quiet import quiet

# Called with the number of an input and the outputs for it, as the runtime gives them.
Take = Callable[[int, list[Array], Loaded], None]


class Inputs(Protocol):
    """What a model is asked: so many inputs, made for the model once it is loaded."""

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def open(self, loaded: Loaded) -> "Asked":
        """Return the inputs for a model that has been loaded."""
        ...


class Asked(Protocol):
    """The inputs of one model, and what becomes of its answers."""

    def prepare(self, index: int) -> list[Array]:
        """Return the model's inputs, dtype and layout as it declares."""
        ...

    def answer(self, index: int, outputs: Sequence[Array]) -> object:
        """Keep an answer for the score."""
        ...

    def same_answer(self, index: int, one: Sequence[Array], other: Sequence[Array]) -> float | None:
        """Return the share of the answer that two outputs have in common, None where it says nothing."""
        ...

    def score(self) -> Accuracy | None:
        """Return the accuracy of the answers kept, None without ground truth."""
        ...


@dataclass(frozen=True, slots=True)
class Pictures:
    """Photographs, prepared and scored as the card says."""

    about: Card
    data: Dataset

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.data.files)

    def open(self, loaded: Loaded) -> task.Task:
        """Return the card's task on these photographs."""
        return task.create(self.about, loaded, self.data)


@dataclass(frozen=True, slots=True)
class Noise:
    """Seeded noise in the shapes of the source's inputs."""

    arrays: tuple[tuple[Array, ...], ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.arrays)

    def open(self, loaded: Loaded) -> "AskedNoise":
        """Return the same noise in the layout of the model's inputs."""
        return AskedNoise(self.arrays, loaded)


class AskedNoise:
    """Noise for one model; its answers are not scored."""

    def __init__(self, arrays: tuple[tuple[Array, ...], ...], loaded: Loaded) -> None:
        self._arrays, self._infos = arrays, loaded.inputs

    def prepare(self, index: int) -> list[Array]:
        """Return the noise as the model takes it."""
        arrays = self._arrays[index]
        return [_laid_out(array, info) for array, info in zip(arrays, self._infos, strict=True)] if self._infos else list(arrays)

    def answer(self, index: int, outputs: Sequence[Array]) -> None:
        """Keep nothing."""

    def same_answer(self, index: int, one: Sequence[Array], other: Sequence[Array]) -> None:
        """Return None: what the outputs mean is not known."""

    def score(self) -> None:
        """Return None: there is nothing to score."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of asking: the accuracy, and which package and version ran the file; `asked` can still compare answers."""

    accuracy: Accuracy | None
    runtime: str
    asked: Asked


def ask(model: Path, runtime: str, inputs: Inputs, take: Take, tell: Tell) -> Answered:
    """Run the file on all inputs and return what came of it.

    Raises:
        EdgemeterError: its runtime is not installed, or the file, its card and the data do not fit each other.
    """
    running = runtimes.create(runtime)
    try:
        with quiet():
            loaded = running.load(model, runtimes.Options(threads=1))
        asked: Asked = inputs.open(loaded)
        for index in range(inputs.count):
            with failures.named(f"running {model.name!r} by {runtime}", "leave this format out"):
                running.bind(asked.prepare(index))()
            outputs = running.outputs()
            asked.answer(index, outputs)
            take(index, outputs, loaded)
            tell(f"scoring {model.name}", index + 1, inputs.count)
    finally:
        running.close()
    return Answered(asked.score(), f"{loaded.package} {loaded.version}", asked)


def noise_for(loaded: Loaded, shape: Sequence[int]) -> Noise:
    """Return noise for a model with one input of this shape, or with those that it declares."""
    if loaded.inputs and len(loaded.inputs) > 1:
        return Noise(tuple(tuple(arrays) for arrays in noise.inputs(loaded, 0)))
    dtype = np.dtype(loaded.inputs[0].dtype if loaded.inputs else "float32")
    draw = np.random.default_rng(0)
    if dtype.kind != "f":
        return Noise(tuple(tuple(arrays) for arrays in noise.inputs(loaded, 0)))
    return Noise(tuple((draw.random(shape, dtype=np.float32).astype(dtype),) for _ in range(noise.COUNT)))


def _laid_out(array: Array, info: TensorInfo) -> Array:
    """Return the array in the input's layout: channels last where the shape says so."""
    wanted = tuple(1 if size is None else size for size in info.shape)
    if array.shape == wanted or array.ndim != len(wanted):
        return array
    if array.ndim == 4 and wanted == tuple(array.shape[place] for place in (0, 2, 3, 1)):
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    message = f"input {info.name!r} of the conversion takes {list(wanted)}, the source's is {list(array.shape)}: they cannot be compared"
    raise ConfigError(message)
