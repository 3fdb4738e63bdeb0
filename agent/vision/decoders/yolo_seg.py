"""YOLOv8-seg, YOLO11-seg, YOLOv9-seg: [1, 4 + classes + 32, anchors], prototypes [1, 32, H/4, W/4].

In TFLite files the prototypes are [1, H/4, W/4, 32]. A mask is the sum of the prototypes weighted
by the 32 coefficients, where that sum is above 0, within the box, interpolated to the photograph's
pixels, as in Ultralytics' validation.
Source: ultralytics `utils/ops.py` (`process_mask_native`, `crop_mask`), `nn/modules/head.py`
(`Segment`), `engine/exporter.py`.
"""

from collections.abc import Sequence

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.family import PROTOTYPES, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.masks import rows_alone, split_rows, with_masks
from edgemeter.agent.vision.decoders.yolov8 import YoloV8


class YoloSeg(YoloV8):
    """Decodes rows and prototypes, in either order."""

    NAME = ""
    TASK = "segmentation"

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        return facts.head_of_task(2, 4 + PROTOTYPES)

    def __init__(self, model: Card, loaded: Loaded) -> None:
        rows, self._extra = rows_alone(model.family, loaded)
        super().__init__(model, rows)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        rows, prototypes = split_rows(self._family, [output.shape for output in outputs])
        detections, coefficients, _ = self._select(outputs[rows], frame)
        return with_masks(detections, coefficients, outputs[prototypes], frame)
