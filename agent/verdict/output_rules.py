"""Rules on the outputs: a speed counts only where the model works.

Some need no reference: outputs that are not numbers, constant outputs, implausible scores. The
others compare with the accuracy that the model should reach.
"""

from edgemeter.agent.contract.record_accuracy import GATE_RATIO, Accuracy
from edgemeter.agent.engine.job import MeasuredRun, Scored
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.rule import Rule, RuleEvidence

# The weakest detectors in use reach a COCO AP of about 0.1, classifiers a top-1 of 0.4; less than
# half of that shows a fault.
IMPLAUSIBLE = 0.05
# With fewer objects (or photographs to classify) an accuracy near 0 may be chance.
FEW = 50
# A working detector exceeds this score on some photograph.
LOWEST_SCORE = 0.05
# A quantised score may exceed 1 by some steps, the product of two by more; a larger value is not a
# score.
NO_SCORE = 2.0
# The fewest different inputs with the same outputs that make these constant.
DIFFERENT_INPUTS = 4
# The share of photographs whose best boxes have no extent. If pixels are read as 0..1, some boxes
# at the upper left keep theirs.
NEARLY_ALL = 0.8
# An int8 score has 256 steps. If fewer than 8 are in use, ties decide the ranking of boxes, and so
# the AP.
FEW_SCORES = 8
MANY_BOXES = 100
# Exporters quantise an output of 0..1 in steps of 1/256 to 1/128; at 1/64 a box of a 640 px input
# moves by 10 px a step.
COARSE_SHARE = 1 / 64
LOWEST_STEP = {"int8": -128, "uint8": 0}


def not_finite(facts: Facts) -> RuleEvidence | None:
    """A kernel that overflows may be fast and worthless."""
    answers = facts.outputs_of.answers
    if answers is None or answers.not_finite == 0:
        return None
    return RuleEvidence(
        {"answers_not_finite": answers.not_finite, "answers_inputs": answers.inputs}
    )


def constant_output(facts: Facts) -> RuleEvidence | None:
    """Photographs only: a detector that suppresses in its graph rightly finds nothing in noise.

    A replay returns what was recorded.
    """
    run, answers = facts.outputs_of, facts.outputs_of.answers
    photographs = run.dataset.images if isinstance(run, MeasuredRun) else run.images
    if (
        answers is None
        or not photographs
        or run.runtime.name == "replay"
        or answers.inputs < DIFFERENT_INPUTS
    ):
        return None
    return (
        RuleEvidence({"answers_inputs": answers.inputs})
        if answers.alike >= answers.inputs - 1
        else None
    )


def implausible_scores(facts: Facts) -> RuleEvidence | None:
    """Nothing is found where there is something, all scores are near 0, or scores are logits."""
    answers = facts.outputs_of.answers
    if answers is None:
        return None
    highest, objects = answers.highest_score, answers.objects or 0
    if highest is not None and highest >= NO_SCORE:
        return RuleEvidence({"answers_highest_score": highest})
    if answers.found == 0 and objects:
        return RuleEvidence({"answers_objects": objects})
    if answers.found and highest is not None and highest < LOWEST_SCORE and objects >= FEW:
        return RuleEvidence({"answers_highest_score": highest, "answers_objects": objects})
    return None


def boxes_without_extent(facts: Facts) -> RuleEvidence | None:
    """Boxes are below 2 px of the input, or outside the photograph.

    An AP that models in use reach confirms them.
    """
    answers, accuracy = facts.outputs_of.answers, facts.outputs_of.accuracy
    if (
        answers is None
        or not answers.boxed
        or answers.without_extent is None
        or (accuracy is not None and not _is_low(accuracy))
    ):
        return None
    # A few boxes on many photographs without boxes may be mistakes.
    if (
        answers.boxed < min(DIFFERENT_INPUTS, answers.inputs)
        or answers.without_extent < NEARLY_ALL * answers.boxed
    ):
        return None
    return RuleEvidence(
        {"answers_boxed": answers.boxed, "answers_without_extent": answers.without_extent}
    )


def implausible_accuracy(facts: Facts) -> RuleEvidence | None:
    """Models in use reach twice the limit, and more than guessing.

    A reference of the model card that is reached confirms the accuracy.
    """
    run = facts.outputs_of
    accuracy = run.accuracy
    if (
        accuracy is None
        or accuracy.metric not in ("top1", "accuracy", "miou")
        or accuracy.images < FEW
        or accuracy.passes_gate
    ):
        return None
    limit = IMPLAUSIBLE if accuracy.metric == "miou" else max(IMPLAUSIBLE, _chance(run))
    if accuracy.value >= limit:
        return None
    return RuleEvidence(
        {
            "accuracy_value": accuracy.value,
            "accuracy_images": accuracy.images,
            "plausible_value": limit,
        },
        accuracy.metric,
    )


def _chance(run: MeasuredRun | Scored) -> float:
    """Return the accuracy of guessing: one over the number of classes, 0 if that is unknown."""
    shapes = [tensor.shape for tensor in run.outputs]
    return 1 / shapes[0][-1] if shapes and shapes[0] and shapes[0][-1] > 1 else 0.0


def accuracy_gate(facts: Facts) -> RuleEvidence | None:
    """As in MLPerf, a result that misses its target does not count, however fast."""
    accuracy = facts.outputs_of.accuracy
    if accuracy is None or accuracy.needed_value is None or accuracy.passes_gate is not False:
        return None
    return RuleEvidence(
        {"accuracy_value": accuracy.value, "accuracy_needed_value": accuracy.needed_value},
        accuracy.metric,
    )


def low_ap(facts: Facts) -> RuleEvidence | None:
    """A low AP comes from an untrained model, or from tiny objects.

    A reference of the model card that is reached confirms the AP.
    """
    run = facts.outputs_of
    accuracy, objects = run.accuracy, (run.answers.objects if run.answers else None) or 0
    if accuracy is None or objects < FEW or not _is_low(accuracy):
        return None
    return RuleEvidence(
        {"accuracy_value": accuracy.value, "answers_objects": objects}, accuracy.metric
    )


def _is_low(accuracy: Accuracy) -> bool:
    return accuracy.value < IMPLAUSIBLE and not accuracy.passes_gate


def coarse_scores(facts: Facts) -> RuleEvidence | None:
    """With few quantisation steps for all scores, ties decide the AP."""
    run, answers = facts.outputs_of, facts.outputs_of.answers
    if (
        answers is None
        or not answers.found
        or answers.found < MANY_BOXES
        or answers.distinct_scores is None
    ):
        return None
    if answers.distinct_scores < FEW_SCORES:
        return RuleEvidence(
            {"answers_distinct_scores": answers.distinct_scores, "answers_found": answers.found}
        )
    if len(run.outputs) != 1 or run.outputs[0].dtype not in LOWEST_STEP:
        return None
    (tensor,) = run.outputs
    scale = tensor.scale or 0.0
    lowest = scale * (LOWEST_STEP[tensor.dtype] - (tensor.zero_point or 0))
    # Logits lie far below 0 and may have larger steps.
    return (
        RuleEvidence({"output_scale": scale}, tensor.name)
        if scale >= COARSE_SHARE and lowest > -1
        else None
    )


RULES = (
    Rule(
        "not-finite",
        "invalid",
        "the outputs for {answers_not_finite:,.0f} of {answers_inputs:,.0f} inputs hold "
        "NaN or infinity",
        "Convert the model again, or use fp32.",
        not_finite,
    ),
    Rule(
        "constant-output",
        "invalid",
        "{answers_inputs:,.0f} different photographs got the same outputs, bit for bit",
        "Compare with the source model, and convert it again.",
        constant_output,
    ),
    Rule(
        "implausible-scores",
        "invalid",
        "no working detector scores like this[: the highest score is "
        "{answers_highest_score:.3g}][ on {answers_objects:,.0f} objects]",
        "Correct `family` and classes on the model card, or quantise boxes and scores "
        "as two outputs.",
        implausible_scores,
    ),
    Rule(
        "boxes-without-extent",
        "invalid",
        "the best boxes of {answers_without_extent:,.0f} of {answers_boxed:,.0f} photographs "
        "have no extent, "
        "as if 0..1 were read as pixels, or pixels as 0..1",
        'Add two lines to the model card: `family = "..."` for such outputs, and '
        "`classes` under `[output]`.",
        boxes_without_extent,
    ),
    Rule(
        "implausible-accuracy",
        "invalid",
        "{subject} is {accuracy_value:.3f} on {accuracy_images:,.0f} items, but working models "
        "reach at least {plausible_value:.2g}",
        "Check labels, normalisation and colour order on the model card.",
        implausible_accuracy,
    ),
    Rule(
        "accuracy-gate",
        "invalid",
        f"{{subject}} is {{accuracy_value:.3f}}, but {{accuracy_needed_value:.3f}} is needed "
        f"({GATE_RATIO:.0%} of that on the model card)",
        "Use the more precise model.",
        accuracy_gate,
    ),
    Rule(
        "low-ap",
        "note",
        f"{{subject}} is {{accuracy_value:.3f}} on {{answers_objects:,.0f}} objects, but working "
        f"detectors reach at least {IMPLAUSIBLE}",
        "Check card, classes and annotations, and score the fp32 model.",
        low_ap,
    ),
    Rule(
        "coarse-scores",
        "note",
        "the scores have so few steps that ties decide the AP[: {answers_found:,.0f} boxes share "
        "{answers_distinct_scores:.0f} scores]"
        "[: output {subject} has steps of {output_scale:.3g}]",
        "Quantise boxes and scores as two outputs.",
        coarse_scores,
    ),
)
