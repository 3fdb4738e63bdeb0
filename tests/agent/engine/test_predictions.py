"""Facts about `edgemeter.agent.engine.predictions`: their summary, and the accuracy gate."""

import msgspec
import numpy as np
import pytest

from edgemeter.agent.engine.job import Answers
from edgemeter.agent.engine.predictions import PredictionLog, score_untimed, with_needed_value
from edgemeter.agent.verdict.facts import Facts
from edgemeter.agent.verdict.judge import judge_outputs
from edgemeter.agent.vision.decoders import DECODERS, boxes
from tests.fixtures.record_factory import SHA_DATA, make_accuracy
from tests.fixtures.replay_case import write_replay
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import brief_case, run_job, write_photographs
from tests.fixtures.vision_factory import make_card


def arrays(*values):
    return [[np.array([float(value), 1.0], np.float32)] for value in values]


def logged(inputs, outputs, scores=None, objects=None):
    log = PredictionLog()
    for index, (model_inputs, other) in enumerate(zip(inputs, outputs, strict=True)):
        log.add(
            model_inputs, other, None if scores is None else np.array(scores[index], np.float32)
        )
    return log.summary(objects)


def test_predictions_are_summarised():
    """The summary counts outputs that are alike or not finite, and the scores of boxes."""
    nothing = [[np.zeros((0, 6), np.float32)]] * 3
    no_numbers = [[np.array([np.nan, np.inf])], [np.array([1.0, 2.0])], [np.array([-np.inf, 0.0])]]
    plain, boxes = {"inputs": 3, "alike": 0, "not_finite": 0}, {"objects": 9}
    for name, inputs, outputs, scores, expected in [
        ("a model that depends on its input", (1, 2, 3), arrays(4, 5, 6), None, plain),
        ("all but the first are alike", (1, 2, 3), arrays(7, 7, 7), None, plain | {"alike": 2}),
        ("the same input again is no wonder", (1, 1, 1), arrays(7, 7, 7), None, plain),
        ("nothing found is no cached output", (1, 2, 3), nothing, None, plain),
        (
            "an answer without numbers counts once, and spoils no score",
            (1, 2, 3),
            no_numbers,
            [[np.nan], [0.5], []],
            plain
            | boxes
            | {"not_finite": 2, "found": 1, "highest_score": 0.5, "distinct_scores": 1},
        ),
        (
            "a detector that finds nothing has no score",
            (1, 2, 3),
            arrays(4, 5, 6),
            [[], [], []],
            plain | boxes | {"found": 0, "highest_score": None, "distinct_scores": 0},
        ),
        (
            "scores are counted apart",
            (1, 2, 3),
            arrays(4, 5, 6),
            [[0.25, 0.5, 0.25], [0.5, 0.5], []],
            plain | boxes | {"found": 5, "highest_score": 0.5, "distinct_scores": 2},
        ),
    ]:
        with table_row(name):
            assert logged(arrays(*inputs), outputs, scores, objects=9) == Answers(**expected)
    assert PredictionLog().summary(None) is None


def card(**accuracy):
    return msgspec.structs.replace(make_card("yolov8"), accuracy=accuracy)


def test_a_card_counts_for_the_same_metric_and_data_only():
    """An AP on other photographs is no reference for these."""
    for card_accuracy, is_known in [
        ({"value": 0.6}, True),
        ({"value": 0.6, "metric": "coco_ap", "dataset_sha256": SHA_DATA, "images": 80}, True),
        ({"value": 0.6, "metric": "top1"}, False),
        ({"value": 0.6, "dataset_sha256": "0" * 64}, False),
        ({"value": 0.6, "images": 5000}, False),
        ({"value": "good"}, False),
        ({}, False),
    ]:
        with table_row(card_accuracy):
            accuracy = with_needed_value(make_accuracy(value=0.58), card(**card_accuracy))
            assert accuracy.needed_value == (pytest.approx(0.54) if is_known else None)
    assert with_needed_value(None, card(value=0.6)) is None
    assert with_needed_value(make_accuracy(), None) == make_accuracy()


# Two objects on 320 x 240, which a stretched input of 64 x 64 holds: x1, y1, x2, y2 and category.
OBJECTS = (((80, 60, 160, 180), 1), ((200, 30, 300, 120), 2))
NORMALISED = np.array([box for box, _ in OBJECTS]) / [320, 240, 320, 240]


class PixelBoxes:
    """A plug-in's decoder of boxes as x1, y1, x2, y2 in pixels of the input.

    Scores and classes follow them.
    """

    def __init__(self, model, _loaded):
        self._output = model.output

    def decode(self, outputs, frame):
        corners, scores, classes = outputs[0][0], outputs[1][0], outputs[2][0].astype(np.int32)
        return boxes.select(corners, scores, classes, self._output, frame)


def scored_replay(folder, family, coordinates, scores=(0.9, 0.8)):
    """Return the result of a detector that finds these boxes in each of eight photographs.

    The boxes have these scores.
    """
    folder.mkdir()
    centred = [((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1) for (x1, y1, x2, y2), _ in OBJECTS]
    objects = [(box, category) for box, (_, category) in zip(centred, OBJECTS, strict=True)]
    data = write_photographs(
        folder, [(np.full((240, 320, 3), number, np.uint8), objects) for number in range(8)]
    )
    outputs = [
        {
            "name": name,
            "shape": [1, *np.shape(values)],
            "dtype": "float32",
            "values": np.ravel(values).tolist(),
        }
        for name, values in (
            ("boxes", coordinates),
            ("scores", scores),
            ("classes", [0, 1]),
            ("count", 2),
        )
    ]
    model = write_replay(
        folder,
        latencies_ms=[0.1],
        inputs=[{"name": "image", "shape": [1, 64, 64, 3], "dtype": "float32"}],
        outputs=outputs[: 4 if family == "tflite-postprocess" else 3],
    )
    model.with_name(f"{model.name}.toml").write_text(
        f'name = "m"\ntask = "detection"\nfamily = "{family}"\nprecision = "fp32"\n'
        '[input]\nheight = 64\nwidth = 64\nlayout = "NHWC"\n[output]\nclasses = 2\n'
    )
    return score_untimed(run_job(brief_case(model, **data), accuracy=True), lambda _: None)


def test_boxes_of_0_to_1_that_are_read_as_pixels_or_the_reverse_are_no_quiet_ap_of_0(
    tmp_path, monkeypatch
):
    """The best boxes of every photograph have no extent, which breaks a rule.

    Read as they are meant, they are right.
    """
    monkeypatch.setitem(DECODERS, "pixel-boxes", f"{__name__}:PixelBoxes")
    pixels, y_first = NORMALISED * 64, [1, 0, 3, 2]
    for name, family, coordinates, is_right in [
        ("pixels as pixels", "pixel-boxes", pixels, True),
        ("0..1 as pixels", "pixel-boxes", NORMALISED, False),
        ("0..1 as 0..1", "tflite-postprocess", NORMALISED[:, y_first], True),
        ("pixels as 0..1", "tflite-postprocess", pixels[:, y_first], False),
    ]:
        with table_row(name):
            result = scored_replay(tmp_path / name.replace(" ", "-"), family, coordinates)
            verdict = judge_outputs(Facts(result))
            assert result.accuracy.value == pytest.approx(float(is_right), abs=1e-6)
            assert verdict.rules == (() if is_right else ("boxes-without-extent",))
            assert [violation.numbers for violation in verdict.violations] == (
                [] if is_right else [{"answers_boxed": 8, "answers_without_extent": 8}]
            )
