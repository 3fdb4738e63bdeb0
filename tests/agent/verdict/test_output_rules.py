"""Facts about `edgemeter.agent.verdict.output_rules`: a speed counts only where the model works."""

import msgspec

from edgemeter.agent.contract.record_conditions import DatasetInfo, RuntimeInfo
from edgemeter.agent.engine.job import Answers, OutputTensor, Scored
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge, judge_outputs
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_accuracy
from tests.fixtures.rows import table_row

SEEN = Answers(
    inputs=80,
    alike=0,
    not_finite=0,
    objects=815,
    found=7000,
    highest_score=0.97,
    distinct_scores=39,
)
COARSE = (
    OutputTensor(name="output0", shape=(1, 25200, 85), dtype="uint8", scale=0.06, zero_point=4),
)
FINE = (
    OutputTensor(name="output0", shape=(1, 25200, 85), dtype="uint8", scale=0.0066, zero_point=4),
)
LOGITS = (
    OutputTensor(name="output0", shape=(1, 3598, 112), dtype="int8", scale=0.09, zero_point=60),
)
CLASSES = (OutputTensor(name="scores", shape=(1, 2), dtype="float32"),)


def answered(**changes):
    """Return the summary of 80 predictions of a sound detector, with changes."""
    return {"answers": msgspec.structs.replace(SEEN, **changes)}


def scored(value, metric="coco_ap", images=80, **changes):
    return {"accuracy": make_accuracy(value=value, metric=metric, images=images, **changes)}


INVALID = [
    ("not-finite", answered(not_finite=3), {"answers_not_finite": 3, "answers_inputs": 80}),
    (
        "constant-output",
        {"answers": Answers(inputs=8, alike=7, not_finite=0)},
        {"answers_inputs": 8},
    ),
    (
        "implausible-scores",
        answered(found=0, highest_score=None, distinct_scores=0),
        {"answers_objects": 815},
    ),
    (
        "implausible-scores",
        answered(highest_score=0.04),
        {"answers_highest_score": 0.04, "answers_objects": 815},
    ),
    ("implausible-scores", answered(highest_score=9.4), {"answers_highest_score": 9.4}),
    (
        "boxes-without-extent",
        answered(boxed=70, without_extent=60),
        {"answers_boxed": 70, "answers_without_extent": 60},
    ),
    (
        "boxes-without-extent",
        answered(inputs=1, boxed=1, without_extent=1),
        {"answers_boxed": 1, "answers_without_extent": 1},
    ),
    (
        "implausible-accuracy",
        scored(0.001, "top1", 200),
        {"accuracy_value": 0.001, "accuracy_images": 200, "plausible_value": 0.05},
    ),
    (
        "implausible-accuracy",
        scored(0.45, "top1", 200) | {"outputs": CLASSES},
        {"accuracy_value": 0.45, "accuracy_images": 200, "plausible_value": 0.5},
    ),
    (
        "implausible-accuracy",
        scored(0.01, "miou", 60),
        {"accuracy_value": 0.01, "accuracy_images": 60, "plausible_value": 0.05},
    ),
    (
        "accuracy-gate",
        scored(0.359, needed_value=0.36),
        {"accuracy_value": 0.359, "accuracy_needed_value": 0.36},
    ),
]
NOTED = [
    ("low-ap", answered() | scored(0.02), {"accuracy_value": 0.02, "answers_objects": 815}),
    (
        "coarse-scores",
        answered(distinct_scores=3),
        {"answers_distinct_scores": 3, "answers_found": 7000},
    ),
    ("coarse-scores", answered() | {"outputs": COARSE}, {"output_scale": 0.06}),
]


def test_worthless_predictions_are_caught_by_name():
    """Only the rule named for each fault catches it, with the numbers that show it."""
    for rule, changes, numbers in INVALID:
        with table_row(rule, changes):
            judged = judge(Facts(measured(**changes)))
            assert (judged.state, judged.rules) == ("invalid", (rule,))
            assert judged.violations[0].numbers == numbers


def test_what_may_be_the_models_nature_is_noted():
    """Tiny objects have a low AP, and coarse scores are a choice."""
    for rule, changes, numbers in NOTED:
        with table_row(rule, changes):
            judged = judge(Facts(measured(**changes)))
            assert (judged.state, [(note.rule, note.numbers) for note in judged.notes]) == (
                "ok",
                [(rule, numbers)],
            )


SOUND = [
    {},
    answered() | scored(0.36),
    answered(objects=None, found=0, highest_score=None, distinct_scores=0),
    answered(objects=0, found=0, highest_score=None, distinct_scores=0),
    answered(objects=20, highest_score=0.04) | scored(0.0),
    {"answers": Answers(inputs=3, alike=2, not_finite=0)},
    {"answers": Answers(inputs=80, alike=78, not_finite=0)},
    {
        "answers": Answers(inputs=8, alike=7, not_finite=0),
        "runtime": RuntimeInfo(name="replay", package="e", version="0", backend="r", threads=1),
    },
    {
        "answers": Answers(inputs=8, alike=7, not_finite=0),
        "dataset": DatasetInfo(name="n", sha256="0" * 64, images=0),
    },
    answered(boxed=70, without_extent=50),
    answered(boxed=3, without_extent=3),
    answered(boxed=70, without_extent=70) | scored(0.06),
    answered(boxed=0, without_extent=0),
    answered(found=60, distinct_scores=3),
    answered(highest_score=1.3),
    answered() | {"outputs": FINE},
    answered() | {"outputs": LOGITS},
    answered() | {"outputs": (*COARSE, *FINE)},
    scored(0.0, "top1", 49),
    scored(0.06, "miou", 200),
    scored(0.06, "top1", 200),
    scored(0.36, needed_value=0.36),
    scored(0.2, "wer", better="lower", needed_value=0.2),
]


def test_what_may_be_bad_luck_or_no_fault_is_not_held_against_a_run():
    """Empty photographs, noise and a handful of objects are no fault.

    Nor are a replay that repeats itself and an accuracy that is low but possible.
    """
    for changes in SOUND:
        judged = judge(Facts(measured(**changes)))
        assert (judged.state, judged.notes) == ("ok", ()), f"{changes!r}"


def test_a_reference_counts_more_than_what_is_usual():
    """A low accuracy that the reference confirms is right; one that misses it is invalid."""
    assert judge(Facts(measured(**answered(), **scored(0.02, needed_value=0.019)))).notes == ()
    assert judge(Facts(measured(**answered(), **scored(0.02, needed_value=0.36)))).rules == (
        "accuracy-gate",
    )


def test_a_model_that_is_only_scored_is_judged_by_its_outputs():
    """The rules on timed work need no run."""
    run = measured()
    result = Scored(
        accuracy=make_accuracy(value=0.001, metric="top1", images=200), images=200, notes=(),
        runtime=run.runtime,
        outputs=(), answers=None,
    )  # fmt: skip
    assert judge_outputs(Facts(result)).rules == ("implausible-accuracy",)
