"""YOLO26-pose and Ultralytics pose exports with `nms=True`: [1, n, 6 + 3 x keypoints].

They are not suppressed further. Keypoints are the same as in `yolo-pose`.
Source: ultralytics `nn/modules/head.py` (`Pose`, `Detect.postprocess`).
"""

from collections.abc import Sequence

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.family import KEYPOINTS, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.masks import with_keypoints
from edgemeter.agent.vision.decoders.yolo26 import COLUMNS, Yolo26


class Yolo26Pose(Yolo26):
    """Decodes the one tensor."""

    NAME = ""
    TASK = "pose"
    _extra = 3 * KEYPOINTS

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        return facts.list_of_task(1, COLUMNS + cls._extra, classes=1)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        return with_keypoints(*self._select(outputs, frame), frame)
