"""Checks whether timed outputs are repeatable.

Those of a few queries are compared with outputs for the same inputs afterwards.

Outputs of a model are the same if rounding explains the difference, or if their predictions are the
same. Greedy generation on this device gives the same text. A server may not: for a batch, or after
cached tokens, it sums in another order. But for a query that is asked alone, twice, it gives one
answer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.contract.record_accuracy import OutputCheck
from edgemeter.agent.runtimes import Array

if TYPE_CHECKING:
    from edgemeter.agent.generators import Generated, GeneratorAbilities

# Rounding explains a difference of this share: float kernels may sum in another order (threads,
# atomics on a GPU, fp16 inside).
SAME_RATIO = 1e-3
# Outputs that differ in order or number only (suppression inside the model, near a threshold) must
# hold the same predictions.
SAME_PREDICTION_RATIO = 0.99
# A channel whose values are all smaller than this share of the tensor's largest is noise beside the
# others.
_FLOOR_RATIO = 1e-3
REPEATED_PROMPTS = 2
SERVER_REPETITIONS = 2
# `varying`: a server that is asked alone, twice, gives two answers, and neither is known to be
# right.
Outcome = Literal["same", "varying", "differing"]


def summarise_check(outcomes: Sequence[Outcome]) -> OutputCheck:
    """Return the check with its counts."""
    return OutputCheck(
        compared=len(outcomes),
        varying=outcomes.count("varying"),
        differing=outcomes.count("differing"),
    )


def compare_outputs(
    outputs: Sequence[Array],
    repeated: Sequence[Array],
    common_predictions: Callable[[], float | None] = lambda: None,
) -> Outcome:
    """Compare outputs with those of the same input.

    If values differ, `common_predictions` returns the share of the same predictions.
    """
    is_rounding = len(outputs) == len(repeated) and all(
        _is_rounding(a, b) for a, b in zip(outputs, repeated, strict=True)
    )
    return (
        "same"
        if is_rounding or (common_predictions() or 0.0) >= SAME_PREDICTION_RATIO
        else "differing"
    )


def arrays_equal(array: Array, other: Array) -> bool:
    """Return whether dtype and values are the same; NaN equals NaN."""
    return array.dtype == other.dtype and np.array_equal(
        array, other, equal_nan=array.dtype.kind in "fc"
    )


def _is_rounding(array: Array, other: Array) -> bool:
    """Return whether rounding explains the difference.

    It is judged relative to the largest value of each channel.
    """
    if arrays_equal(array, other):
        return True
    if (
        array.shape != other.shape
        or array.dtype.kind not in "biuf"
        or other.dtype.kind not in "biuf"
    ):
        return False
    if array.size == 0:
        return True
    a, b = array.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(b[finite]).all()
    ):
        return False
    apart = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), 0.0)
    largest = _largest(np.where(finite, np.abs(a), 0.0))
    return bool((apart <= SAME_RATIO * largest).all())


def _largest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest value of each channel, to be broadcast against `values`.

    Boxes in pixels and scores of 0..1 may share a tensor: relative to the overall largest, a wrong
    score would be rounding. Channels lie along the shortest axis; a tensor of fewer than three
    dimensions has none.
    """
    overall = values.max()
    sides = [(size, axis) for axis, size in enumerate(values.shape) if size > 1]
    if values.ndim < 3 or len(sides) < 2:
        return np.asarray(overall)
    channel = min(sides)[1]
    other_axes = tuple(axis for axis in range(values.ndim) if axis != channel)
    largest: NDArray[np.float64] = np.maximum(
        values.max(axis=other_axes, keepdims=True), _FLOOR_RATIO * overall
    )
    return largest


def check_answers(
    timed: "Mapping[int, Generated]",
    repeat: "Callable[[int], Generated | None]",
    abilities: "GeneratorAbilities",
    *,
    overlap: bool,
) -> OutputCheck:
    """Compare a few timed answers with those that `repeat` gets, each alone.

    Timed answers are by the numbers of their queries. Queries with the fewest cached tokens are
    repeated, because nothing is cached then: an engine may sum a long batch in another order than
    its parts.
    """
    fewest = min(answer.cached_tokens or 0 for answer in timed.values())
    numbers = [number for number, answer in timed.items() if (answer.cached_tokens or 0) == fewest]
    outcomes: list[Outcome] = []
    for number in [numbers[index] for index in sorted({0, len(numbers) // 2})[:REPEATED_PROMPTS]]:
        repetitions = range(1 if abilities.is_local else SERVER_REPETITIONS)
        answers = [answer for _ in repetitions if (answer := repeat(number)) is not None]
        if answers:
            outcomes.append(compare_answers(timed[number], answers, abilities, overlap=overlap))
    return summarise_check(outcomes)


def compare_answers(
    timed: "Generated",
    repetitions: "Sequence[Generated]",
    abilities: "GeneratorAbilities",
    *,
    overlap: bool,
) -> Outcome:
    """Compare a timed answer with its repetitions.

    `overlap` means that it was generated at the same time as others.
    """
    first, last = repetitions[0], repetitions[-1]
    if not _are_alike(first, last, abilities):
        return "varying" if first.cached_tokens == last.cached_tokens else "same"
    if _are_alike(timed, first, abilities):
        return "same"
    if abilities.is_local or timed.text[:1] != first.text[:1]:
        return "differing"
    # A server sums a batch, and text after cached tokens, in another order.
    return "same" if overlap or timed.cached_tokens != first.cached_tokens else "varying"


def _are_alike(answer: "Generated", other: "Generated", abilities: "GeneratorAbilities") -> bool:
    """Return whether two answers are the same.

    Estimated counts depend on how pieces were joined, so they are not compared.
    """
    is_same_length = abilities.counts == "estimated" or answer.output_tokens == other.output_tokens
    return answer.ended == other.ended and is_same_length and answer.text == other.text
