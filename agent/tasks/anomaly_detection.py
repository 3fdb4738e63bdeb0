"""Anomaly detection: an autoencoder reconstructs windows of a recording; what it reconstructs badly is unusual. Scored by AUC.

The score of a recording is the mean over its windows of the mean squared difference between the input, before quantisation, and the output
(MLPerf Tiny, `benchmark/training/anomaly_detection`). Ground truth: class 1 is an anomaly, 0 normal.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.audio.front_end import Array, FrontEnd
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs, Parts
from edgemeter.agent.tasks.item_accuracy import item_accuracy
from edgemeter.agent.tasks.parts import Jackknifed
from edgemeter.agent.vision.preprocess import values_of_first

METRIC = "auc"
# Up to this false positive rate the partial AUC counts (DCASE 2020, task 2).
PARTIAL_RATE = 0.1
# Two scores that differ by less than this share are the same.
_SAME_RATIO = 0.01


class AnomalyDetection:
    """Keeps the anomaly score of every recording."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        if data.has_truth and (data.classes is None or not set(data.classes.values()) <= {0, 1}):
            raise ConfigError(
                f"model {model.name!r} finds anomalies, and the ground truth of {data.name!r} is another's: "
                "give an index with class 0 (normal) or 1 (anomaly) for each file"
            )
        self._model, self._loaded, self._data = model, loaded, data
        self._front = FrontEnd(model, loaded)
        self._scores: dict[int, float] = {}
        self._last: tuple[int, list[Array]] | None = None

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return a call for each window of recording `index`."""
        item = self._data.items[index]
        return [self._front.call(values, item) for values in self._windows(index)]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep how badly recording `index` was reconstructed."""
        self._scores[index] = self._error(index, calls)

    def same_predictions(self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]) -> float:
        """Return 1.0 where two raw outputs give the same score to 1%, else 0.0."""
        first, second = self._error(index, calls), self._error(index, other)
        return float(first == second or abs(first - second) <= _SAME_RATIO * max(abs(first), abs(second)))

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the AUC over all recordings; None without ground truth, or without normal ones and anomalies both."""
        if self._data.classes is None or not self._scores:
            return None
        return anomaly_accuracy(self._scores, list(self._data.classes.values()), self._data, parts)

    def _windows(self, index: int) -> list[Array]:
        """Return the windows of recording `index`; those prepared last are kept, for `predict` that follows."""
        if self._last is None or self._last[0] != index:
            self._last = (index, self._front.real(self._data.items[index]))
        return self._last[1]

    def _error(self, index: int, calls: Sequence[Outputs]) -> float:
        windows = self._windows(index)
        if len(windows) != len(calls):
            raise ConfigError(f"item {index} has {len(windows)} windows and {len(calls)} outputs")
        # A broken model's values may be beyond what can be squared.
        with np.errstate(over="ignore", invalid="ignore"):
            error = float(np.mean([self._square(window, outputs) for window, outputs in zip(windows, calls, strict=True)]))
        # What is no number is as unusual as can be; a rank needs an order.
        return error if np.isfinite(error) else float("inf")

    def _square(self, window: Array, outputs: Outputs) -> float:
        target, output = self._front.dequantised(window), values_of_first(outputs, self._loaded)[0].astype(np.float64).ravel()
        if target.shape != output.shape:
            raise ConfigError(f"model {self._model.name!r} gives {output.size} values for {target.size}: one that reconstructs is needed")
        return float(np.mean((target - output) ** 2))


def anomaly_accuracy(score_of: Mapping[int, float], truth: Sequence[int], data: Dataset, parts: Parts = "all") -> Accuracy | None:
    """Return the AUC of the scores of the items, of which 1 is an anomaly and 0 normal; None without both."""
    labels, numbers = np.array(truth, np.int64), sorted(score_of)
    scores = np.full(len(labels), np.nan)
    scores[numbers] = [score_of[index] for index in numbers]
    detail = {"partial_auc": partial_auc(scores[numbers], labels[numbers], PARTIAL_RATE)}
    figure = Jackknifed(lambda members: auc(scores[list(members)], labels[list(members)]))
    return item_accuracy(METRIC, figure, numbers, data, parts=parts, detail=detail)


def auc(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
    """Return the probability that an anomaly (label 1) scores higher than what is normal, ties half; None without both."""
    anomalies, normal = scores[labels == 1], np.sort(scores[labels == 0])
    if not len(anomalies) or not len(normal):
        return None
    below = np.searchsorted(normal, anomalies, "left") + np.searchsorted(normal, anomalies, "right")
    return float(below.sum() / 2 / (len(anomalies) * len(normal)))


def partial_auc(scores: NDArray[np.float64], labels: NDArray[np.int64], largest_rate: float) -> float | None:
    """Return the area under the ROC curve up to a false positive rate, 0.5 for chance and 1 at best; None without both labels.

    Source: D. K. McClish, Medical Decision Making 9 (1989), 190-195; as scikit-learn's `roc_auc_score(max_fpr=...)`.
    """
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    if not positives or not negatives:
        return None
    order = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.nonzero(scores[order][1:] != scores[order][:-1])[0], len(order) - 1)
    true = np.append(0, np.cumsum(labels[order] == 1)[last_of_equals]) / positives
    false = np.append(0, np.cumsum(labels[order] == 0)[last_of_equals]) / negatives
    stop = int(np.searchsorted(false, largest_rate, "right"))
    at_rate = np.interp(largest_rate, false[stop - 1 : stop + 1], true[stop - 1 : stop + 1])
    rates, shares = np.append(false[:stop], largest_rate), np.append(true[:stop], at_rate)
    area = float((np.diff(rates) * (shares[1:] + shares[:-1])).sum() / 2)
    least, largest = largest_rate**2 / 2, largest_rate
    return 0.5 * (1 + (area - least) / (largest - least))
