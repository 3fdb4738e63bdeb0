"""A task that scores top-3 accuracy.

edgemeter run model.onnx --data photos/ --annotations classes.csv --task task.py:TopThree

Model: an image as input, a score for each class as output. Ground truth: lines `FILE,CLASS` below
the heading `file,class`. Metric: top_3, the share of images whose class is among the three highest
scores.
"""

from collections.abc import Sequence

import numpy as np

from edgemeter.plugin import (
    Accuracy,
    Card,
    ConfigError,
    Dataset,
    Inputs,
    Loaded,
    Outputs,
    Parts,
    Preprocessor,
    Share,
    input_of,
    item_accuracy,
    values_of_first,
)


class TopThree:
    """Prepares inputs and scores outputs of a model on a data set.

    The contract is `edgemeter.plugin.Task`.
    """

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        if data.has_truth and data.classes is None:
            raise ConfigError(
                f"{data.name!r} has no classes for its images: give an index `file,class`"
            )
        self._loaded, self._data = loaded, data
        self._input = input_of(model, loaded)
        self._preprocessor = Preprocessor(model.image, self._input)
        self._best: dict[int, set[int]] = {}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the inputs of each call of the model for image `index`: one call."""
        return [{self._input.name: self._preprocessor.load(self._data.items[index].file)[0]}]

    def predict(self, index: int, calls: Sequence[Outputs]) -> None:
        """Keep the classes with the highest scores."""
        self._best[index] = self._best_of(calls)

    def same_predictions(
        self, index: int, calls: Sequence[Outputs], other: Sequence[Outputs]
    ) -> float:
        """Return the share of the best classes that two outputs have in common."""
        del index
        return len(self._best_of(calls) & self._best_of(other)) / 3

    def score(self, parts: Parts = "all") -> Accuracy | None:
        """Return the share of images whose class is among the best.

        Returns None without ground truth.
        """
        if self._data.classes is None or not self._best:
            return None
        truth = list(self._data.classes.values())
        right = {index: truth[index] in best for index, best in self._best.items()}
        # `Share` gives the bounds of a share. For another metric use `Jackknifed`.
        return item_accuracy("top_3", Share(right), sorted(right), self._data, parts=parts)

    def _best_of(self, calls: Sequence[Outputs]) -> set[int]:
        scores = np.nan_to_num(values_of_first(calls[0], self._loaded)[0].ravel())
        return {int(place) for place in np.argsort(scores)[-3:]}
