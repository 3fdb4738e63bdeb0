"""A task that finds anomalies by the error of an autoencoder.

edgemeter run ad01_int8.tflite --data ad01 --annotations y_labels.csv --task anomaly.py:Anomaly

Model: an autoencoder, which reconstructs a window of features. An unusual item is reconstructed
badly, so its score is the mean squared error over all its windows (MLPerf Tiny,
benchmark/training/anomaly_detection). Data: arrays of features (.npy, or .bin of float32) with rows
of BANDS values. Each row begins a new window. Ground truth: class 1 is an anomaly, class 0 is not.
Metric: AUC by scikit-learn, and the partial AUC up to a false positive rate of 0.1.
"""

from collections.abc import Sequence

import numpy as np
from sklearn.metrics import roc_auc_score

import edgemeter.plugin as em

BANDS = 128


class Anomaly:
    """Keeps the error of each item. The contract is `edgemeter.plugin.Task`."""

    def __init__(self, _model: em.Card, loaded: em.Loaded, data: em.Dataset) -> None:
        self._loaded, self._data, self._scores = loaded, data, {}

    def _windows(self, index: int) -> np.ndarray:
        file, size = self._data.items[index].file, int(np.prod(self._loaded.inputs[0].shape[1:]))
        values = np.load(file) if file.suffix == ".npy" else np.fromfile(file, "<f4")
        return np.lib.stride_tricks.sliding_window_view(values.astype(np.float64).ravel(), size)[
            ::BANDS
        ]

    def prepare(self, index: int) -> Sequence[em.Inputs]:
        (info,) = self._loaded.inputs
        return [
            {info.name: em.fitted(window, info, self._data.items[index])}
            for window in self._windows(index)
        ]

    def predict(self, index: int, calls: Sequence[em.Outputs]) -> None:
        self._scores[index] = self._error(index, calls)

    def same_predictions(
        self, index: int, calls: Sequence[em.Outputs], other: Sequence[em.Outputs]
    ) -> float:
        return float(np.isclose(self._error(index, calls), self._error(index, other), rtol=0.01))

    def score(self, parts: em.Parts = "all") -> em.Accuracy | None:
        if self._data.classes is None or not self._scores:
            return None
        truth, members = list(self._data.classes.values()), sorted(self._scores)

        def auc(chosen: Sequence[int], limit: float | None = None) -> float | None:
            labels = [truth[index] for index in chosen]
            return (
                float(
                    roc_auc_score(labels, [self._scores[index] for index in chosen], max_fpr=limit)
                )
                if len({*labels}) == 2
                else None
            )

        return em.item_accuracy(
            "auc",
            em.Jackknifed(auc),
            members,
            self._data,
            parts=parts,
            detail={"partial_auc": auc(members, 0.1)},
        )

    def _error(self, index: int, calls: Sequence[em.Outputs]) -> float:
        outputs = [em.values_of_first(call, self._loaded)[0].ravel() for call in calls]
        return float(
            np.mean(
                [
                    np.mean((window - output) ** 2)
                    for window, output in zip(self._windows(index), outputs, strict=True)
                ]
            )
        )
