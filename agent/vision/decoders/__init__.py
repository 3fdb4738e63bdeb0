"""Families of models that find objects: the protocol, and the table of names. The file of a family says everything about it.

That is how its outputs look, so that a model without a card is recognised; how its photographs are prepared; how its outputs are decoded.
Others register theirs through the entry point group `edgemeter.decoders`; a card names it as `family`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.plugins import find_plugin, plugin_names
from edgemeter.agent.contract.model_card import Card, Resize
from edgemeter.agent.runtimes import Loaded, TensorInfo

Floats = NDArray[np.float32]
Shape = tuple[int | None, ...]
Triple = tuple[float, float, float]

DECODERS: Mapping[str, str] = {
    "detr": "edgemeter.agent.vision.decoders.detr:Detr",
    "yolov8-heads": "edgemeter.agent.vision.decoders.yolov8_heads:YoloV8Heads",
    "boxes-scores": "edgemeter.agent.vision.decoders.boxes_scores:BoxesScores",
    "detr-lists": "edgemeter.agent.vision.decoders.detr_lists:DetrLists",
    "edgemeter": "edgemeter.agent.vision.decoders.edgemeter_grid:EdgemeterGrid",
    "movenet": "edgemeter.agent.vision.decoders.movenet:MoveNet",
    "tflite-postprocess": "edgemeter.agent.vision.decoders.tflite_postprocess:TflitePostprocess",
    "torchvision": "edgemeter.agent.vision.decoders.torchvision:Torchvision",
    "yolo-pose": "edgemeter.agent.vision.decoders.yolov8:YoloPose",
    "yolo-seg": "edgemeter.agent.vision.decoders.yolo_seg:YoloSeg",
    "yolo26": "edgemeter.agent.vision.decoders.yolo26:Yolo26",
    "yolo26-seg": "edgemeter.agent.vision.decoders.yolo_seg:Yolo26Seg",
    "yolov5": "edgemeter.agent.vision.decoders.yolov5:YoloV5",
    "yolov8": "edgemeter.agent.vision.decoders.yolov8:YoloV8",
    "yolox": "edgemeter.agent.vision.decoders.yolox:YoloX",
}
ENTRY_POINTS = "edgemeter.decoders"
COCO_CLASSES = 80
# More rows than this are cells of a grid, or priors, not a list of objects.
MOST_QUERIES = 1000
# Squares of it, areas and products, stay within float32.
_LARGEST = np.float32(1e9)


@dataclass(frozen=True, slots=True)
class PhotoFrame:
    """How one photograph was put into the model's input.

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
    """The objects found in one photograph, best first.

    boxes: float32 [n, 4] as x1, y1, x2, y2 in pixels of the photograph, clipped to it where the family's own evaluation does;
    scores: float32 [n], 0..1; classes: int32 [n], the model's own class index, 0-based (background not counted).
    masks: one of each object, of a family that segments. keypoints: float32 [n, points, 3] as x, y in pixels of the photograph and score,
    of a family that finds poses.
    """

    boxes: Floats
    scores: Floats
    classes: NDArray[np.int32]
    masks: tuple[Mask, ...] | None = None
    keypoints: Floats | None = None


@dataclass(frozen=True, slots=True)
class Pictures:
    """How photographs become the input of a family, and what its boxes go through: defaults of the card that is written for a model.

    real = (pixel - mean) / sd, pixels 0..255, in the order of the input's colours; `mean` None: the input and the framework decide.
    `side` is the usual height and width where neither the file nor its name has one; `doubt` is what was assumed, or None.
    """

    resize: Resize = "letterbox"
    mean: Triple | None = (0.0, 0.0, 0.0)
    sd: Triple = (255.0, 255.0, 255.0)
    colour: Any = "RGB"
    pad: int = 114
    side: int = 640
    nms_iou: float | None = None
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Recognition:
    """The answer of a family to a model that it recognises; `doubts` are what the file does not confirm, each with the key that settles it.

    `classes` are counted without a background. `family_doubt` is why it may be another family or task, or None.
    """

    classes: int
    doubts: tuple[str, ...] = ()
    family_doubt: str | None = None
    task: str = "detection"


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """The facts about a model that has no card.

    `size` is height and width of its input, None where they are open. `named` is the family in the name of its file. `labels`, `task`,
    `head` (the class of an Ultralytics model's last layer) and `is_end_to_end` are what the file states. `categories` is how many the
    annotations have.
    """

    name: str
    inputs: Sequence[TensorInfo] = ()
    outputs: Sequence[TensorInfo] = ()
    size: tuple[int, int] | None = None
    named: str | None = None
    labels: tuple[str, ...] = ()
    task: str | None = None
    head: str | None = None
    is_end_to_end: bool | None = None
    categories: int | None = None

    @property
    def known_classes(self) -> int | None:
        """Return how many classes the file names, or else the annotations have."""
        return len(self.labels) or self.categories

    @property
    def shapes(self) -> list[Shape]:
        """Return the shapes of the outputs."""
        return [info.shape for info in self.outputs]

    def unnamed(self, classes: int, taken_as: str = "") -> tuple[str, ...]:
        """Return the doubt about classes that the file does not name, with what they are taken as; none where it names some."""
        if self.labels:
            return ()
        assumption = taken_as or ("those of COCO" if classes == COCO_CLASSES else "")
        assumption = f", and are taken as {assumption}" if assumption else ""
        return (f"its {classes} classes have no names{assumption}; set output.classes and output.labels",)


class Decoder(Protocol):
    """Turns the outputs of one query (batch 1) into detections; stateless but for what its constructor computed.

    Constructed with the card and what the runtime found; raises ConfigError there when the outputs do not fit the family. It gets numbers
    of a sensible size only: NaN is read as 0 and all else cut to +-1e9; unless it has a true `takes_invalid`, because it selects few values
    of a large tensor and tames those itself.
    """

    def __init__(self, model: Card, loaded: Loaded) -> None: ...

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections in `outputs` (dequantised, float32, in the model's order), NMS applied where the family needs it."""


class Family:
    """The base of our decoders: what a family states of itself, so that models without a card are recognised.

    The families are asked in the order of the table. `NAME` is a regular expression of file names in lower case, "" where none tells.
    """

    NAME: ClassVar[str] = ""
    PICTURES: ClassVar[Pictures] = Pictures()

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return what the model is, None where its outputs are not of this family."""
        del facts
        return None

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return how photographs are prepared for a model that was recognised."""
        del facts
        return cls.PICTURES

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output, self._size = model.output, (model.image.height, model.image.width)
        shapes = [info.shape for info in loaded.outputs]
        if shapes and not any(None in shape for shape in shapes):
            self._check(shapes)

    def _check(self, shapes: Sequence[Shape]) -> Any:
        """Raise ConfigError where outputs are not of this family: those that the file declares, if no size is open, and each query's."""


def blanks(loaded: Loaded) -> list[Floats]:
    """Return zeros in the shapes of the declared outputs, to try a layout on before the first query; none where a size is open."""
    shapes = [tuple(size for size in info.shape if size is not None) for info in loaded.outputs]
    if any(len(shape) != len(info.shape) for shape, info in zip(shapes, loaded.outputs, strict=True)):
        return []
    return [np.broadcast_to(np.float32(0), shape) for shape in shapes]


def names() -> list[str]:
    """Return the names of all known decoders, ours first."""
    return plugin_names(DECODERS, ENTRY_POINTS)


def create(model: Card, loaded: Loaded) -> Decoder:
    """Return the decoder of the card's family.

    Raises:
        ConfigError: no decoder has that name, or the outputs do not fit it.
        UnavailableError: it is another package's, and cannot be imported.
    """
    decoder: Decoder = find_plugin("decoder", DECODERS, model.family, ENTRY_POINTS)(model, loaded)
    return decoder if getattr(decoder, "takes_invalid", False) else _Guarded(decoder)


class _Guarded:
    """Keeps invalid values from a decoder; the verdict reports them."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        return self._decoder.decode([tamed(output) for output in outputs], frame)


def tamed(values: Floats) -> Floats:
    """Return the values with 0 for NaN, none beyond +-1e9; sound ones as they are. The sum of squares is the fastest check of all."""
    if math.isfinite(np.vdot(values, values)):
        return values
    return np.clip(np.nan_to_num(values, nan=0.0), -_LARGEST, _LARGEST)
