"""YOLO26-seg and Ultralytics segmentation exports with `nms=True`: [1, n, 6 + 32], prototypes.

They are not suppressed further. The prototypes are the same as in `yolo-seg`.
Source: ultralytics `nn/modules/head.py` (`Segment`, `Detect.postprocess`), `engine/exporter.py`.
"""

from collections.abc import Sequence

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.family import PROTOTYPES, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.masks import rows_alone, split_rows, with_masks
from edgemeter.agent.vision.decoders.yolo26 import COLUMNS, Yolo26


class Yolo26Seg(Yolo26):
    """Decodes rows and prototypes, in either order."""

    NAME = ""
    TASK = "segmentation"

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        return facts.list_of_task(2, COLUMNS + PROTOTYPES)

    def __init__(self, model: Card, loaded: Loaded) -> None:
        rows, self._extra = rows_alone(model.family, loaded)
        super().__init__(model, rows)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        rows, prototypes = split_rows(self._family, [output.shape for output in outputs])
        detections, coefficients, _ = self._select([outputs[rows]], frame)
        return with_masks(detections, coefficients, outputs[prototypes], frame)
