"""Wake words: when a class is detected in a recording that goes on, scored by the windows in which it is said.

The card's `output.detected` is detected in a call whose score of it is above `output.score_threshold`; the moment is the end of what the
call takes, before the time that it needs. What it needs, and what comes too late, is measured apart, while the stream is timed.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.audio.front_end import FrontEnd
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import StreamDetections
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.streams.windows import Window, summarise_detections
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.vision.preprocess import values_of_first

# Scores above it, or below 0, are logits: their softmax counts. A quantised 1 may be some steps more.
_HIGHEST = 1.05


class WakeWord:
    """Keeps in which calls the class was detected; `stream` is how the calls arrive."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        self._model, self._loaded = model, loaded
        self._item = data.items[0]
        self._windows = None if data.targets is None else cast("Sequence[Window]", data.targets[self._item.name])
        if self._windows is not None and model.output.detected is None:
            raise ConfigError(f"which class of model {model.name!r} the windows are of is unknown: set output.detected in its card")
        self._detected: NDArray[np.bool_] | None = None
        self._front = FrontEnd(model, loaded)
        self._first, self.stream = self._front.of_stream(self._item)

    def prepare(self, _index: int) -> Sequence[Inputs]:
        """Return all calls of the recording; it was read for the first time when this was made."""
        values, self._first = self._first or self._front.of_stream(self._item)[0], []
        return [self._front.call(value, self._item) for value in values]

    def predict(self, _index: int, calls: Sequence[Outputs]) -> None:
        """Keep in which calls the class was detected; without windows nothing is sought."""
        if self._model.output.detected is not None:
            self._detected = self._in_calls(calls)

    def same_predictions(self, _index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float | None:
        """Return the share of the calls with a detection in either that have one in both; None without any."""
        first, second = self._in_calls(calls), self._in_calls(other)
        return float((first & second).sum() / (first | second).sum()) if (first | second).any() else None

    def score(self, _parts: Parts = "all") -> None:
        """Return None: two kinds of errors, whose numbers have no common whole, are no accuracy."""

    def detections(self) -> StreamDetections | None:
        """Return what was detected against the windows; None without either."""
        if self._windows is None or self._detected is None:
            return None
        stream = self.stream
        detected_s = np.round(stream.first_s + np.flatnonzero(self._detected) / stream.rate_per_s, 6).tolist()
        return summarise_detections(detected_s, self._windows, stream.length_s, self._label, self._model.output.score_threshold)

    @property
    def _label(self) -> str:
        output, label_index = self._model.output, (self._model.output.detected or 0) + self._model.output.label_offset
        return output.labels[label_index] if 0 <= label_index < len(output.labels) else f"class {output.detected}"

    def _in_calls(self, calls: Sequence[Outputs]) -> NDArray[np.bool_]:
        detected = self._model.output.detected or 0
        scores = np.stack([values_of_first(outputs, self._loaded)[0].ravel() for outputs in calls])
        if detected >= scores.shape[1]:
            raise ConfigError(
                f"model {self._model.name!r} gives {scores.shape[1]} scores, and output.detected in its card is {detected}: correct it"
            )
        if scores.min() < 0 or scores.max() > _HIGHEST:
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores = weights / weights.sum(axis=1, keepdims=True)
        return np.asarray(scores[:, detected] > self._model.output.score_threshold)
