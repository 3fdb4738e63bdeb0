"""DETR and its kin (RT-DETR, D-FINE, RF-DETR, Deformable DETR, YOLOS): a fixed set of queries, each a box and class scores.

Two outputs, in any order: boxes [1, queries, 4] as centre x, centre y, width, height in 0..1, and scores [1, queries, n]. Or one, as
Ultralytics exports RT-DETR: [1, queries, 4 + classes], since 2026 [1, n, 6] with the score and the class of each.
With n = classes + 1 the last column is "no object" and a softmax chooses one class per query (DETR, YOLOS); with n = classes each
stands for itself (sigmoid). Scores that are 0..1 have been through it in the graph.
Source: huggingface/transformers `image_processing_detr.py`, `image_processing_rt_detr.py` (`post_process_object_detection`);
ultralytics `nn/modules/head.py` (`RTDETRDecoder`).
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, blanks, boxes
from edgemeter.agent.vision.decoders.boxes import mismatch, sigmoid


class Detr:
    """Decodes boxes and scores; further outputs (encoder states, masks) are left alone."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output = model.output
        if declared := blanks(loaded):
            self._parts(declared)

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; nothing is suppressed but what the card asks for."""
        centred, values = self._parts(outputs)
        if _is_list(outputs, self._output.classes):
            scores, classes = values[:, :1], np.rint(values[:, 1])
            queries = np.nonzero(scores[:, 0] > self._output.score_threshold)[0]
            corners = boxes.corners(boxes.in_pixels(centred, frame))[queries]
            return boxes.select(corners, scores[queries, 0], classes[queries].astype(np.int32), self._output, frame)
        if self._output.classes is not None and values.shape[1] == self._output.classes + 1:
            scores = _softmax(values)[:, :-1]
            queries, classes = np.arange(len(scores)), scores.argmax(axis=1)
            above = scores[queries, classes] > self._output.score_threshold
            queries, classes = queries[above], classes[above]
        else:
            scores = sigmoid(values)
            queries, classes = np.nonzero(scores > self._output.score_threshold)
        corners = boxes.corners(boxes.in_pixels(centred, frame))
        return boxes.select(corners[queries], scores[queries, classes], classes.astype(np.int32), self._output, frame)

    def _parts(self, outputs: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return boxes [queries, 4] and scores [queries, n]."""
        classes, sets = self._output.classes, [output[0] for output in outputs if output.ndim == 3 and output.shape[0] == 1]
        if len(outputs) == 1 and sets and sets[0].shape[1] > 4 and (classes in (None, sets[0].shape[1] - 4) or _is_list(outputs, classes)):
            return sets[0][:, :4], sets[0][:, 4:]
        centred = next((part for part in sets if part.shape[1] == 4), None)
        if centred is not None:
            for part in sets:
                is_right = part.shape[1] > 1 if classes is None else part.shape[1] in (classes, classes + 1)
                if part is not centred and len(part) == len(centred) and is_right:
                    return centred, part
        columns = "n" if classes is None else f"{classes} or {classes + 1}"
        needs = f"boxes [1, queries, 4] and scores [1, queries, {columns}]"
        raise mismatch("detr", needs, [list(output.shape) for output in outputs], "output.classes or `family`")


def _is_list(outputs: Sequence[Floats], classes: int | None) -> bool:
    """Return whether the one output is [1, n, 6], a score and a class in each row; with two classes, whole numbers decide."""
    if len(outputs) != 1 or outputs[0].ndim != 3 or outputs[0].shape[2] != 6:
        return False
    last = outputs[0][0, :, 5]
    return classes != 2 or bool(np.all(last == np.rint(last)))


def _softmax(values: Floats) -> Floats:
    """Return the softmax of each row; what is 0..1 and adds up to 1 comes back as it is."""
    if values.size and values.min() >= 0 and np.allclose(values.sum(axis=1), 1, atol=0.05):
        return values
    weights = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
