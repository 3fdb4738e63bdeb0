"""What the answers of a run look like, whoever is right: all the same, not numbers, nothing found."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.records import Answers
from edgemeter.agent.runtimes import Array


class AnswerLog:
    """Looks at one answer after the other; keeps the first, and of the others only counts."""

    def __init__(self) -> None:
        self._first: tuple[list[Array], list[Array]] | None = None
        self._inputs = self._alike = self._not_finite = 0
        self._scores: list[NDArray[np.float32]] = []
        self._is_detector = False

    def add(self, inputs: Sequence[Array], outputs: Sequence[Array], scores: NDArray[np.float32] | None) -> None:
        """Take one answer; `scores` are those of the boxes found, float32 [n], None where no boxes are looked for."""
        self._inputs += 1
        self._not_finite += any(output.dtype.kind == "f" and not np.isfinite(output).all() for output in outputs)
        if scores is not None:
            self._is_detector = True
            self._scores.append(scores)
        if self._first is None:
            self._first = (list(inputs), list(outputs))
            return
        # An empty answer is the same for everything that shows nothing.
        said = any(output.size for output in outputs)
        self._alike += said and _equal(outputs, self._first[1]) and not _equal(inputs, self._first[0])

    def summary(self, objects: int | None) -> Answers | None:
        """Return what was seen, None of nothing; `objects` are those in the ground truth of the photographs."""
        if self._first is None:
            return None
        if not self._is_detector:
            return Answers(inputs=self._inputs, alike=self._alike, not_finite=self._not_finite)
        scores = np.concatenate(self._scores)
        scores = scores[np.isfinite(scores)]
        return Answers(
            inputs=self._inputs,
            alike=self._alike,
            not_finite=self._not_finite,
            objects=objects,
            found=len(scores),
            highest_score=float(scores.max()) if scores.size else None,
            distinct_scores=int(np.unique(scores).size),
        )


def _equal(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(one) == len(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True)
    )
