"""RTMDet and its kin by mmdeploy, RT-DETR, D-FINE and DEIM by their own exporters: suppressed inside the model, labels from 0.

`mmdeploy`: boxes with scores [1, n, 5], labels [1, n]. `detr-lists`: labels [1, n], boxes [1, n, 4], scores [1, n], and a second input,
`orig_target_sizes`. Boxes are x1, y1, x2, y2.
Source: open-mmlab/mmdeploy `configs/mmdet/_base_/base_static.py`; lyuwenyu/RT-DETR `rtdetr_postprocessor.py`.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.vision.decoders import Detections, Floats, PhotoFrame, boxes

# By family: how many outputs, and how many values a box has.
_FORMS = {"detr-lists": (3, 4), "mmdeploy": (2, 5)}


class LabelledLists:
    """Decodes the lists; a label below 0 fills up a list of fixed length."""

    def __init__(self, model: Card, loaded: Loaded) -> None:
        self._output, self._family = model.output, model.family
        # Of two lists of one length, the labels are those that the file declares as integers.
        self._whole = [i for i, info in enumerate(loaded.outputs) if info.dtype.startswith(("int", "uint")) and info.scale is None]
        self._count, self._width = _FORMS[model.family]
        if loaded.outputs and len(loaded.outputs) != self._count:
            raise self._mismatch([info.shape for info in loaded.outputs])

    def decode(self, outputs: Sequence[Floats], frame: PhotoFrame) -> Detections:
        """Return the detections; `outputs` are the lists, float32."""
        corners, scores, labels = self._lists(outputs)
        are_found = (scores > self._output.score_threshold) & (labels >= 0)
        corners = boxes.in_pixels(corners[are_found], frame)
        return boxes.select(corners, scores[are_found], labels[are_found].astype(np.int32), self._output, frame)

    def _lists(self, outputs: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
        """Return boxes [n, 4], scores [n] and labels [n]."""
        at = next((i for i, output in enumerate(outputs) if output.ndim in (2, 3) and output.shape[-1] == self._width), -1)
        rows = outputs[at].reshape(-1, self._width) if at >= 0 else None
        lists = [] if rows is None else [i for i, output in enumerate(outputs) if i != at and output.size == len(rows)]
        if rows is None or len(outputs) != self._count or len(lists) != self._count - 1:
            raise self._mismatch([output.shape for output in outputs])
        if len(lists) == 1:
            return rows[:, :4], rows[:, 4], outputs[lists[0]].ravel()
        labels = next((i for i in lists if i in self._whole), None)
        if labels is None:
            # Where the file declares nothing, whole numbers are labels; where both are whole, labels come first, as exported.
            labels = next((i for i in lists if np.array_equal(outputs[i], np.rint(outputs[i]))), lists[0])
        scores = lists[0] if labels == lists[1] else lists[1]
        return rows, outputs[scores].ravel(), outputs[labels].ravel()

    def _mismatch(self, shapes: Sequence[tuple[int | None, ...]]) -> Exception:
        needs = (
            "boxes with scores [1, n, 5] and labels [1, n]"
            if self._family == "mmdeploy"
            else "labels [1, n], boxes [1, n, 4] and scores [1, n]"
        )
        return boxes.mismatch(self._family, needs, [list(shape) for shape in shapes])
