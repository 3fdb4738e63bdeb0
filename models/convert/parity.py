"""Parity: is this file still the model it was converted from? Both run by their own runtimes on the same images, or on noise."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo, noise
from edgemeter.agent.tasks import Inputs, Outputs, Task, create, prepared
from edgemeter.agent.vision.preprocess import real_values
from edgemeter.models.convert.agreement import LIMITS, ConversionVerdict, ModelAgreement, OutputComparison, judge_conversion
from edgemeter.models.convert.converter_output import converter_errors, quiet
from edgemeter.models.convert.variation import Floats

# Called with the number of an input and the outputs of its calls, as the runtime gives them.
TakeOutputs = Callable[[int, list[list[Array]], Loaded], None]


@dataclass(frozen=True, slots=True)
class ParityInputs:
    """So many inputs; `open` returns a task that prepares them for a loaded model and scores its outputs."""

    count: int
    open: Callable[[Loaded], Task]


def image_inputs(about: Card, data: Dataset) -> ParityInputs:
    """Return images, prepared and scored as its card specifies."""
    return ParityInputs(len(data.items), lambda loaded: create(about, loaded, data))


def noise_inputs(loaded: Loaded, shape: Sequence[int]) -> ParityInputs:
    """Return seeded noise for a source with one input of this shape, or with the inputs that it declares."""
    dtype = np.dtype(loaded.inputs[0].dtype if loaded.inputs else "float32")
    arrays: list[Sequence[Array]]
    if (loaded.inputs and len(loaded.inputs) > 1) or dtype.kind != "f":
        arrays = list(noise.inputs(loaded, 0))
    else:
        draw = np.random.default_rng(0)
        arrays = [[draw.random(shape, dtype=np.float32).astype(dtype)] for _ in range(noise.COUNT)]
    return ParityInputs(len(arrays), lambda opened: _NoiseTask(arrays, opened))


class _NoiseTask:
    """Noise for one model, in its layout. What the outputs mean is unknown: nothing is scored."""

    def __init__(self, arrays: Sequence[Sequence[Array]], loaded: Loaded) -> None:
        self._arrays, self._infos = arrays, loaded.inputs

    def prepare(self, index: int) -> Sequence[Inputs]:
        arrays = self._arrays[index]
        if not self._infos:
            return [{f"input {index}": array for index, array in enumerate(arrays)}]
        return [{info.name: _laid_out(array, info) for array, info in zip(arrays, self._infos, strict=True)}]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None: ...

    def same_predictions(self, index: int, first: Sequence[Outputs], other: Sequence[Outputs]) -> None: ...

    def score(self, parts: str = "all") -> None: ...


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A file run on all inputs: the accuracy, package and version of the runtime, and the task, which can still compare outputs."""

    accuracy: Accuracy | None
    runtime: str
    task: Task


def run_on(model: Path, runtime: str, inputs: ParityInputs, take: TakeOutputs, report: Tell) -> RunOutcome:
    """Run the file on all inputs; `take` gets the outputs.

    Raises:
        EdgemeterError: its runtime is not installed, or the file, its card and the data do not fit together.
    """
    running = runtimes.create(runtime)
    try:
        with quiet():
            loaded = running.load(model, runtimes.Options(threads=1, sha256=model_file.sha256(model)))
        task = inputs.open(loaded)
        for index in range(inputs.count):
            calls = []
            for call_inputs in prepared(task, index, loaded):
                with converter_errors(f"running {model.name!r} by {runtime}", "leave this format out"):
                    running.bind(call_inputs)()
                calls.append([np.array(output) for output in running.outputs()])
            task.predict(index, calls)
            take(index, calls, loaded)
            report(f"scoring {model.name}", index + 1, inputs.count)
    finally:
        running.close()
    return RunOutcome(task.score(), f"{loaded.package} {loaded.version}", task)


def _laid_out(array: Array, info: TensorInfo) -> Array:
    """Return the array in the input's layout: channels last if its shape is so."""
    shape = tuple(1 if size is None else size for size in info.shape)
    if array.shape == shape or array.ndim != len(shape):
        return array
    if array.ndim == 4 and shape == tuple(array.shape[axis] for axis in (0, 2, 3, 1)):
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    raise ConfigError(
        f"input {info.name!r} of the conversion takes {list(shape)}, the source's is {list(array.shape)}: they cannot be compared"
    )


# Outputs are compared for so many inputs, evenly spread (folders of classes are sorted); the accuracy is that of all.
COMPARED = 100
_PERMUTED = 6


@dataclass(frozen=True, slots=True)
class ParityReference:
    """The source, run once: its outputs lie in `folder`, one file per input. `is_decoded`: they are float, and what they mean is known."""

    folder: Path
    outcome: RunOutcome
    names: tuple[str, ...]
    is_decoded: bool

    def calls(self, index: int) -> list[list[Floats]]:
        """Return the outputs of each call for an input."""
        with np.load(self.folder / f"{index}.npz", allow_pickle=False) as arrays:
            values = [arrays[f"arr_{position}"] for position in range(len(arrays.files))]
        return [values[start : start + len(self.names)] for start in range(0, len(values), len(self.names))]


@dataclass(frozen=True, slots=True)
class Parity:
    """How a conversion compares with its source; accuracies and runtimes are those of the source, then of the conversion."""

    verdict: ConversionVerdict
    agreement: ModelAgreement
    before: Accuracy | None
    after: Accuracy | None
    runtimes: tuple[str, str]


def reference(model: Path, runtime: str, inputs: ParityInputs, folder: Path, report: Tell) -> ParityReference:
    """Run the source once and keep its outputs in the folder."""
    names: list[str] = []
    floats: list[bool] = []

    def take(index: int, calls: list[list[Array]], loaded: Loaded) -> None:
        if index == 0:
            declared = [info.name for info in loaded.outputs]
            names.extend(declared if len(declared) == len(calls[0]) else [f"output_{position}" for position in range(len(calls[0]))])
            floats.append(all(output.dtype.kind == "f" for output in calls[0]))
        if index % _step(inputs) == 0:
            np.savez(folder / f"{index}.npz", *(value for outputs in calls for value in real_values(outputs, loaded)))

    outcome = run_on(model, runtime, inputs, take, report)
    return ParityReference(folder, outcome, tuple(names), all(floats) and not isinstance(outcome.task, _NoiseTask))


def compare(expected: ParityReference, model: Path, runtime: str, inputs: ParityInputs, precision: str, report: Tell) -> Parity:
    """Run the conversion on the same inputs and return how it compares.

    Raises:
        EdgemeterError: its runtime is not installed, or refuses the file; or it is fp32 although it was to become another precision.
    """
    comparison = OutputComparison(expected.names, LIMITS[precision].visible)
    order: list[int] = []
    first_calls: list[list[Floats]] = []

    def take(index: int, calls: list[list[Array]], loaded: Loaded) -> None:
        if loaded.precision == "fp32" and precision != "fp32":
            # ai-edge-quantizer says nothing where it cannot follow the weights.
            remedy = "leave this format out, or export the model in another way"
            raise ConfigError(f"{model.name!r}: the converter left everything in fp32, not in {precision}: {remedy}")
        if index % _step(inputs):
            return
        source_calls = expected.calls(index)
        actual_calls = [real_values(outputs, loaded) for outputs in calls]
        if index == 0:
            order.extend(_order(source_calls[0], actual_calls[0]))
        actual_calls = [_as_many(outputs, order, len(expected.names)) for outputs in actual_calls]
        first_calls.extend(actual_calls if index == 0 else [])
        # The source's task decodes both: real values are raw values only where the source has no scale of its own.
        task = expected.outcome.task if expected.is_decoded else None
        same = task.same_predictions(index, source_calls, actual_calls) if task and _can_decode(source_calls, actual_calls) else None
        repeats = None
        if task and _can_decode(first_calls, actual_calls, are_equal=True):
            # Both on this photograph, so that only the outputs count. Nothing found twice tells nothing: scores may be just too low.
            repeated = task.same_predictions(index, actual_calls, first_calls)
            repeats = None if repeated is None else repeated == 1
        # Value by value an item is compared by its first call.
        comparison.add(source_calls[0], actual_calls[0], same, repeats=repeats)

    outcome = run_on(model, runtime, inputs, take, report)
    agreement = comparison.summary()
    before, after = expected.outcome.accuracy, outcome.accuracy
    verdict = judge_conversion(
        precision, agreement, before.value if before else None, after.value if after else None, before.better if before else "higher"
    )
    return Parity(verdict, agreement, before, after, (expected.outcome.runtime, outcome.runtime))


def _step(inputs: ParityInputs) -> int:
    return math.ceil(inputs.count / COMPARED)


def _as_many(outputs: list[Floats], order: Sequence[int], count: int) -> list[Floats]:
    """Return the outputs in the source's order; empty ones for those that are missing."""
    ordered = [outputs[position] for position in order] if len(outputs) == len(order) else outputs
    return (ordered + [np.zeros(0, np.float32)] * count)[:count]


def _can_decode(calls: Sequence[Sequence[Floats]], other_calls: Sequence[Sequence[Floats]], *, are_equal: bool = False) -> bool:
    """Return whether the source's task can decode the second as it does the first; `are_equal`: only where the shapes are."""
    if len(calls) != len(other_calls):
        return False
    pairs = [pair for outputs, other in zip(calls, other_calls, strict=True) for pair in zip(outputs, other, strict=True)]
    fits = all(a.shape == b.shape if are_equal else a.ndim == b.ndim for a, b in pairs)
    return fits and all(bool(np.isfinite(other).all()) for _, other in pairs)


def _order(reference_outputs: Sequence[Floats], actual: Sequence[Floats]) -> list[int]:
    """Return which of their outputs is which of ours, because converters may change order and names.

    Among the orders with equal shapes it is the one with the smallest differences; if no order has equal shapes, the given one.
    """
    plain = list(range(len(actual)))
    if len(reference_outputs) != len(actual) or len(reference_outputs) > _PERMUTED:
        return plain
    fitting = [order for order in permutations(plain) if all(reference_outputs[a].shape == actual[b].shape for a, b in enumerate(order))]
    return list(min(fitting, key=lambda order: _apart(reference_outputs, [actual[position] for position in order]), default=plain))


def _apart(reference_outputs: Sequence[Floats], actual: Sequence[Floats]) -> float:
    """Return the differences of all outputs, each relative to its own size."""
    total = 0.0
    for reference_output, other in zip(reference_outputs, actual, strict=True):
        size = float(np.abs(reference_output).max(initial=0.0)) or 1.0
        difference = np.nan_to_num(np.abs(reference_output - other), nan=size, posinf=size)
        total += float(difference.mean()) / size if reference_output.size else 0.0
    return total
