"""YOLOv5 and YOLOv7, three anchors per cell, decoded inside the model: [1, anchors, 5 + classes].

A row is centre x, centre y, width, height, objectness, class scores; boxes are pixels of the input, 0..1 in TFLite files.
The score of a class is objectness x class score; every class of a row above the threshold is a candidate of its own.
Source: ultralytics/yolov5 `utils/general.py` (`non_max_suppression`, multi_label), `export.py` (TFLite divides by the size).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes
from edgemeter.agent.vision.decoders.boxes import OneTensor, mismatch


class YoloV5(OneTensor):
    """Decodes the first output; further ones (the raw maps that some exports keep) are left alone."""

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; the first of `outputs` is the tensor, float32."""
        tensor = outputs[0]
        self._check(tensor.shape)
        rows, threshold = tensor[0], self._output.score_threshold
        is_normalised = rows[:, 0].max(initial=0.0) <= boxes.LARGEST_NORMALISED
        # A class score never exceeds 1, so a row whose objectness is below the threshold has no candidate: most rows end here.
        rows = rows[rows[:, 4] > threshold]
        scores = rows[:, 5:] * rows[:, 4:5]
        anchors, classes = np.nonzero(scores > threshold)
        centred = rows[anchors, :4]
        if is_normalised:
            centred = centred * np.array([frame.input_width, frame.input_height] * 2, np.float32)
        return boxes.select(boxes.corners(centred), scores[anchors, classes], classes.astype(np.int32), self._output, frame)

    def _check(self, shape: tuple[int, ...]) -> None:
        classes = self._output.classes
        if len(shape) == 3 and shape[0] == 1 and shape[2] > 5 and classes in (None, shape[2] - 5):
            return
        raise mismatch("yolov5", f"an output of shape [1, anchors, {self._values(5)}]", list(shape), "`classes` or `family`")
