"""MoveNet: 17 keypoints of one person ([1, 1, 17, 3], Lightning and Thunder) or of six ([1, 6, 56], MultiPose).

A keypoint is y, x (0..1 of the input) and score. A person of MultiPose is 17 keypoints, then ymin, xmin, ymax, xmax and a score; of the
others the score is the mean of its keypoints', and the box lies around them.
Source: the model cards of MoveNet SinglePose and MultiPose, sections "Outputs".
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes
from edgemeter.agent.vision.decoders.boxes import KEYPOINTS

_OF_ONE, _OF_SEVERAL = (1, KEYPOINTS, 3), 3 * KEYPOINTS + 5


class MoveNet:
    """Decodes the one tensor of either form."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        if loaded.outputs and None not in (shape := loaded.outputs[0].shape):
            _is_of_one(tuple(size or 0 for size in shape))

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the people found; `outputs` is the one tensor, float32."""
        tensor = outputs[0]
        if _is_of_one(tensor.shape):
            points = tensor.reshape(1, KEYPOINTS, 3)
            scores = points[..., 2].mean(axis=1)
        else:
            points = tensor[0, :, : 3 * KEYPOINTS].reshape(-1, KEYPOINTS, 3)
            scores = tensor[0, :, -1]
        size = np.array([frame.input_width, frame.input_height, 1], np.float32)
        places = boxes.keypoints_in_photo(points[..., [1, 0, 2]] * size, frame)
        if _is_of_one(tensor.shape):
            around = boxes.box_around(places)
        else:
            corners = tensor[0, :, 3 * KEYPOINTS : -1][:, [1, 0, 3, 2]]
            around = boxes.to_photo(corners * np.array([frame.input_width, frame.input_height] * 2, np.float32), frame)
        above = np.flatnonzero(scores > self._output.score_threshold)
        best = above[np.argsort(-scores[above], kind="stable")][: self._output.max_detections]
        return Detections(around[best], scores[best].astype(np.float32), np.zeros(len(best), np.int32), keypoints=places[best])


def _is_of_one(shape: tuple[int, ...]) -> bool:
    """Return whether the output is that of one person, not of several."""
    if shape[-3:] == _OF_ONE and len(shape) == 4:
        return True
    if len(shape) == 3 and shape[0] == 1 and shape[2] == _OF_SEVERAL:
        return False
    raise boxes.mismatch("movenet", f"an output of shape [1, 1, {KEYPOINTS}, 3] or [1, n, {_OF_SEVERAL}]", list(shape))
