"""Conformance checks for decoders (the contract: `edgemeter.agent.vision.decoders.Decoder`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.conformance.promise import public_imports, refused, require
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision import decoders
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame


@dataclass(frozen=True, slots=True)
class DecoderCase:
    """A card whose `family` is the decoder, what a runtime finds of its model, and one query's outputs.

    `expected` are the objects in `outputs`, best first; None where only the other promises are checked.
    """

    card: Card
    loaded: Loaded
    outputs: tuple[Floats, ...]
    frame: PhotoFrame
    expected: Detections | None = None


Check = Callable[[DecoderCase, Path], None]


def finds_the_known_objects(case: DecoderCase, _folder: Path) -> None:
    """Boxes to a hundredth of a pixel, scores to 1e-5, classes, in order."""
    if case.expected is None:
        return
    detections = decoders.create(case.card, case.loaded).decode(case.outputs, case.frame)
    require(
        np.array_equal(detections.classes, case.expected.classes), f"classes are {detections.classes}, {case.expected.classes} is right"
    )
    require(np.allclose(detections.boxes, case.expected.boxes, atol=0.01), f"boxes are {detections.boxes}, {case.expected.boxes} is right")
    require(
        np.allclose(detections.scores, case.expected.scores, atol=1e-5), f"scores are {detections.scores}, {case.expected.scores} is right"
    )


def decoding_keeps_nothing_and_changes_nothing(case: DecoderCase, _folder: Path) -> None:
    """The same outputs give the same objects again, and are as they were."""
    decoder = decoders.create(case.card, case.loaded)
    outputs = [output.copy() for output in case.outputs]
    first, second = decoder.decode(outputs, case.frame), decoder.decode(outputs, case.frame)
    require(all(map(np.array_equal, outputs, case.outputs)), "decoding does not change the outputs")
    require(np.array_equal(first.boxes, second.boxes) and np.array_equal(first.scores, second.scores), "decoding keeps nothing")


def a_broken_model_gives_no_box_that_is_no_number(case: DecoderCase, _folder: Path) -> None:
    """Dead, overflown or exploded outputs end in nothing, in finite boxes, or in one line: no crash and no warning."""
    for value in (0.0, np.nan, np.inf, -np.inf, 1e30, -1e30):
        outputs = [np.full(output.shape, value, np.float32) for output in case.outputs]
        try:
            detections = decoders.create(case.card, case.loaded).decode(outputs, case.frame)
        except ConfigError:
            continue
        require(np.isfinite(detections.boxes).all(), f"outputs of {value} give boxes that are finite")
        require(not np.isnan(detections.scores).any(), f"outputs of {value} give scores that are numbers")
        require(detections.boxes.dtype == detections.scores.dtype == np.float32, "boxes and scores are float32")
        require(detections.classes.dtype == np.int32, "classes are int32")
        require(
            detections.boxes.shape == (len(detections.scores), 4) and len(detections.classes) == len(detections.scores), "boxes are [n, 4]"
        )


def outputs_that_do_not_fit_are_refused_before_measuring(case: DecoderCase, _folder: Path) -> None:
    """A wrong model is refused when its decoder is constructed."""
    wrong = tuple(replace(info, shape=(1, 5, 5)) for info in case.loaded.outputs[:1])
    with refused("one output of [1, 5, 5]", ConfigError):
        decoders.create(case.card, replace(case.loaded, outputs=wrong))


def open_shapes_wait_for_the_first_query(case: DecoderCase, _folder: Path) -> None:
    """A dynamic model is taken as it comes; what does not fit is refused at the first query."""
    loosened = tuple(replace(info, shape=(None,) * len(info.shape)) for info in case.loaded.outputs)
    waiting = decoders.create(case.card, replace(case.loaded, outputs=loosened))
    waiting.decode([np.zeros(output.shape, np.float32) for output in case.outputs], case.frame)
    with refused("outputs of [1, 5, 5]", ConfigError):
        waiting.decode([np.zeros((1, 5, 5), np.float32)], case.frame)


CHECKS: tuple[Check, ...] = (
    public_imports("decoder", decoders.DECODERS, decoders.ENTRY_POINTS, lambda case: case.card.family),
    finds_the_known_objects,
    decoding_keeps_nothing_and_changes_nothing,
    a_broken_model_gives_no_box_that_is_no_number,
    outputs_that_do_not_fit_are_refused_before_measuring,
    open_shapes_wait_for_the_first_query,
)
