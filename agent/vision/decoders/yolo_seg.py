"""YOLO's segmentation heads (YOLOv8-seg, YOLO11-seg, YOLOv9-seg; YOLO26-seg and what Ultralytics exports with `nms=True`).

Two outputs: rows as the detector's with 32 coefficients behind, [1, 4 + classes + 32, anchors] or end to end [1, n, 6 + 32], and the
prototypes [1, 32, H/4, W/4] (TFLite: [1, H/4, W/4, 32]). A mask is the sum of the prototypes by its coefficients, where that is above 0,
within the box; it is interpolated to the photograph's pixels, as Ultralytics' validation does for COCO's results.
Source: ultralytics `utils/ops.py` (`process_mask_native`, `crop_mask`), `nn/modules/head.py` (`Segment`), `engine/exporter.py`.
"""

from collections.abc import Sequence
from dataclasses import replace

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, tamed
from edgemeter.agent.vision.decoders.boxes import mismatch, photo_mask
from edgemeter.agent.vision.decoders.yolo26 import Yolo26
from edgemeter.agent.vision.decoders.yolov8 import YoloV8

# Pixels of the input that a cell of the prototypes covers, to each side.
_CELL_PX = 4
PROTOTYPES = 32


def _split(family: str, outputs: Sequence[tuple[int | None, ...]]) -> tuple[int, int]:
    """Return which output holds the rows, and which the prototypes."""
    ranks = [len(shape) for shape in outputs]
    if sorted(ranks) != [3, 4]:
        raise mismatch(family, "rows of three axes and prototypes of four", [list(shape) for shape in outputs])
    return ranks.index(3), ranks.index(4)


def _prototypes(tensor: Floats, frame: PhotoFrame) -> Floats:
    """Return the prototypes, float32 [count, rows, columns], of either layout."""
    sides = (-(-frame.input_height // _CELL_PX), -(-frame.input_width // _CELL_PX))
    planar, channels_last = tensor.shape[2:] == sides, tensor.shape[1:3] == sides
    if tensor.shape[0] != 1 or not (planar or channels_last):
        raise ConfigError(f"the prototypes have the shape {list(tensor.shape)}, not {sides[0]} x {sides[1]} cells: correct the card")
    prototypes: Floats = tensor[0] if planar else tensor[0].transpose(2, 0, 1)
    return tamed(prototypes)


def _with_masks(detections: Detections, coefficients: Floats, prototypes: Floats, frame: PhotoFrame) -> Detections:
    """Return the detections with their masks; `coefficients` are float32 [n, count]."""
    count = len(prototypes)
    if coefficients.shape[1] != count:
        raise ConfigError(f"an object has {coefficients.shape[1]} coefficients for {count} prototypes: correct output.classes in the card")
    logits = (coefficients @ prototypes.reshape(count, -1)).reshape(-1, *prototypes.shape[1:])
    masks = tuple(photo_mask(logit, box, frame, 0.0) for logit, box in zip(logits, detections.boxes, strict=True))
    return replace(detections, masks=masks)


def _rows_of(family: str, loaded: Loaded) -> tuple[Loaded, int]:
    """Return what was loaded with the rows as its only output, and how many prototypes there are (32 where that is open)."""
    if not loaded.outputs:
        return loaded, PROTOTYPES
    rows, prototypes = _split(family, [info.shape for info in loaded.outputs])
    shape = loaded.outputs[prototypes].shape
    sizes = [size for size in (shape[1], shape[3]) if size is not None]
    return replace(loaded, outputs=(loaded.outputs[rows],)), PROTOTYPES if PROTOTYPES in sizes or not sizes else min(sizes)


class YoloSeg(YoloV8):
    """Decodes rows and prototypes; suppression is that of the detector."""

    FAMILY = "yolo-seg"

    def __init__(self, model: Card, loaded: Loaded) -> None:
        rows, self._extra = _rows_of(self.FAMILY, loaded)
        super().__init__(model, rows)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections with masks; `outputs` are rows and prototypes in either order, float32."""
        rows, prototypes = _split(self.FAMILY, [output.shape for output in outputs])
        detections, extra = self._found(outputs[rows], frame)
        return _with_masks(detections, extra, _prototypes(outputs[prototypes], frame), frame)


class Yolo26Seg(Yolo26):
    """Decodes end-to-end rows and prototypes, without further suppression."""

    FAMILY = "yolo26-seg"

    def __init__(self, model: Card, loaded: Loaded) -> None:
        rows, self._extra = _rows_of(self.FAMILY, loaded)
        super().__init__(model, rows)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections with masks; `outputs` are rows and prototypes in either order, float32."""
        rows, prototypes = _split(self.FAMILY, [output.shape for output in outputs])
        detections, extra = self._found([outputs[rows]], frame)
        return _with_masks(detections, extra, _prototypes(outputs[prototypes], frame), frame)
