"""Boxes and scores as two outputs are decoded to the same objects in each convention.

The conventions are those of exporters, recognised without a card.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.recognition.recognise import card_for
from edgemeter.agent.vision import decoders
from tests.fixtures.rows import table_row
from tests.fixtures.vision_factory import make_card, make_loaded, same_size, tensors

HEIGHT, WIDTH, CLASSES = 96, 160, 5
PICTURE = tensors((1, 3, HEIGHT, WIDTH))
OBJECTS = np.array([[20, 12, 50, 40], [60, 30, 150, 90], [4, 2, 140, 94]], np.float32)
LABELS, SCORES = [1, 4, 0], [0.9, 0.8, 0.7]
NAMES = [f"thing {number}" for number in range(CLASSES)]
# Cells of the strides 8, 16 and 32; and a number that is no grid's.
GRID, PRIORS = 12 * 20 + 6 * 10 + 3 * 5, 1500


def tables(count, form="corners", unit="parts", background=None, *, are_logits=False):
    """Return boxes [1, count, 4] and scores [1, count, columns] of the objects.

    The other boxes lie all over the picture and find nothing.
    """
    draw = np.random.default_rng(5)
    low = draw.random((count, 2)) * [120, 60]
    boxes = np.concatenate([low, low + draw.uniform(4, 36, (count, 2))], axis=1)
    scores = np.full((count, CLASSES), 2e-4)
    for number, (box, label) in enumerate(zip(OBJECTS, LABELS, strict=True)):
        boxes[7 * number + 3], scores[7 * number + 3, label] = box, SCORES[number]
    if background is not None:
        scores = np.insert(
            scores, 0 if background == "first" else CLASSES, 1 - scores.sum(axis=1), axis=1
        )
    if form == "centres":
        boxes = np.concatenate(
            [(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], axis=1
        )
    if unit == "parts":
        boxes = boxes / [WIDTH, HEIGHT, WIDTH, HEIGHT]
    if are_logits:
        # Adding a constant to a row does not change its softmax.
        scores = np.log(scores / (1 - scores)) if background is None else np.log(scores) + 9
    return boxes[None].astype(np.float32), scores[None].astype(np.float32)


def recognised(outputs, name="best.onnx", metadata=None, categories=()):
    loaded = make_loaded(tensors(*(output.shape for output in outputs)), PICTURE, metadata)
    card, guesses = card_for(Path("absent") / name, loaded, categories)
    return card, [*map(str, guesses)]


def check(card, outputs):
    """Check that the three objects come best first, with nothing else above a hundredth."""
    detections = decoders.create(
        card, make_loaded(tensors(*(output.shape for output in outputs)))
    ).decode(outputs, same_size(WIDTH, HEIGHT))
    are_sure = detections.scores > 0.01
    assert detections.boxes[are_sure] == pytest.approx(OBJECTS, abs=1e-3)
    assert (detections.classes[are_sure].tolist(), detections.scores[are_sure].tolist()) == (
        LABELS,
        pytest.approx(SCORES, abs=1e-4),
    )


def test_every_convention_is_read_by_its_values():
    """Corners or centres, pixels or parts, and probabilities or logits are told apart.

    The background may be first, last or absent, the outputs in either order, and the rows few or
    many.
    """
    for count, form, unit, background, are_logits, is_reversed in product(
        (100, 290, GRID, PRIORS),
        ("corners", "centres"),
        ("parts", "pixels"),
        (None, "first", "last"),
        (False, True),
        (False, True),
    ):
        outputs = tables(count, form, unit, background, are_logits=are_logits)
        with table_row(count, form, unit, background, are_logits, is_reversed):
            outputs = outputs[::-1] if is_reversed else outputs
            card, _ = recognised(outputs, categories=NAMES)
            assert card.output.classes == CLASSES
            check(card, outputs)


def test_the_axes_may_be_in_any_order():
    """[1, 4, n] and [1, classes, n] are the same, and YOLOv4 gives [1, n, 1, 4]."""
    boxes, scores = tables(PRIORS)
    for outputs in (
        [boxes.transpose(0, 2, 1), scores.transpose(0, 2, 1)],
        [boxes[:, :, None], scores],
        [scores.transpose(0, 2, 1), boxes],
    ):
        card, _ = recognised(outputs, categories=NAMES)
        check(card, outputs)


def test_a_grid_is_prepared_as_yolo_nas_and_other_rows_as_jetsons_ssd():
    """Without labels or annotations a grid has no background, and other rows have one.

    Each assumption is reported with its keys.
    """
    card, guesses = recognised(tables(GRID, unit="pixels"), "yolo_nas_s.onnx")
    assert (card.family, card.output.classes, card.output.nms_iou, card.input.resize) == (
        "boxes-scores",
        CLASSES,
        0.7,
        "letterbox",
    )
    assert (card.input.mean[0], card.input.sd[0]) == (0, 255)
    assert any("output.labels" in guess for guess in guesses)
    card, guesses = recognised(tables(PRIORS, background="first"), "ssd.onnx")
    assert (card.family, card.output.classes, card.output.nms_iou, card.input.resize) == (
        "boxes-scores",
        CLASSES,
        0.45,
        "stretch",
    )
    assert (card.input.mean[0], card.input.sd[0]) == (127, 128)
    assert all(
        any(key in guess for guess in guesses)
        for key in ("`family` and output.classes", "output.labels", "input.mean")
    )


def test_labels_count_the_classes():
    """Labels may include the background, which is no class, or leave it out."""
    for labels, offset in ((NAMES, 0), (["BACKGROUND", *NAMES], 1)):
        outputs = tables(PRIORS, background="first")
        card, guesses = recognised(outputs, metadata={"names": str(labels)})
        assert (card.output.classes, card.output.label_offset) == (CLASSES, offset)
        assert not any("output.classes" in guess for guess in guesses)
        check(card, outputs)


def test_a_background_that_no_column_shows_is_an_error():
    """A card with one class too few would shift all the others."""
    outputs = tables(PRIORS)
    with pytest.raises(ConfigError, match=r"none of 5 scores is a background.*output\.classes"):
        check(make_card("boxes-scores", classes=CLASSES - 1, nms_iou=0.5), outputs)
