"""YOLOv8-pose, YOLO11-pose: [1, 4 + classes + 3 x keypoints, anchors], COCO's 17 keypoints.

The objects are people. A keypoint is x, y (in pixels or 0..1, like the boxes) and score; the
sigmoid is in the graph. Suppression is that of the boxes.
Source: ultralytics `nn/modules/head.py` (`Pose.kpts_decode`).
"""

from collections.abc import Sequence

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.family import KEYPOINTS, Recognition, UnknownModel
from edgemeter.agent.vision.decoders.masks import with_keypoints
from edgemeter.agent.vision.decoders.yolov8 import YoloV8


class YoloPose(YoloV8):
    """Decodes the one tensor."""

    NAME = ""
    TASK = "pose"
    _extra = 3 * KEYPOINTS

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        return facts.head_of_task(1, 4 + cls._extra)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        return with_keypoints(*self._select(outputs[0], frame), frame)
