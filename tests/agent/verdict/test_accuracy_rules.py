"""Facts about `edgemeter.agent.verdict.accuracy_rules`: a speed counts only where the model works."""

import msgspec

from edgemeter.agent.contract.record_accuracy import AccuracyGate, Agreement, Answers
from edgemeter.agent.contract.record_conditions import DatasetInfo, RuntimeInfo, Tensor
from edgemeter.agent.engine.job import NOTHING_TO_FIND
from edgemeter.agent.verdict import accuracy_rules
from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_accuracy
from tests.fixtures.rows import table_row

SEEN = Answers(inputs=80, alike=0, not_finite=0, objects=815, found=7000, highest_score=0.97, distinct_scores=39)
GATE = AccuracyGate(metric="coco_ap", value=0.02, reference_value=0.4, ratio=0.9, needed_value=0.36, source="suite", passed=False)
AGREED = Agreement(
    reference="ai-edge-litert 2.3.0 reference",
    inputs=4,
    largest_difference=0.5,
    largest_difference_ratio=0.1,
    lowest_cosine=0.9998,
    same_answer_ratio=0.95,
)
PIXELS = (Tensor(name="output0", shape=(1, 84, 8400), dtype="int8", scale=2.51, zero_point=-128),)
COARSE = (Tensor(name="output0", shape=(1, 25200, 85), dtype="uint8", scale=0.06, zero_point=4),)
FINE = (Tensor(name="output0", shape=(1, 25200, 85), dtype="uint8", scale=0.0066, zero_point=4),)
LOGITS = (Tensor(name="output0", shape=(1, 3598, 112), dtype="int8", scale=0.09, zero_point=60),)
CLASSES = (Tensor(name="scores", shape=(1, 2), dtype="float32"),)


def answered(**changes):
    """Return the summary of 80 predictions of a sound detector, with changes."""
    return {"answers": msgspec.structs.replace(SEEN, **changes)}


def agreed(**changes):
    """Return a good agreement, with changes."""
    return {"agreement": msgspec.structs.replace(AGREED, **changes)}


def scored(value, metric="coco_ap", images=80):
    """Return an accuracy."""
    return {"accuracy": make_accuracy(value=value, metric=metric, images=images)}


CASES = [
    ("not-finite", "invalid", answered(not_finite=3), "3 of 80 inputs hold NaN"),
    ("constant-output", "invalid", {"answers": Answers(inputs=8, alike=7, not_finite=0)}, "8 different inputs got the same outputs"),
    ("no-detections", "invalid", answered(found=0, highest_score=None, distinct_scores=0), "nothing was found in 80 photographs with 815"),
    ("no-detections", "invalid", answered(highest_score=0.04), "the highest score in 80 photographs with 815 annotated objects is 0.04"),
    (
        "no-detections",
        "invalid",
        answered(found=0) | {"outputs": PIXELS},
        "output 'output0' has one scale for all values, a step is 2.51",
    ),
    ("no-scores", "invalid", answered(highest_score=9.4), "the highest score is 9.4, and scores are 0..1"),
    ("nothing-to-find", "suspect", {"accuracy_reason": NOTHING_TO_FIND}, "the ground truth holds nothing to find"),
    ("low-ap", "suspect", answered() | scored(0.02), "coco_ap 0.020 on 815 annotated objects in 80 photographs"),
    ("implausible-accuracy", "invalid", scored(0.001, "top1", 200), "top1 0.001 on 200 items"),
    ("implausible-accuracy", "invalid", scored(0.45, "top1", 200) | {"outputs": CLASSES}, "models in use reach at least 0.5"),
    ("accuracy-gate", "invalid", {"accuracy_gate": GATE}, "coco_ap 0.020 of 0.400 (suite) needed 0.360, 90% of it"),
    ("implausible-accuracy", "invalid", scored(0.01, "miou", 60), "miou 0.010 on 60 items; models in use reach at least 0.05"),
    ("coarse-scores", "suspect", answered(distinct_scores=3), "7000 boxes share 3 different scores"),
    ("coarse-scores", "suspect", answered() | {"outputs": COARSE}, "boxes and scores in steps of 0.06, 17 of them for 0..1"),
    ("disagrees", "suspect", agreed(same_answer_ratio=0.5), "50% of the predictions agree with ai-edge-litert 2.3.0 reference on 4 inputs"),
    ("disagrees", "suspect", agreed(same_answer_ratio=None, lowest_cosine=0.3), "the lowest cosine is 0.300"),
    ("disagrees", "suspect", agreed(same_answer_ratio=None, lowest_cosine=None), "the outputs have no cosine"),
]


def test_worthless_predictions_are_caught_by_name():
    """Each by the rule that is named for it, by no other, with the figures that show it."""
    for rule, state, changes, evidence in CASES:
        with table_row(rule, changes):
            judgement = verdict.judge(measured(**changes), ())
            assert judgement.state == state
            (reason,) = judgement.reasons
            assert reason.startswith(f"{rule}: ")
            assert evidence in reason


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
    answered(found=60, distinct_scores=3),
    answered(highest_score=1.3),
    answered() | {"outputs": FINE},
    answered() | {"outputs": LOGITS},
    answered() | {"outputs": (*COARSE, *FINE)},
    scored(0.0, "top1", 49),
    scored(0.06, "miou", 200),
    scored(0.06, "top1", 200),
    {"accuracy_gate": msgspec.structs.replace(GATE, passed=True)},
    agreed(),
    agreed(same_answer_ratio=None, lowest_cosine=0.99),
]


def test_what_may_be_bad_luck_or_no_fault_is_not_held_against_a_run():
    """Empty photographs, a handful of objects, a replay that repeats itself, an accuracy that is low and possible."""
    for changes in SOUND:
        assert verdict.judge(measured(**changes), ()).reasons == (), f"{changes!r}"


NOISE = DatasetInfo(name="noise", sha256="0" * 64, images=0, annotated=False)


def test_the_same_outputs_for_noise_are_a_note():
    """A detector that suppresses in its graph may rightly find nothing in noise: only photographs show whether it works."""
    judgement = verdict.judge(measured(answers=Answers(inputs=8, alike=7, not_finite=0), dataset=NOISE), ())
    assert (judgement.state, judgement.reasons) == ("valid", ())
    (note,) = judgement.notes
    assert note.startswith("constant-on-noise: 8 different inputs got the same outputs")
    assert note.endswith("give --data to know")


def test_a_low_ap_has_its_evidence_by_size_of_the_objects():
    """Untrained, or on tiny objects: large ones found tell the second."""
    detail = {"ap_small": 0.004, "ap_medium": 0.1, "ap_large": None}
    accuracy = msgspec.structs.replace(make_accuracy(value=0.02, images=80), detail=detail)
    (reason,) = verdict.judge(measured(**answered(), accuracy=accuracy), ()).reasons
    assert "(objects by size: small 0.004, medium 0.100)" in reason
    assert "the model is untrained, the objects are tiny" in reason


def test_a_reference_counts_more_than_what_is_usual():
    """A low accuracy that the reference confirms is as it should be; one that misses it is invalid."""
    confirmed = msgspec.structs.replace(GATE, reference_value=0.021, needed_value=0.019, passed=True)
    assert verdict.judge(measured(**answered(), **scored(0.02), accuracy_gate=confirmed), ()).reasons == ()
    assert verdict.judge(measured(**answered(), **scored(0.02), accuracy_gate=GATE), ()).state == "invalid"


GUESSES = ("m.onnx has no card; guessed: family yolox from its output", "m.onnx has no card; unsure: 80 classes, those of COCO")


def test_what_was_assumed_without_evidence_is_noted_beside_an_accuracy():
    """A note, no doubt in the figures: most assumptions are right, and a card settles them all. A guess with evidence is none."""
    judgement = verdict.judge(measured(guesses=GUESSES, **answered(), **scored(0.36)), ())
    assert (judgement.state, judgement.reasons) == ("valid", ())
    (note,) = judgement.notes
    assert note.startswith("unsure-model: ")
    assert note.endswith("assumed: 80 classes, those of COCO")
    # A record has the note and not the guess: the check of a bundle judges again.
    guesses = accuracy_rules.guesses_behind(judgement.notes)
    assert verdict.judge(measured(guesses=guesses, **answered(), **scored(0.36)), ()).notes == judgement.notes
    assert verdict.judge(measured(guesses=guesses), ()).notes == judgement.notes
    assert accuracy_rules.guesses_behind(("clock-unknown: the wall clock is not synchronised",)) == ()
    assert verdict.judge(measured(guesses=GUESSES[:1], **answered(), **scored(0.36)), ()).notes == ()
    assert verdict.judge(measured(guesses=GUESSES, accuracy=None), ()).notes == ()


def test_a_family_in_doubt_is_noted_of_a_run_that_is_only_timed():
    """What was timed may be no detector at all; what only the accuracy assumes plays no part."""
    doubt = "m.onnx has no card; unsure of the family: yolov8 with 52 classes?"
    (note,) = verdict.judge(measured(guesses=(*GUESSES, doubt), accuracy=None), ()).notes
    assert note.endswith("assumed: yolov8 with 52 classes?")
