"""YOLO's pose head (YOLOv8-pose, YOLO11-pose): [1, 4 + classes + 3 x keypoints, anchors], the boxes as the detector's.

A keypoint is x, y and score (the sigmoid is in the graph): pixels of the input in ONNX and TorchScript files, 0..1 in TFLite files, as the
boxes are. Suppression is that of the boxes.
Source: ultralytics `nn/modules/head.py` (`Pose.kpts_decode`), `utils/nms.py`, `engine/exporter.py`.
"""

from collections.abc import Sequence
from dataclasses import replace

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame
from edgemeter.agent.vision.decoders.boxes import keypoints_in_photo
from edgemeter.agent.vision.decoders.yolov8 import YoloV8

# COCO's people.
KEYPOINTS = 17


class YoloPose(YoloV8):
    """Decodes the one tensor; without a class count on the card there is one class, people."""

    FAMILY = "yolo-pose"
    _extra = 3 * KEYPOINTS

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections with keypoints; `outputs` is the one tensor, float32."""
        detections, extra = self._found(outputs[0], frame, scaled=range(0, self._extra, 3))
        return replace(detections, keypoints=keypoints_in_photo(extra.reshape(-1, KEYPOINTS, 3), frame))
