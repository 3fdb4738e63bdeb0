"""Rules on the predictions: a speed counts only where the model works.

Some need no reference: outputs that are not numbers, constant outputs, no detections. The others compare with the accuracy that the model
should reach, or with other kernels that ran the same file.
"""

import re
from collections.abc import Callable, Iterable
from functools import update_wrapper

import numpy as np

from edgemeter.agent.contract.model_card import UNSURE_FAMILY
from edgemeter.agent.engine.job import NOTHING_TO_FIND, MeasuredRun, Scored
from edgemeter.agent.verdict.rule import Rule, Rules, RunFacts

# The weakest detectors in use reach a COCO AP of about 0.1, classifiers a top-1 of 0.4; below half of the lower something is wrong.
IMPLAUSIBLE = 0.05
# With fewer objects (or photographs to classify) an accuracy near 0 may be bad luck.
FEW = 50
# A working detector exceeds this score on some photograph.
LOWEST_SCORE = 0.05
# A quantised score may exceed 1 by some steps, the product of two of them by more; from here on it is not a score.
NO_SCORE = 2.0
# Different inputs with the same outputs, before these count as constant.
DIFFERENT_INPUTS = 4
# An int8 score has 256 steps. With fewer than 8 in use the ranking of boxes, and so the AP, is decided by ties.
FEW_SCORES = 8
MANY_BOXES = 100
# A quantisation step of this size rounds every score below half of it to 0.
COARSE_STEP = 0.1
# Exporters quantise an output of 0..1 in steps of 1/256 to 1/128; at twice that a box of a 640 px input moves by 10 px a step.
COARSE_SHARE = 1 / 64
# Below this the difference between kernels is more than rounding (an int8 SSD on XNNPACK against plain loops: 0.95).
AGREED_RATIO = 0.8
AGREED_COSINE = 0.98
# The predictions of a model, timed or not.
Evaluated = MeasuredRun | Scored
_ASSUMED = "the model has no card, or a guessed one, and nothing in its file confirms what was assumed: "
RULES = Rules()


class _OfOutputs:
    """Evidence that needs nothing but the outputs, so that it holds for a model that is only scored too."""

    def __init__(self, evidence: Callable[[Evaluated], str | None]) -> None:
        self.evidence = evidence
        update_wrapper(self, evidence)

    def __call__(self, facts: RunFacts) -> str | None:
        return self.evidence(facts.measured)


@RULES.invalid(
    "no output holds NaN or infinity",
    "a kernel that overflows may be fast and worthless",
    "convert the model again; try fp32",
)
@_OfOutputs
def _not_finite(run: Evaluated) -> str | None:
    answers = run.answers
    if answers is None or answers.not_finite == 0:
        return None
    share = f"{answers.not_finite} of {answers.inputs}"
    return f"the outputs for {share} inputs hold NaN or infinity: check for overflow (fp16?) or a broken conversion"


@RULES.invalid(
    f"{DIFFERENT_INPUTS} or more different photographs do not all have the same outputs",
    "a runtime that repeats its first output is fast and worthless",
    "compare with the source model; convert it again",
)
@_OfOutputs
def _constant_output(run: Evaluated) -> str | None:
    return _repeated(run) if _photographs(run) else None


@RULES.note(
    f"without photographs, {DIFFERENT_INPUTS} or more inputs of noise do not all have the same outputs",
    "a detector whose graph suppresses by itself may rightly find nothing in noise",
    "give photographs",
)
@_OfOutputs
def _constant_on_noise(run: Evaluated) -> str | None:
    evidence = None if _photographs(run) else _repeated(run)
    return evidence and f"{evidence}; or it finds nothing in noise, as a detector that suppresses in its graph may: give --data to know"


def _photographs(run: Evaluated) -> int:
    """Return on how many photographs the model ran, 0 on noise."""
    return run.dataset.images if isinstance(run, MeasuredRun) else run.images


def _repeated(run: Evaluated) -> str | None:
    answers = run.answers
    # A replay returns what was recorded, whatever its input.
    if answers is None or run.runtime.name == "replay" or answers.inputs < DIFFERENT_INPUTS or answers.alike < answers.inputs - 1:
        return None
    return f"{answers.inputs} different inputs got the same outputs, bit by bit: the model or its runtime ignores the input"


@RULES.invalid(
    f"something is detected in photographs with annotated objects; with {FEW} objects, some score exceeds {LOWEST_SCORE}",
    "one output scale for boxes in pixels and scores of 0..1 rounds all scores to 0",
    "check card and data; quantise boxes and scores with scales of their own",
)
@_OfOutputs
def _no_detections(run: Evaluated) -> str | None:
    answers = run.answers
    if answers is None or answers.found is None or not answers.objects:
        return None
    where = f"{answers.inputs} photographs with {answers.objects} annotated objects"
    if answers.found == 0:
        return f"nothing was found in {where}: no score is above the threshold{_coarse_output(run)}"
    if answers.highest_score is None or answers.highest_score >= LOWEST_SCORE or answers.objects < FEW:
        return None
    return f"the highest score in {where} is {answers.highest_score:.2g}: a detector that works exceeds {LOWEST_SCORE}{_coarse_output(run)}"


def _coarse_output(run: Evaluated) -> str:
    """Return how the scale of a quantised output affects its scores; empty where it does not."""
    coarse = [tensor for tensor in run.outputs if tensor.dtype in ("int8", "uint8") and (tensor.scale or 0) >= COARSE_STEP]
    if not coarse:
        return ""
    tensor = coarse[0]
    return (
        f"; output {tensor.name!r} has one scale for all values, a step is {tensor.scale:.3g}, so that a score of 0..1 rounds to 0: "
        "quantise with boxes as 0..1, or with scores as a separate output"
    )


@RULES.invalid(
    f"every score is below {NO_SCORE:g}",
    "a threshold on logits drops boxes that the sigmoid would keep, so the AP is that of another model",
    "export the model with its sigmoid, or correct `family` on the card",
)
@_OfOutputs
def _no_scores(run: Evaluated) -> str | None:
    answers = run.answers
    if answers is None or answers.highest_score is None or answers.highest_score < NO_SCORE:
        return None
    return (
        f"the highest score is {answers.highest_score:.3g}, and scores are 0..1: the values are logits or another column; "
        "export the model with its sigmoid, or correct `family` and output.classes in its card"
    )


@RULES.suspect(
    "the ground truth holds something to find",
    "else nothing confirms that the model works",
    "correct the annotations, or leave them out",
)
@_OfOutputs
def _nothing_to_find(run: Evaluated) -> str | None:
    return run.accuracy_reason if run.accuracy_reason == NOTHING_TO_FIND else None


@RULES.invalid(
    f"on {FEW} or more items a classifier's accuracy is at least {IMPLAUSIBLE} and that of guessing, mIoU at least {IMPLAUSIBLE}, or a "
    "reference confirms it",
    "models in use reach twice that; below it, the model is broken, or model, card and data do not match",
    "check labels, normalisation and colour order on the card",
)
@_OfOutputs
def _implausible_accuracy(run: Evaluated) -> str | None:
    accuracy = run.accuracy
    if accuracy is None or accuracy.metric not in ("top1", "accuracy", "miou") or accuracy.images < FEW or _is_known(run):
        return None
    limit = IMPLAUSIBLE if accuracy.metric == "miou" else max(IMPLAUSIBLE, _chance(run))
    if accuracy.value >= limit:
        return None
    return (
        f"{accuracy.metric} {accuracy.value:.3f} on {accuracy.images} items; models in use reach at least {limit:.2g}: the model is broken "
        "(quantisation?), or its card (classes, normalisation, layout) or the annotations do not match it"
    )


@RULES.suspect(
    f"on {FEW} or more objects a detector's AP is at least {IMPLAUSIBLE}, or a reference confirms it",
    "detectors in use reach twice that; below it, the model is untrained or broken, its objects tiny, or card and data do not match",
    "check card, classes and annotations",
)
@_OfOutputs
def _low_ap(run: Evaluated) -> str | None:
    accuracy, objects = run.accuracy, run.answers.objects if run.answers else None
    if accuracy is None or (objects or 0) < FEW or accuracy.value >= IMPLAUSIBLE or _is_known(run):
        return None
    sizes = ((size, accuracy.detail.get(f"ap_{size}")) for size in ("small", "medium", "large"))
    by_size = ", ".join(f"{size} {value:.3f}" for size, value in sizes if value is not None)
    return (
        f"{accuracy.metric} {accuracy.value:.3f} on {objects} annotated objects in {accuracy.images} photographs"
        f"{f' (objects by size: {by_size})' if by_size else ''}; detectors in use reach at least {IMPLAUSIBLE}: the model is untrained, "
        "the objects are tiny, quantisation broke it, or its card (classes, normalisation, layout) or the annotations do not match it; "
        f"the accuracy of the fp32 model as a reference tells which{_coarse_output(run)}"
    )


def _is_known(run: Evaluated) -> bool:
    """Return whether a reference confirms the accuracy; one that it misses is the gate's business."""
    return isinstance(run, MeasuredRun) and run.accuracy_gate is not None and run.accuracy_gate.passed


def _chance(run: Evaluated) -> float:
    """Return the accuracy of guessing: one over the number of classes, 0 where that is unknown."""
    shapes = [tensor.shape for tensor in run.outputs]
    return 1 / shapes[0][-1] if shapes and shapes[0] and shapes[0][-1] > 1 else 0.0


@RULES.invalid(
    "the accuracy reaches the gate's share of the reference, where that is known",
    "as in MLPerf, a result that misses its target does not count, however fast",
    "the more precise model, or `gate` in a suite with what you accept",
)
def _accuracy_gate(facts: RunFacts) -> str | None:
    gate = facts.measured.accuracy_gate
    if gate is None or gate.passed:
        return None
    return (
        f"{gate.metric} {gate.value:.3f} of {gate.reference_value:.3f} ({gate.source}) needed {gate.needed_value:.3f}, "
        f"{gate.ratio:.0%} of it: the speed does not count"
    )


@RULES.suspect(
    f"{MANY_BOXES} or more boxes have at least {FEW_SCORES} different scores; an output of boxes and scores has steps of at most 1/64",
    "with few quantisation steps for all scores, ties decide the AP",
    "quantise boxes and scores as two outputs",
)
@_OfOutputs
def _coarse_scores(run: Evaluated) -> str | None:
    answers = run.answers
    if answers is None or not answers.found or answers.found < MANY_BOXES or answers.distinct_scores is None:
        return None
    if answers.distinct_scores >= FEW_SCORES:
        return _coarse_together(run)
    return f"{answers.found} boxes share {answers.distinct_scores} different scores: ties decide their ranking{_coarse_output(run)}"


def _coarse_together(run: Evaluated) -> str | None:
    """Return the evidence against the step of an output of both boxes and scores; logits, far below 0, may have larger steps."""
    if len(run.outputs) != 1 or run.outputs[0].dtype not in ("int8", "uint8"):
        return None
    (tensor,) = run.outputs
    scale = tensor.scale or 0.0
    lowest = scale * (np.iinfo(tensor.dtype).min - (tensor.zero_point or 0))
    if scale < COARSE_SHARE or lowest <= -1:
        return None
    return (
        f"output {tensor.name!r} holds boxes and scores in steps of {scale:.3g}, {1 / scale:.0f} of them for 0..1: it was quantised for "
        "another range; quantise it again with representative calibration images"
    )


@RULES.suspect(
    f"{AGREED_RATIO:.0%} of the predictions (else a cosine of {AGREED_COSINE}) agree with reference kernels that run the same file",
    "a delegate with wrong kernels may be fast",
    "another backend, and compare its accuracy",
)
def _disagrees(facts: RunFacts) -> str | None:
    agreement = facts.measured.agreement
    if agreement is None:
        return None
    against = f"with {agreement.reference} on {agreement.inputs} inputs"
    if agreement.same_answer_ratio is not None:
        if agreement.same_answer_ratio >= AGREED_RATIO:
            return None
        return f"{agreement.same_answer_ratio:.0%} of the predictions agree {against}: the timed kernels or the conversion may be wrong"
    if agreement.lowest_cosine is None or agreement.lowest_cosine < AGREED_COSINE:
        cosine = "the outputs have no cosine" if agreement.lowest_cosine is None else f"the lowest cosine is {agreement.lowest_cosine:.3f}"
        return f"{cosine} {against}: the timed kernels or the conversion may be wrong"
    return None


@RULES.note(
    "a card, the file or its shapes confirm the model's family, and what the accuracy assumes",
    "a pose's head looks like a detector's, and a wrong assumption may cost accuracy without a trace; a card settles it",
    "write a card beside the model",
)
def _unsure_model(facts: RunFacts) -> str | None:
    matters = " unsure: |" if facts.measured.accuracy is not None else ""
    guess_parts = [re.split(f"{matters} {UNSURE_FAMILY}", guess, maxsplit=1) for guess in facts.measured.guesses]
    doubts = [parts[1] for parts in guess_parts if len(parts) == 2]
    if not doubts:
        return None
    return f"{_ASSUMED}{'; '.join(doubts)}"


def guesses_behind(notes: Iterable[str]) -> tuple[str, ...]:
    """Return guesses that give the note on what was assumed, as it stands among these; a record does not hold them by themselves."""
    return tuple(f" {UNSURE_FAMILY}{note.partition(_ASSUMED)[2]}" for note in notes if _ASSUMED in note)


def violated(run: Evaluated) -> tuple[tuple[Rule, str], ...]:
    """Return the rules that the outputs alone violate, each with its evidence."""
    checks = [(rule, rule.evidence.evidence(run)) for rule in RULES if isinstance(rule.evidence, _OfOutputs)]
    return tuple((rule, evidence) for rule, evidence in checks if evidence is not None)
