"""Parity: does a converted file still compute the same as its source?

Both run by their own runtimes on the same photographs, or on noise.

The verdict is ok, degraded, ruined or inconclusive. With ground truth the accuracy decides; the
loss is accuracy before minus after, in points of AP or top-1 (0..1):
- ruined: the loss exceeds both the limit of the precision and a tenth of the accuracy before (the
  share at which a run is invalid too), or nothing is left;
- degraded: the loss exceeds the limit, or a tenth. Without ground truth the common predictions
  decide (objects in both results, classes on which both agree), and for an unknown model, the
  signal-to-noise ratio of its outputs. An output that is not finite is ruined, as is one answer for
  all inputs if the source has different ones. An fp32 or fp16 file is also degraded if its outputs
  differ by more than rounding: a wrong weight may leave the predictions unchanged.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.base.progress import Tell
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import GATE_RATIO, Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo, noise
from edgemeter.agent.tasks import Inputs, Outputs, Task, create, prepared
from edgemeter.agent.vision.preprocess import real_values
from edgemeter.models.convert.converter_output import converter_errors, quiet

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ParityInputs:
    """The inputs on which a conversion is compared, and their number.

    `open` returns a task that prepares them for a loaded model and scores its outputs.
    """

    count: int
    open: Callable[[Loaded], Task]


def image_inputs(about: Card, data: Dataset) -> ParityInputs:
    """Return images, prepared and scored as specified by the card."""
    return ParityInputs(len(data.items), lambda loaded: create(about, loaded, data))


def noise_inputs(loaded: Loaded, shape: Sequence[int]) -> ParityInputs:
    """Return seeded noise for a source.

    The source has one input of this shape, or the inputs that it declares.
    """
    dtype = np.dtype(loaded.inputs[0].dtype if loaded.inputs else "float32")
    draw = np.random.default_rng(0)
    is_plain = len(loaded.inputs) <= 1 and dtype.kind == "f"
    arrays = (
        [[draw.random(shape, dtype=np.float32).astype(dtype)] for _ in range(noise.COUNT)]
        if is_plain
        else noise.inputs(loaded, 0)
    )
    return ParityInputs(len(arrays), lambda opened: _NoiseTask(arrays, opened))


class _NoiseTask:
    """Noise for one model, in its layout.

    The meaning of the outputs is unknown: nothing is scored.
    """

    def __init__(self, arrays: Sequence[Sequence[Array]], loaded: Loaded) -> None:
        self._arrays, self._infos = arrays, loaded.inputs

    def prepare(self, index: int) -> Sequence[Inputs]:
        arrays = self._arrays[index]
        if not self._infos:
            return [{f"input {index}": array for index, array in enumerate(arrays)}]
        return [
            {
                info.name: _laid_out(array, info)
                for array, info in zip(arrays, self._infos, strict=True)
            }
        ]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None: ...

    def same_predictions(
        self, index: int, first: Sequence[Outputs], other: Sequence[Outputs]
    ) -> None: ...

    def score(self, parts: str = "all") -> None: ...


def _laid_out(array: Array, info: TensorInfo) -> Array:
    """Return the array with its channels last if the input's shape requires it."""
    is_channels_last = (
        array.ndim == 4
        and tuple(info.shape[1:]) == (*array.shape[2:], array.shape[1]) != array.shape[1:]
    )
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if is_channels_last else array


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A file that runs on its inputs one after the other.

    It has its runtime, the loaded model, and the task that prepares and scores.
    """

    runtime: runtimes.Runtime
    loaded: Loaded
    task: Task

    @property
    def package(self) -> str:
        return f"{self.loaded.package} {self.loaded.version}"

    def outputs(self, index: int) -> list[list[Array]]:
        """Return the outputs of each call for an input, unchanged.

        The task stores their predictions.
        """
        calls = []
        for call_inputs in prepared(self.task, index, self.loaded):
            with converter_errors(f"running the model by {self.package}", "leave this format out"):
                self.runtime.bind(call_inputs)()
            calls.append([np.array(output) for output in self.runtime.outputs()])
        self.task.predict(index, calls)
        return calls


@contextmanager
def running(model: Path, runtime: str, inputs: ParityInputs) -> Iterator[ModelRun]:
    """Yield the file, loaded by its runtime.

    Raises:
        EdgemeterError: its runtime is not installed, or the file, its card and the data do not
            match.
    """
    opened = runtimes.create(runtime)
    try:
        with quiet():
            loaded = opened.load(
                model, runtimes.Options(threads=1, sha256=model_file.sha256(model))
            )
        yield ModelRun(opened, loaded, inputs.open(loaded))
    finally:
        opened.close()


def score(
    model: Path, runtime: str, inputs: ParityInputs, report: Tell
) -> tuple[Accuracy | None, str]:
    """Return the accuracy of a file, and package and version of its runtime."""
    with running(model, runtime, inputs) as run:
        for index in range(inputs.count):
            run.outputs(index)
            report(f"scoring {model.name}", index + 1, inputs.count)
        return run.task.score(), run.package


# The number of inputs whose outputs are compared, evenly spread (folders of classes are sorted);
# the accuracy is that of all.
COMPARED = 100
# Outputs with equal shapes are matched by at most this many values.
_PERMUTED = 6


@dataclass(slots=True)
class Agreement:
    """How two files differ, over all compared inputs.

    `signal` and `noise` are the energies of the source's values and of the differences, by output;
    None if undefined. `same` has for each input the share of common predictions, `repeats` whether
    the conversion's are those of its first input.
    """

    inputs: int = 0
    not_finite: int = 0
    signal: NDArray[np.float64] | None = field(default_factory=lambda: np.zeros(1))
    noise: NDArray[np.float64] | None = field(default_factory=lambda: np.zeros(1))
    same: list[float] = field(default_factory=list)
    repeats: list[bool] = field(default_factory=list)

    def add(self, source_outputs: Sequence[Floats], other_outputs: Sequence[Floats]) -> None:
        """Add the outputs of both for an input, in the same order."""
        self.inputs += 1
        is_finite, is_other_finite = (
            all(np.isfinite(part).all() for part in outputs)
            for outputs in (source_outputs, other_outputs)
        )
        self.not_finite += is_finite and not is_other_finite
        shapes = [[part.shape for part in outputs] for outputs in (source_outputs, other_outputs)]
        if (
            self.signal is None
            or self.noise is None
            or shapes[0] != shapes[1]
            or not (is_finite and is_other_finite)
        ):
            self.signal = self.noise = None
            return
        pairs = [
            (part.astype(np.float64), other)
            for part, other in zip(source_outputs, other_outputs, strict=True)
        ]
        self.signal = self.signal + [float((part**2).sum()) for part, _ in pairs]
        self.noise = self.noise + [float(((part - other) ** 2).sum()) for part, other in pairs]

    @property
    def snr_db(self) -> float | None:
        """The lowest signal-to-noise ratio of the outputs, None if it is unknown.

        It is infinite if the outputs are equal.
        """
        if self.signal is None or self.noise is None:
            return None
        with np.errstate(divide="ignore"):
            ratios = [
                10 * np.log10(signal / noise)
                for signal, noise in zip(self.signal, self.noise, strict=True)
                if noise
            ]
        return float(min(ratios, default=math.inf))

    @property
    def same_answer_ratio(self) -> float | None:
        """The mean share of common predictions; None if it is unknown or neither file has any."""
        return fmean(self.same) if self.same else None


@dataclass(frozen=True, slots=True)
class Parity:
    """The comparison of a conversion with its source.

    Accuracies are those of the source and of the conversion, which `runtime` ran.
    """

    verdict: "ConversionVerdict"
    agreement: Agreement
    before: Accuracy | None
    after: Accuracy | None
    runtime: str


def compare(source: ModelRun, other: ModelRun, count: int, precision: str, report: Tell) -> Parity:
    """Run source and conversion on all inputs and return the comparison.

    Raises:
        EdgemeterError: a runtime refuses a file; or the conversion is fp32 although another
            precision was requested.
    """
    if other.loaded.precision == "fp32" and precision != "fp32":
        # ai-edge-quantizer silently skips weights that it cannot follow.
        remedy = "leave this format out, or export the model in another way"
        raise ConfigError(f"the converter left everything in fp32, not in {precision}: {remedy}")
    agreement = Agreement()
    order: list[int] = []
    first_calls: list[list[Floats]] = []
    step = math.ceil(count / COMPARED)
    for index in range(count):
        raw_calls, other_raw_calls = source.outputs(index), other.outputs(index)
        report("comparing", index + 1, count)
        if index % step:
            continue
        calls = [real_values(outputs, source.loaded) for outputs in raw_calls]
        other_calls = [real_values(outputs, other.loaded) for outputs in other_raw_calls]
        order = order or _order(calls[0], other_calls[0])
        other_calls = [[outputs[position] for position in order] for outputs in other_calls]
        first_calls = first_calls or other_calls
        # Value by value an item is compared by its first call.
        agreement.add(calls[0], other_calls[0])
        # The source's task decodes both: real values are raw values only if the source has no scale
        # of its own.
        if all(output.dtype.kind == "f" for output in raw_calls[0]) and _can_decode(
            calls, other_calls
        ):
            same = source.task.same_predictions(index, calls, other_calls)
            agreement.same.extend([] if same is None else [same])
            is_repeated = (
                _can_decode(first_calls, other_calls)
                and source.task.same_predictions(index, other_calls, first_calls) == 1
            )
            agreement.repeats.append(is_repeated)
    before, after = source.task.score(), other.task.score()
    values = (
        before.value if before else None,
        after.value if after else None,
        before.better if before else "higher",
    )
    return Parity(
        judge_conversion(precision, agreement, *values), agreement, before, after, other.package
    )


def _can_decode(calls: Sequence[Sequence[Floats]], other_calls: Sequence[Sequence[Floats]]) -> bool:
    """Return whether a task can decode the second outputs like the first.

    They must be as many tensors, with as many axes, and all finite.
    """
    axes = [[[part.ndim for part in outputs] for outputs in each] for each in (calls, other_calls)]
    return axes[0] == axes[1] and all(
        bool(np.isfinite(part).all()) for outputs in other_calls for part in outputs
    )


def _order(outputs: Sequence[Floats], other_outputs: Sequence[Floats]) -> list[int]:
    """Return the index of the matching output for each of ours.

    Converters may change order and names. Among the orders with equal shapes, the one with the
    smallest differences; if there is none, the given order.
    """
    plain = list(range(len(other_outputs)))

    def distance(order: Sequence[int]) -> float:
        total = 0.0
        for output, position in zip(outputs, order, strict=True):
            size = float(np.abs(output).max(initial=0.0)) or 1.0
            difference = np.nan_to_num(
                np.abs(output - other_outputs[position]), nan=size, posinf=size
            )
            total += float(difference.mean()) / size if output.size else 0.0
        return total

    if len(outputs) != len(other_outputs) or len(other_outputs) > _PERMUTED:
        return plain
    fitting = [
        order
        for order in permutations(plain)
        if all(outputs[a].shape == other_outputs[b].shape for a, b in enumerate(order))
    ]
    return list(min(fitting, key=distance, default=plain))


ConversionState = Literal["ok", "degraded", "ruined", "inconclusive"]


@dataclass(frozen=True, slots=True)
class ConversionLimits:
    """The limits of a precision, below which a conversion is degraded or ruined.

    They are of lost accuracy, common predictions and signal-to-noise ratio.
    """

    lost: float
    same_ok: float
    same_ruined: float
    snr_ok_db: float
    snr_ruined_db: float
    is_rounding: bool


# By precision: fp32 differs by the order of sums, fp16 by 11 bits of mantissa, int8 by 256 steps.
LIMITS = {
    "fp32": ConversionLimits(0.002, 0.99, 0.75, 60.0, 20.0, is_rounding=True),
    "fp16": ConversionLimits(0.005, 0.97, 0.75, 30.0, 15.0, is_rounding=True),
    "int8": ConversionLimits(0.03, 0.85, 0.6, 12.0, 3.0, is_rounding=False),
}
# A constant answer must be wrong for at least this many inputs, and this share of them: good
# conversions differ for a few.
_WRONG_LEAST = 3
_WRONG_RATIO = 0.05
_DIFFERENT = 0.99


@dataclass(frozen=True, slots=True)
class ConversionVerdict:
    """The state, and the reason."""

    state: ConversionState
    reason: str


def judge_conversion(
    precision: str,
    agreement: Agreement,
    before: float | None,
    after: float | None,
    better: Better = "higher",
) -> ConversionVerdict:
    """Return the verdict on a conversion.

    `before` and `after` are the accuracies of source and conversion, None without ground truth.
    """
    limits = LIMITS[precision]
    if agreement.not_finite:
        return ConversionVerdict(
            "ruined",
            f"its outputs are NaN or infinite for {agreement.not_finite} "
            f"of {agreement.inputs} inputs",
        )
    gives_one_answer = len(agreement.repeats) == agreement.inputs and all(agreement.repeats)
    wrong = sum(same < _DIFFERENT for same in agreement.same)
    if gives_one_answer and wrong >= max(_WRONG_LEAST, _WRONG_RATIO * agreement.inputs):
        return ConversionVerdict(
            "ruined",
            f"it gives one answer for all {agreement.inputs} inputs, the source different ones",
        )
    verdict = _by_evidence(limits, agreement, before, after, better)
    if verdict.state == "ok" and gives_one_answer:
        number = f"all {agreement.inputs} inputs" if agreement.inputs > 1 else "the only input"
        reason = (
            f"source and conversion give the same answer for {number}, which proves nothing: "
            "give others with --data"
        )
        return ConversionVerdict("inconclusive", reason)
    snr_db = agreement.snr_db
    if (
        verdict.state == "ok"
        and limits.is_rounding
        and snr_db is not None
        and snr_db < limits.snr_ok_db
    ):
        excess = (
            f"its outputs differ by more than {precision} explains: {snr_db:.1f} dB, "
            f"{limits.snr_ok_db:.0f} expected"
        )
        return ConversionVerdict("degraded", f"{verdict.reason}; but {excess}")
    return verdict


def _by_evidence(
    limits: ConversionLimits,
    agreement: Agreement,
    before: float | None,
    after: float | None,
    better: Better,
) -> ConversionVerdict:
    if before is not None and after is not None and before > 0:
        lost = gain(before, better) - gain(after, better)
        tenth = (1 - GATE_RATIO) * before
        reason = (
            f"accuracy {before:.4f} before, {after:.4f} after: "
            f"{'lost' if lost >= 0 else 'gained'} {abs(lost):.4f}"
        )
        if (after <= 0 and better == "higher") or lost > max(limits.lost, tenth):
            return ConversionVerdict("ruined", reason)
        return ConversionVerdict("degraded" if lost > min(limits.lost, tenth) else "ok", reason)
    if agreement.same_answer_ratio is not None:
        ratio = agreement.same_answer_ratio
        return ConversionVerdict(
            _state(ratio, limits.same_ok, limits.same_ruined),
            f"{ratio:.1%} of the predictions in common",
        )
    snr_db = agreement.snr_db
    if snr_db is None:
        return ConversionVerdict(
            "degraded", "its outputs have other shapes than the source's and cannot be compared"
        )
    reason = (
        "identical outputs"
        if snr_db == math.inf
        else f"outputs {snr_db:.1f} dB above the differences"
    )
    return ConversionVerdict(_state(snr_db, limits.snr_ok_db, limits.snr_ruined_db), reason)


def _state(value: float, ok: float, ruined: float) -> ConversionState:
    if value < ruined:
        return "ruined"
    return "ok" if value >= ok else "degraded"
