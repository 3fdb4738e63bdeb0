"""How far the outputs of two files of one model are apart, and the verdict on a conversion: ok, degraded, ruined or inconclusive.

With ground truth the accuracy decides. Lost is accuracy before minus after, in points of AP or top-1 (0..1):
- ruined: more is lost than both the limit below and a tenth of the accuracy before (the share at which a run is invalid too), or nothing
  is left;
- degraded: more is lost than the limit, or than a tenth.
Without ground truth the predictions in common decide (objects that both files show, classes that both name), and where nothing is known
of the model, the signal-to-noise ratio of its outputs. An output that is not finite is ruin.
An fp32 or fp16 file is moreover degraded when its outputs are further off than rounding makes them: a wrong weight may spare the
predictions.
One answer for all inputs is ruin with or without ground truth; where the source itself gives one, nothing speaks for the conversion: not
judged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.contract.record_accuracy import GATE_RATIO
from edgemeter.models.convert.variation import Floats, OutputSpread, Variation, variation_of


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """One output over all inputs compared, as real values.

    `snr_db` is the energy of the source's values over that of the differences (infinite if there are none), `lowest_cosine` that of the
    worst input. All three are None if the shapes differ or values are not finite.
    """

    name: str
    largest_error: float | None
    lowest_cosine: float | None
    snr_db: float | None


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """All outputs over all inputs. `variation` is whether the second file's answers follow the inputs where the first's do."""

    inputs: int
    outputs: tuple[OutputAgreement, ...]
    not_finite: int
    variation: Variation
    same_answer_ratio: float | None

    @property
    def snr_db(self) -> float | None:
        """The lowest of the outputs, None if one is unknown."""
        values = [output.snr_db for output in self.outputs]
        ratios = [value for value in values if value is not None]
        return min(ratios) if ratios and len(ratios) == len(values) else None


class OutputComparison:
    """Compares the outputs of both files, input by input; `visible` is `ConversionLimits.visible`."""

    def __init__(self, names: Sequence[str], visible: float) -> None:
        self._names = names
        self._sums = [_Sums() for _ in names]
        self._spreads = [OutputSpread(visible) for _ in names]
        self._inputs = self._not_finite = 0
        self._answers: list[float] = []
        self._repeats: list[bool | None] = []

    def add(
        self, source_outputs: Sequence[Floats], other_outputs: Sequence[Floats], same_answer: float | None, *, repeats: bool | None
    ) -> None:
        """Take the source's outputs and the others', in the same order.

        Args:
            source_outputs: float32, as many as names.
            other_outputs: the same of the conversion.
            same_answer: the share of common predictions, None if it is unknown or neither has any.
            repeats: whether the conversion's predictions are those it has for the first input; None where unknown.
        """
        self._inputs += 1
        finite = all(np.isfinite(output).all() for output in source_outputs)
        self._not_finite += finite and not all(np.isfinite(other).all() for other in other_outputs)
        for sums, spread, output, other in zip(self._sums, self._spreads, source_outputs, other_outputs, strict=True):
            sums.add(output, other)
            spread.add(output, other)
        if same_answer is not None:
            self._answers.append(same_answer)
        self._repeats.append(repeats)

    def summary(self) -> ModelAgreement:
        """Return the agreement over all inputs."""
        return ModelAgreement(
            inputs=self._inputs,
            outputs=tuple(sums.summary(name) for name, sums in zip(self._names, self._sums, strict=True)),
            not_finite=self._not_finite,
            variation=variation_of(self._repeats, self._answers, self._spreads),
            same_answer_ratio=sum(self._answers) / len(self._answers) if self._answers else None,
        )


class _Sums:
    def __init__(self) -> None:
        self._signal = self._noise = self._largest = 0.0
        self._cosine = 1.0
        self._is_comparable = True

    def add(self, output: Floats, other: Floats) -> None:
        if output.shape != other.shape or not (np.isfinite(output).all() and np.isfinite(other).all()):
            self._is_comparable = False
            return
        if output.size == 0:
            return
        a, b = output.astype(np.float64).ravel(), other.astype(np.float64).ravel()
        difference = a - b
        self._signal += float(a @ a)
        self._noise += float(difference @ difference)
        self._largest = max(self._largest, float(np.abs(difference).max()))
        self._cosine = min(self._cosine, _cosine(a, b))

    def summary(self, name: str) -> OutputAgreement:
        if not self._is_comparable:
            return OutputAgreement(name, None, None, None)
        if self._noise == 0:
            return OutputAgreement(name, self._largest, self._cosine, math.inf)
        snr_db = 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf
        return OutputAgreement(name, self._largest, self._cosine, snr_db)


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the cosine of the angle between two tensors; 1 if both are all zeros, 0 if one is."""
    length = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    if length == 0:
        return float(not a.any() and not b.any())
    return min(1.0, float(a @ b) / length)


ConversionState = Literal["ok", "degraded", "ruined", "inconclusive"]


@dataclass(frozen=True, slots=True)
class ConversionLimits:
    """The limits of a precision: lost accuracy; common predictions and signal-to-noise ratio below which it is degraded or ruined.

    `visible` is the share of an output's largest value that this precision shows a value to move by.
    """

    lost: float
    same_ok: float
    same_ruined: float
    snr_ok_db: float
    snr_ruined_db: float
    is_rounding: bool
    visible: float


# By precision: fp32 differs by the order of sums, fp16 by 11 bits of mantissa, int8 by 256 steps.
LIMITS = {
    "fp32": ConversionLimits(0.002, 0.99, 0.75, 60.0, 20.0, is_rounding=True, visible=1e-4),
    "fp16": ConversionLimits(0.005, 0.97, 0.75, 30.0, 15.0, is_rounding=True, visible=1e-2),
    "int8": ConversionLimits(0.03, 0.85, 0.6, 12.0, 3.0, is_rounding=False, visible=1 / 16),
    "int8-dynamic": ConversionLimits(0.03, 0.85, 0.6, 12.0, 3.0, is_rounding=False, visible=1 / 16),
}


@dataclass(frozen=True, slots=True)
class ConversionVerdict:
    """The state, and why."""

    state: ConversionState
    reason: str


def judge_conversion(
    precision: str, agreement: ModelAgreement, before: float | None, after: float | None, better: Better = "higher"
) -> ConversionVerdict:
    """Return the verdict; `before` and `after` are the accuracies of source and conversion, None without ground truth."""
    limits = LIMITS[precision]
    if agreement.not_finite:
        return ConversionVerdict("ruined", f"its outputs are NaN or infinite for {agreement.not_finite} of {agreement.inputs} inputs")
    if agreement.variation == "collapsed":
        return ConversionVerdict("ruined", f"it gives one answer for all {agreement.inputs} inputs, the source different ones")
    verdict = _by_evidence(limits, agreement, before, after, better)
    if verdict.state == "ok" and agreement.variation == "unseen":
        number = f"all {agreement.inputs} inputs" if agreement.inputs > 1 else "the only input"
        reason = f"source and conversion give one answer for {number}, which tells nothing: give different ones with --data"
        return ConversionVerdict("inconclusive", reason)
    snr_db = agreement.snr_db
    if verdict.state == "ok" and limits.is_rounding and snr_db is not None and snr_db < limits.snr_ok_db:
        excess = f"its outputs differ by more than {precision} explains: {snr_db:.1f} dB, {limits.snr_ok_db:.0f} expected"
        return ConversionVerdict("degraded", f"{verdict.reason}; but {excess}")
    return verdict


def _by_evidence(
    limits: ConversionLimits, agreement: ModelAgreement, before: float | None, after: float | None, better: Better
) -> ConversionVerdict:
    if before is not None and after is not None and before > 0:
        return _by_accuracy(limits, before, after, better)
    if agreement.same_answer_ratio is not None:
        ratio = agreement.same_answer_ratio
        return ConversionVerdict(_state(ratio, limits.same_ok, limits.same_ruined), f"{ratio:.1%} of the predictions in common")
    snr_db = agreement.snr_db
    if snr_db is None:
        return ConversionVerdict("degraded", "its outputs have other shapes than the source's and cannot be compared")
    reason = "identical outputs" if snr_db == math.inf else f"outputs {snr_db:.1f} dB above the differences"
    return ConversionVerdict(_state(snr_db, limits.snr_ok_db, limits.snr_ruined_db), reason)


def _by_accuracy(limits: ConversionLimits, before: float, after: float, better: Better) -> ConversionVerdict:
    lost = gain(before, better) - gain(after, better)
    tenth = (1 - GATE_RATIO) * before
    reason = f"accuracy {before:.4f} before, {after:.4f} after: {'lost' if lost >= 0 else 'gained'} {abs(lost):.4f}"
    if (after <= 0 and better == "higher") or lost > max(limits.lost, tenth):
        return ConversionVerdict("ruined", reason)
    return ConversionVerdict("degraded" if lost > min(limits.lost, tenth) else "ok", reason)


def _state(value: float, ok: float, ruined: float) -> ConversionState:
    if value < ruined:
        return "ruined"
    return "ok" if value >= ok else "degraded"
