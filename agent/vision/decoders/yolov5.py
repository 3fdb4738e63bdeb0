"""YOLOv5 and YOLOv7: [1, anchors, 5 + classes] with three anchors per cell, decoded inside the model.

A row is centre x, centre y, width, height, objectness, class scores; boxes are pixels of the input, 0..1 in TFLite files. The score
of a class is objectness x class score; every class of a row above the threshold is a candidate of its own.
Source: ultralytics/yolov5 `utils/general.py` (`non_max_suppression`, multi_label) and `export.py` (TFLite divides by the size).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision import boxes
from edgemeter.agent.vision.decoder import Detections, Floats, Frame


class YoloV5:
    """Decodes the first output; further ones (the raw maps that some exports keep) are left alone."""

    def __init__(self, model: card.Card, loaded: Loaded) -> None:
        self._output = model.output
        for info in loaded.outputs[:1]:
            if len(info.shape) == 3 and None not in info.shape:
                self._check(tuple(size or 0 for size in info.shape))

    def decode(self, outputs: Sequence[Floats], frame: Frame) -> Detections:
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
        wanted = f"[1, anchors, {'5 + classes' if classes is None else 5 + classes}]"
        message = (
            f"family yolov5 needs an output of shape {wanted}, the model gives {list(shape)}: correct `classes` or `family` in its card"
        )
        raise ConfigError(message)
