"""Families of models that detect objects: the protocol, and the table of names.

A family is one file.

It recognises models without a card by their outputs, prepares photographs, and decodes outputs.
Packages register families in the entry point group `edgemeter.decoders`; a card names one as
`family`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded

Floats = NDArray[np.float32]
Shape = tuple[int | None, ...]

# In the order in which they try to recognise a model without a card.
DECODERS: Mapping[str, str] = {
    "yolo26-seg": "edgemeter.agent.vision.decoders.yolo26_seg:Yolo26Seg",
    "yolo-seg": "edgemeter.agent.vision.decoders.yolo_seg:YoloSeg",
    "yolo26-pose": "edgemeter.agent.vision.decoders.yolo26_pose:Yolo26Pose",
    "yolo-pose": "edgemeter.agent.vision.decoders.yolo_pose:YoloPose",
    "detr-lists": "edgemeter.agent.vision.decoders.detr_lists:DetrLists",
    "tflite-postprocess": "edgemeter.agent.vision.decoders.tflite_postprocess:TflitePostprocess",
    "torchvision": "edgemeter.agent.vision.decoders.torchvision:Torchvision",
    "edgemeter": "edgemeter.agent.vision.decoders.edgemeter_grid:EdgemeterGrid",
    "yolov8-heads": "edgemeter.agent.vision.decoders.yolov8_heads:YoloV8Heads",
    "yolo26": "edgemeter.agent.vision.decoders.yolo26:Yolo26",
    "rt-detr": "edgemeter.agent.vision.decoders.rt_detr:RtDetr",
    "detr": "edgemeter.agent.vision.decoders.detr:Detr",
    "boxes-scores": "edgemeter.agent.vision.decoders.boxes_scores:BoxesScores",
    "yolov8": "edgemeter.agent.vision.decoders.yolov8:YoloV8",
    "yolov5": "edgemeter.agent.vision.decoders.yolov5:YoloV5",
    "yolox": "edgemeter.agent.vision.decoders.yolox:YoloX",
}
ENTRY_POINTS = "edgemeter.decoders"
# Its squares, such as areas, stay within float32.
_LARGEST = np.float32(1e9)


@dataclass(frozen=True, slots=True)
class PhotoFrame:
    """The position of a photograph in the model's input.

    input_x = photo_x * scale_x + offset_x (pixels of the input), likewise y; sizes in pixels.
    """

    photo_width: int
    photo_height: int
    input_width: int
    input_height: int
    scale_x: float
    scale_y: float
    offset_x: float
    offset_y: float


@dataclass(frozen=True, slots=True)
class Mask:
    """The pixels of one object: bool [height, width], at `left`, `top` of the photograph."""

    left: int
    top: int
    pixels: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Detections:
    """The detected objects in one photograph, best first.

    boxes: float32 [n, 4] as x1, y1, x2, y2 in pixels of the photograph, clipped to it if the
    family's own evaluation does so. scores: float32 [n], 0..1.
    classes: int32 [n], the model's class index, 0-based, without a background.
    masks: one of each object, if the family segments.
    keypoints: float32 [n, points, 3] as x, y in pixels of the photograph and score, if the family
    has poses.
    """

    boxes: Floats
    scores: Floats
    classes: NDArray[np.int32]
    masks: tuple[Mask, ...] | None = None
    keypoints: Floats | None = None


class Decoder(Protocol):
    """Turns the outputs of one query (batch 1) into detections, without state between queries.

    The constructor raises ConfigError if the outputs do not fit the family. In the outputs NaN is
    replaced by 0, and values are clipped to +-1e9. A decoder with a true `takes_invalid` gets them
    unchanged, because it selects few values of a large tensor and clips those itself.
    """

    def __init__(self, model: Card, loaded: Loaded) -> None: ...

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections in `outputs`, after NMS if the family needs it.

        The outputs are dequantised, float32, and in the model's order.
        """


def names() -> list[str]:
    """Return the names of all known decoders, ours first."""
    return plugin_names(DECODERS, ENTRY_POINTS)


def family_of(name: str) -> Any:
    """Return the family of this name; raises ConfigError and UnavailableError as `create`."""
    return find_plugin("decoder", DECODERS, name, ENTRY_POINTS)


def create(model: Card, loaded: Loaded) -> Decoder:
    """Return the decoder of the card's family.

    Raises:
        ConfigError: no decoder has that name, or the outputs do not fit it.
        UnavailableError: its package cannot be imported.
    """
    decoder: Decoder = family_of(model.family)(model, loaded)
    return decoder if getattr(decoder, "takes_invalid", False) else _Guarded(decoder)


class _Guarded:
    """Replaces invalid values for a decoder; the verdict reports them."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        return self._decoder.decode([tamed(output) for output in outputs], frame)


def tamed(values: Floats) -> Floats:
    """Return the values with 0 for NaN, clipped to +-1e9.

    The same array is returned if all values are finite, which the sum of squares shows fastest.
    """
    if math.isfinite(np.vdot(values, values)):
        return values
    return np.clip(np.nan_to_num(values, nan=0.0), -_LARGEST, _LARGEST)
