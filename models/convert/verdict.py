"""What a conversion did to the model, in a word: ok, degraded or ruined.

With ground truth the accuracy decides. Lost is accuracy before minus after, in points of AP or top-1 (0..1):
- ruined: more is lost than both the limit below and a tenth of the accuracy before (the share at which a run is invalid too), or nothing
  is left;
- degraded: more is lost than the limit, or than a tenth.
Without ground truth the answers in common decide (objects that both files show, classes that both name), and where nothing is known of the
model, the signal-to-noise ratio of its outputs. An answer that is not finite, or one and the same whatever the picture, is ruin.
An fp32 or fp16 file is moreover degraded when its outputs are further off than rounding makes them: a wrong weight may spare the answers.
"""

import math
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.records import GATE_RATIO
from edgemeter.models.convert.agreement import Agreement

State = Literal["ok", "degraded", "ruined"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a precision explains: accuracy lost, answers in common below which it is degraded and ruined, likewise signal to noise."""

    lost: float
    same_ok: float
    same_ruined: float
    snr_ok_db: float
    snr_ruined_db: float
    is_rounding: bool


# Kept by precision: fp32 differs by the order of sums, fp16 by 11 bits of mantissa, int8 by 256 steps.
LIMITS = {
    "fp32": Limits(0.002, 0.99, 0.75, 60.0, 20.0, is_rounding=True),
    "fp16": Limits(0.005, 0.97, 0.75, 30.0, 15.0, is_rounding=True),
    "int8": Limits(0.03, 0.85, 0.6, 12.0, 3.0, is_rounding=False),
    "int8-dynamic": Limits(0.03, 0.85, 0.6, 12.0, 3.0, is_rounding=False),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word, and why."""

    state: State
    reason: str


def judge(precision: str, agreement: Agreement, before: float | None, after: float | None) -> Verdict:
    """Return the verdict; `before` and `after` are the accuracies of source and conversion on the same pictures, None without truth."""
    limits = LIMITS[precision]
    if agreement.not_finite:
        return Verdict("ruined", f"it answers with NaN or infinity to {agreement.not_finite} of {agreement.inputs} inputs")
    if agreement.stuck:
        return Verdict("ruined", f"it gives one and the same answer to all {agreement.inputs} inputs")
    found = _by_evidence(limits, agreement, before, after)
    snr_db = agreement.snr_db
    if found.state == "ok" and limits.is_rounding and snr_db is not None and snr_db < limits.snr_ok_db:
        reason = (
            f"{found.reason}; but its outputs are off by more than {precision} explains: {snr_db:.1f} dB, {limits.snr_ok_db:.0f} expected"
        )
        return Verdict("degraded", reason)
    return found


def _by_evidence(limits: Limits, agreement: Agreement, before: float | None, after: float | None) -> Verdict:
    if before is not None and after is not None and before > 0:
        return _by_accuracy(limits, before, after)
    if agreement.same_answer_ratio is not None:
        ratio = agreement.same_answer_ratio
        return Verdict(_state(ratio, limits.same_ok, limits.same_ruined), f"{ratio:.1%} of the answers in common")
    snr_db = agreement.snr_db
    if snr_db is None:
        return Verdict("degraded", "its outputs have other shapes than the source's: they cannot be compared")
    reason = "outputs without any difference" if snr_db == math.inf else f"outputs {snr_db:.1f} dB above the differences"
    return Verdict(_state(snr_db, limits.snr_ok_db, limits.snr_ruined_db), reason)


def _by_accuracy(limits: Limits, before: float, after: float) -> Verdict:
    lost = before - after
    tenth = (1 - GATE_RATIO) * before
    reason = f"accuracy {before:.4f} before, {after:.4f} after: {'lost' if lost >= 0 else 'gained'} {abs(lost):.4f}"
    if after <= 0 or lost > max(limits.lost, tenth):
        return Verdict("ruined", reason)
    return Verdict("degraded" if lost > min(limits.lost, tenth) else "ok", reason)


def _state(value: float, ok: float, ruined: float) -> State:
    if value < ruined:
        return "ruined"
    return "ok" if value >= ok else "degraded"
