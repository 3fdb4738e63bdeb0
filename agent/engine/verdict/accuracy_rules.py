"""Rules about the answers: a speed counts only where the model does its work.

Some need no reference: an answer that is no number, the same for everything, or nothing at all. The others compare, with the accuracy that
the model was to reach, or with other kernels that ran the same file.
"""

from collections.abc import Callable, Mapping

import numpy as np

from edgemeter.agent.engine.job import Measured, Scored
from edgemeter.agent.engine.verdict.rule import Facts, Rule

# The weakest detectors that people deploy reach a COCO AP of about 0.1, classifiers a top-1 of 0.4; half of the lower is a ruin.
IMPLAUSIBLE = 0.05
# Below so many objects (or photographs to classify) an accuracy near 0 may be bad luck.
FEW = 50
# What no detector that works stays below on all its photographs.
LOWEST_SCORE = 0.05
# A quantised score may exceed 1 by some steps, the product of two of them by more; from here it is no share of certainty.
NO_SCORE = 2.0
# Different inputs that got one answer, before it is called constant.
DIFFERENT_INPUTS = 4
# An int8 score has 256 steps. With fewer than 8 in use the ranking of boxes, and so the AP, is decided by ties.
FEW_SCORES = 8
MANY_BOXES = 100
# One step of a quantised output that is this large rounds every score below half of it to 0.
COARSE_STEP = 0.1
# Exporters quantise an output of 0..1 in steps of 1/256 to 1/128; at twice that a box of a 640 px input moves by 10 px a step.
COARSE_SHARE = 1 / 64
# Below this other kernels give other answers, not other roundings (an int8 SSD on XNNPACK against plain loops: 0.95).
AGREED_RATIO = 0.8
AGREED_COSINE = 0.98
# What a model answered, timed or not.
Answered = Measured | Scored


def _not_finite(found: Answered) -> str | None:
    seen = found.answers
    if seen is None or seen.not_finite == 0:
        return None
    return (
        f"the outputs for {seen.not_finite} of {seen.inputs} inputs hold NaN or infinity: look for overflow (fp16?) or a broken conversion"
    )


def _constant(found: Answered) -> str | None:
    seen = found.answers
    # A replay gives what was recorded, whatever it is asked.
    if seen is None or found.runtime.name == "replay" or seen.inputs < DIFFERENT_INPUTS or seen.alike < seen.inputs - 1:
        return None
    return f"{seen.inputs} different inputs got the same outputs, bit by bit: the model or its runtime does not look at the input"


def _no_detections(found: Answered) -> str | None:
    seen = found.answers
    if seen is None or seen.found is None or not seen.objects:
        return None
    where = f"{seen.inputs} photographs with {seen.objects} annotated objects"
    if seen.found == 0:
        return f"nothing was found in {where}: no score is above the threshold{_coarse_output(found)}"
    if seen.highest_score is None or seen.highest_score >= LOWEST_SCORE or seen.objects < FEW:
        return None
    return f"the highest score in {where} is {seen.highest_score:.2g}: a detector that works exceeds {LOWEST_SCORE}{_coarse_output(found)}"


def _coarse_output(found: Answered) -> str:
    """Return what the scale of a quantised output says of its scores; empty where it says nothing."""
    coarse = [tensor for tensor in found.outputs if tensor.dtype in ("int8", "uint8") and (tensor.scale or 0) >= COARSE_STEP]
    if not coarse:
        return ""
    tensor = coarse[0]
    return (
        f"; output {tensor.name!r} has one scale for all that it holds, a step is {tensor.scale:.3g}, so that a score of 0..1 rounds to 0: "
        "quantise with boxes as 0..1, or scores as an output of their own"
    )


def _coarse_scores(found: Answered) -> str | None:
    seen = found.answers
    if seen is None or not seen.found or seen.found < MANY_BOXES or seen.distinct_scores is None:
        return None
    if seen.distinct_scores >= FEW_SCORES:
        return _coarse_together(found)
    return f"{seen.found} boxes share {seen.distinct_scores} different scores: which is better is decided by ties{_coarse_output(found)}"


def _coarse_together(found: Answered) -> str | None:
    """Return what speaks against the step of the one output for boxes and scores; logits, which begin far below 0, may have larger."""
    if len(found.outputs) != 1 or found.outputs[0].dtype not in ("int8", "uint8"):
        return None
    (tensor,) = found.outputs
    scale = tensor.scale or 0.0
    lowest = scale * (np.iinfo(tensor.dtype).min - (tensor.zero_point or 0))
    if scale < COARSE_SHARE or lowest <= -1:
        return None
    return (
        f"output {tensor.name!r} holds boxes and scores in steps of {scale:.3g}, {1 / scale:.0f} of them for 0..1: it was quantised for "
        "another range; quantise again, with calibration pictures like those it will see"
    )


def _no_scores(found: Answered) -> str | None:
    seen = found.answers
    if seen is None or seen.highest_score is None or seen.highest_score < NO_SCORE:
        return None
    return (
        f"the highest score is {seen.highest_score:.3g}, and scores are 0..1: what was read as scores are logits or another column; "
        "export the model with its sigmoid, or correct `family` and output.classes in its card"
    )


def _implausible(found: Answered) -> str | None:
    accuracy, seen = found.accuracy, found.answers
    if accuracy is None:
        return None
    is_classifier = accuracy.metric == "top1"
    asked = accuracy.images if is_classifier or seen is None else seen.objects or 0
    least = max(IMPLAUSIBLE, _chance(found)) if is_classifier else IMPLAUSIBLE
    if asked < FEW or accuracy.value >= least:
        return None
    what = f"{asked} photographs" if is_classifier else f"{asked} annotated objects in {accuracy.images} photographs"
    return (
        f"{accuracy.metric} {accuracy.value:.3f} on {what}; nothing in use is below {least:.2g}: the model is ruined (quantisation?), "
        f"or its card (classes, normalisation, layout) or the annotations are not its own{_coarse_output(found)}"
    )


def _chance(found: Answered) -> float:
    """Return what guessing reaches: one over the number of classes, 0 where that is not known."""
    shapes = [tensor.shape for tensor in found.outputs]
    return 1 / shapes[0][-1] if shapes and shapes[0] and shapes[0][-1] > 1 else 0.0


def _gate(facts: Facts) -> str | None:
    gate = facts.measured.accuracy_gate
    if gate is None or gate.passed:
        return None
    return (
        f"{gate.metric} {gate.value:.3f} of {gate.reference_value:.3f} ({gate.source}) needed {gate.needed_value:.3f}, "
        f"{gate.ratio:.0%} of it: the speed does not count"
    )


def _disagrees(facts: Facts) -> str | None:
    found = facts.measured.agreement
    if found is None:
        return None
    against = f"with {found.reference} on {found.inputs} inputs"
    if found.same_answer_ratio is not None:
        if found.same_answer_ratio >= AGREED_RATIO:
            return None
        return f"{found.same_answer_ratio:.0%} of the answers agree {against}: the kernels that were timed, or the conversion, are in doubt"
    if found.lowest_cosine is None or found.lowest_cosine < AGREED_COSINE:
        cosine = (
            "of the outputs no cosine can be taken" if found.lowest_cosine is None else f"the lowest cosine is {found.lowest_cosine:.3f}"
        )
        return f"{cosine} {against}: the kernels that were timed, or the conversion, are in doubt"
    return None


def _unsure(facts: Facts) -> str | None:
    doubts = [guess.partition(" unsure: ")[2] for guess in facts.measured.guesses if " unsure: " in guess]
    if facts.measured.accuracy is None or not doubts:
        return None
    return f"no card lies beside the model, and nothing in it shows what was assumed: {'. And: '.join(doubts)}"


def _timed(look: Callable[[Answered], str | None]) -> Callable[[Facts], str | None]:
    return lambda facts: look(facts.measured)


RULES: tuple[Rule, ...] = (
    Rule(
        "not-finite",
        "invalid",
        "no output holds NaN or infinity",
        _timed(_not_finite),
        "a kernel that overflows may be fast, and what it answers is nothing",
    ),
    Rule(
        "constant-output",
        "invalid",
        f"{DIFFERENT_INPUTS} or more different inputs do not all get the same outputs",
        _timed(_constant),
        "a runtime that gives its first answer again, or a model that died in conversion, has a speed of no use",
    ),
    Rule(
        "no-detections",
        "invalid",
        f"in photographs with annotated objects something is found, and with {FEW} of them a score exceeds {LOWEST_SCORE}",
        _timed(_no_detections),
        "one output scale for boxes in pixels and scores of 0..1 rounds all scores to 0; suppression then has nothing to do",
    ),
    Rule(
        "no-scores",
        "invalid",
        f"no score is {NO_SCORE:g} or more",
        _timed(_no_scores),
        "of logits a threshold leaves out what the sigmoid would have kept, and the AP is that of another model",
    ),
    Rule(
        "implausible-accuracy",
        "invalid",
        f"on {FEW} objects or photographs the accuracy is {IMPLAUSIBLE} or more, and of a classifier that of guessing",
        _timed(_implausible),
        "what is in use reaches twice that; below it quantisation has ruined the model, or model, card and data do not belong together",
    ),
    Rule(
        "accuracy-gate",
        "invalid",
        "the accuracy is the gate's share of the reference's, where one is known",
        _gate,
        "MLPerf's order: a result that misses the accuracy target is no result, however fast",
    ),
    Rule(
        "coarse-scores",
        "suspect",
        f"{MANY_BOXES} or more boxes have at least {FEW_SCORES} different scores, and an output of both has steps of at most 1/64",
        _timed(_coarse_scores),
        "with a few steps of quantisation for all scores, ties decide the AP and suppression keeps what comes first",
    ),
    Rule(
        "disagrees",
        "suspect",
        f"{AGREED_RATIO:.0%} of the answers (without answers: a cosine of {AGREED_COSINE}) agree with a reference that runs the same file",
        _disagrees,
        "wrong kernels of a delegate are fast too",
    ),
    Rule(
        "unsure-model",
        "note",
        "a card, the file or its shapes say what an accuracy rests on",
        _unsure,
        "what was assumed may cost accuracy without a trace in the answers; a card settles it",
    ),
)
# Those that need nothing but the answers, so that they hold of a model that is only scored too.
_OF_ANSWERS: Mapping[str, Callable[[Answered], str | None]] = {
    "not-finite": _not_finite,
    "constant-output": _constant,
    "no-detections": _no_detections,
    "no-scores": _no_scores,
    "implausible-accuracy": _implausible,
    "coarse-scores": _coarse_scores,
}


def broken(found: Answered) -> tuple[tuple[Rule, str], ...]:
    """Return the rules that the answers break by themselves, each with its evidence."""
    looks = [(rule, _OF_ANSWERS[rule.name](found)) for rule in RULES if rule.name in _OF_ANSWERS]
    return tuple((rule, evidence) for rule, evidence in looks if evidence is not None)
