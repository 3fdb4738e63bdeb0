"""How far the outputs of two files of one model are apart, output by output, over many inputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """One output over all inputs compared, as real values.

    `snr_db` is the energy of the source's values over that of the differences (infinite where there are none), `lowest_cosine` that of the
    worst input. All three are None where a difference cannot be told: another shape, or values that are not finite.
    """

    name: str
    largest_error: float | None
    lowest_cosine: float | None
    snr_db: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """All outputs over all inputs. `stuck` says that the second file gave one and the same answer where the first did not."""

    inputs: int
    outputs: tuple[OutputAgreement, ...]
    not_finite: int
    stuck: bool
    same_answer_ratio: float | None

    @property
    def snr_db(self) -> float | None:
        """The lowest of the outputs, None where one cannot be told."""
        values = [output.snr_db for output in self.outputs]
        known = [value for value in values if value is not None]
        return min(known) if known and len(known) == len(values) else None


class Comparison:
    """Takes the outputs of both files for one input after the other."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._sums = [_Sums() for _ in names]
        self._first: tuple[list[Floats], list[Floats]] | None = None
        self._inputs = self._not_finite = self._alike = self._moved = 0
        self._answers: list[float] = []

    def add(self, ours: Sequence[Floats], theirs: Sequence[Floats], same_answer: float | None) -> None:
        """Take the source's outputs and the others', in the same order, and the share of answers in common where that is known."""
        self._inputs += 1
        finite = all(np.isfinite(one).all() for one in ours)
        self._not_finite += finite and not all(np.isfinite(other).all() for other in theirs)
        for sums, one, other in zip(self._sums, ours, theirs, strict=True):
            sums.add(one, other)
        if same_answer is not None:
            self._answers.append(same_answer)
        if self._first is None:
            self._first = (list(ours), list(theirs))
            return
        moved = not _equal(ours, self._first[0])
        self._moved += moved
        self._alike += moved and _equal(theirs, self._first[1])

    def summary(self) -> Agreement:
        """Return what all inputs showed."""
        return Agreement(
            inputs=self._inputs,
            outputs=tuple(sums.summary(name) for name, sums in zip(self._names, self._sums, strict=True)),
            not_finite=self._not_finite,
            stuck=self._moved > 0 and self._alike == self._moved,
            same_answer_ratio=sum(self._answers) / len(self._answers) if self._answers else None,
        )


class _Sums:
    def __init__(self) -> None:
        self._signal = self._noise = self._largest = 0.0
        self._cosine = 1.0
        self._is_comparable = True

    def add(self, one: Floats, other: Floats) -> None:
        if one.shape != other.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
            self._is_comparable = False
            return
        if one.size == 0:
            return
        a, b = one.astype(np.float64).ravel(), other.astype(np.float64).ravel()
        difference = a - b
        self._signal += float(a @ a)
        self._noise += float(difference @ difference)
        self._largest = max(self._largest, float(np.abs(difference).max()))
        self._cosine = min(self._cosine, _cosine(a, b))

    def summary(self, name: str) -> OutputAgreement:
        if not self._is_comparable:
            return OutputAgreement(name, None, None, None)
        if self._noise == 0:
            return OutputAgreement(name, self._largest, self._cosine, math.inf)
        snr_db = 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf
        return OutputAgreement(name, self._largest, self._cosine, snr_db)


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the cosine of the angle between two tensors; of two that are all zeros 1, of one that is 0."""
    length = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    if length == 0:
        return float(not a.any() and not b.any())
    return min(1.0, float(a @ b) / length)


def _equal(one: Sequence[Floats], other: Sequence[Floats]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
