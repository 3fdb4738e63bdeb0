"""Whether outputs are the same: timed ones against those of the same input run again, and against other kernels on the same model.

Which reference kernels: those that share least with the timed ones and are on the same machine without another download.
- litert: its reference kernels, plain loops that neither XNNPACK nor the optimised kernels share; 40 times slower than XNNPACK (yolov8n 640
  int8: 0.95 s against 0.024 s), so for a model too slow for that the optimised kernels without a delegate.
- onnx: ONNX Runtime's CPU provider with graph optimisations off: no fusing, every operator as the file has it.
- pytorch: the CPU without oneDNN, which leaves PyTorch's own kernels; for CUDA that is another device too.
- replay runs no model, and for a runtime that others registered no second implementation is known.
The reference runs outside the run: in a process of its own, on a few inputs, with a limit in seconds, after everything that is measured.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.contract.record_accuracy import Agreement, OutputCheck
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import reference_process
from edgemeter.agent.runtimes import Array, Loaded
from edgemeter.agent.vision.preprocess import real_values

# The difference that rounding explains: float kernels may sum in another order (threads, atomics on a GPU, fp16 inside).
SAME_RATIO = 1e-3

# Outputs that differ in order or number only (suppression inside the model, near a threshold) must hold the same predictions.
SAME_PREDICTION_RATIO = 0.99

# A channel whose values are all smaller than this share of the tensor's largest is noise beside the others.
_FLOOR_RATIO = 1e-3
INPUTS = 4
LIMIT_S = 20.0
# The time of a query on plain loops, as a multiple of the timed one; measured 12 to 40, more on a machine with wide vectors.
PLAIN_LOOPS = 60
# By runtime: the backend and the options of its plain kernels.
_PLAIN_KERNELS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "onnx": ("cpu", {"graph_optimisation": "none"}),
    "pytorch": ("cpu", {"onednn": "off"}),
}
_NO_OTHERS = "there are no other kernels: the timed ones are the reference"
# Runs the reference process on a request folder, at most for a time in s; returns why it failed, empty where it did not.
RunReference = Callable[[Path, float], str]
SamePrediction = Callable[[int, Sequence[Array], Sequence[Array]], float | None]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far two sets of outputs for one input are apart.

    `ratio` is None where they cannot be subtracted: other number, shape or places of NaN. `common_ratio` is the share of common
    predictions, where it is known.
    """

    is_identical: bool
    ratio: float | None
    common_ratio: float | None = None

    @property
    def is_rounding(self) -> bool:
        """Whether rounding explains it."""
        return self.ratio is not None and self.ratio <= SAME_RATIO

    @property
    def is_same(self) -> bool:
        """Whether both are the same: within rounding, or else in the predictions decoded from them."""
        return self.is_rounding or (self.common_ratio is not None and self.common_ratio >= SAME_PREDICTION_RATIO)


def output_difference(outputs: Sequence[Array], other: Sequence[Array]) -> OutputDifference:
    """Return how far two sets of outputs are apart, relative to the largest value of each channel."""
    if len(outputs) != len(other):
        return OutputDifference(is_identical=False, ratio=None)
    ratios = [_ratio(a, b) for a, b in zip(outputs, other, strict=True)]
    comparable = [ratio for ratio in ratios if ratio is not None]
    identical = all(arrays_equal(a, b) for a, b in zip(outputs, other, strict=True))
    return OutputDifference(identical, max(comparable, default=0.0) if len(comparable) == len(ratios) else None)


def summarise_check(compared: Sequence[OutputDifference]) -> OutputCheck:
    """Return the check of all outputs that were kept."""
    return OutputCheck(
        compared=len(compared),
        identical=sum(difference.is_identical for difference in compared),
        worst_ratio=max((difference.ratio for difference in compared if difference.ratio is not None), default=None),
        differing=sum(not difference.is_same for difference in compared),
    )


def arrays_equal(array: Array, other: Array) -> bool:
    """Return whether dtype and values are the same; NaN equals NaN."""
    return array.dtype == other.dtype and np.array_equal(array, other, equal_nan=array.dtype.kind in "fc")


def _ratio(array: Array, other: Array) -> float | None:
    """Return the largest difference of two values over the largest of their channel; None where values cannot be subtracted."""
    if array.shape != other.shape or array.dtype.kind not in "biuf" or other.dtype.kind not in "biuf":
        return 0.0 if arrays_equal(array, other) else None
    if array.size == 0 or arrays_equal(array, other):
        return 0.0
    a, b = array.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return None
    apart = np.where(finite, np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0)), 0.0)
    largest = _largest(np.where(finite, np.abs(a), 0.0))
    if not largest.any():
        return None
    return float((apart / largest).max())


def _largest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest value of each channel, to be broadcast against `values`.

    Boxes in pixels and scores of 0..1 may share a tensor: relative to the overall largest, a wrong score would be rounding. Channels
    lie along the shortest axis; a tensor of fewer than three dimensions has none.
    """
    overall = values.max()
    sides = [(size, axis) for axis, size in enumerate(values.shape) if size > 1]
    if values.ndim < 3 or len(sides) < 2:
        return np.asarray(overall)
    channel = min(sides)[1]
    other_axes = tuple(axis for axis in range(values.ndim) if axis != channel)
    largest: NDArray[np.float64] = np.maximum(values.max(axis=other_axes, keepdims=True), _FLOOR_RATIO * overall)
    return largest


@dataclass(frozen=True, slots=True)
class TimedQuery:
    """One query of the timed part: which item of the data, the inputs, and the outputs that it gave."""

    item: int
    inputs: list[Array]
    outputs: list[Array]


def agree(
    case: Case,
    loaded: Loaded,
    p50_ms: float,
    queries: Sequence[TimedQuery],
    same_answer: SamePrediction | None,
    run_reference: RunReference,
    limit_s: float = LIMIT_S,
) -> tuple[Agreement | None, str | None]:
    """Return how the timed outputs compare with the reference's for the same inputs, or None and why they were not compared."""
    reference = choose_reference(case.runtime, loaded.backend, case.options, is_slow=p50_ms * PLAIN_LOOPS > limit_s * 1000 / 2)
    if isinstance(reference, str):
        return None, reference
    backend, options = reference
    request = reference_process.ReferenceRequest(case.model, case.runtime, backend, case.threads, dict(options))
    kernels = ", ".join([backend, *(f"{key} {value}" for key, value in options.items())])
    queries = queries[:INPUTS]
    try:
        with tempfile.TemporaryDirectory(prefix="edgemeter-") as folder:
            reference_process.write_request(Path(folder), request, [query.inputs for query in queries])
            why = run_reference(Path(folder), limit_s)
            package, outputs = reference_process.read_answer(Path(folder), len(queries))
        pairs = [(query, arrays) for query, arrays in zip(queries, outputs, strict=True) if arrays is not None]
        if not pairs:
            return None, f"the reference ({kernels}) returned no outputs: {why or 'there are no queries'}"
        return _compare(f"{package} {kernels}", loaded, pairs, same_answer), None
    except (OSError, EdgemeterError) as error:
        # A failed comparison must not cost the measured run.
        return None, f"the comparison with the reference ({kernels}) failed: {error}"


def no_reference(_folder: Path, _limit_s: float) -> str:
    """Return why there is no reference where no session runs one."""
    return "it is run by a session only"


def choose_reference(runtime: str, backend: str, options: Mapping[str, str], *, is_slow: bool) -> tuple[str, Mapping[str, str]] | str:
    """Return backend and options of the reference for what was timed, or why there is none; `is_slow` excludes plain loops."""
    if runtime in _PLAIN_KERNELS:
        plain_backend, plain_options = _PLAIN_KERNELS[runtime]
        is_plain = backend == plain_backend and plain_options.items() <= options.items()
        return _NO_OTHERS if is_plain else (plain_backend, plain_options)
    if runtime == "litert":
        if backend == "builtin" and is_slow:
            return "the model is too slow for the reference kernels, and the builtin ones are the timed ones"
        return _NO_OTHERS if backend == "reference" else ("builtin" if is_slow else "reference", {})
    if runtime == "replay":
        return "a replay runs no model, so there is nothing to compare"
    return f"no second implementation is known for runtime {runtime!r}"


def _compare(
    reference: str, loaded: Loaded, pairs: Sequence[tuple[TimedQuery, list[Array]]], same_answer: SamePrediction | None
) -> Agreement:
    real_pairs = [(real_values(query.outputs, loaded), real_values(outputs, loaded)) for query, outputs in pairs]
    ratios = [output_difference(timed, expected).ratio for timed, expected in real_pairs]
    tensors = [
        pair
        for timed, expected in real_pairs
        for pair in zip(timed, expected, strict=False)
        if pair[0].shape == pair[1].shape and pair[0].size
    ]
    with np.errstate(invalid="ignore"):
        differences = [float(np.abs(np.subtract(*pair, dtype=np.float64)).max()) for pair in tensors]
    shares = [same_answer(query.item, query.outputs, outputs) for query, outputs in pairs] if same_answer else []
    known_shares = [share for share in shares if share is not None]
    return Agreement(
        reference=reference,
        inputs=len(pairs),
        largest_difference=_worst(max, differences),
        largest_difference_ratio=None if None in ratios else max(ratio for ratio in ratios if ratio is not None),
        lowest_cosine=_worst(min, [_cosine(*pair) for pair in tensors]),
        same_answer_ratio=sum(known_shares) / len(known_shares) if known_shares else None,
    )


def _worst(pick: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    # NaN is not comparable: with one, the worst is unknown.
    return None if not values or not np.isfinite(values).all() else pick(values)


def _cosine(array: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the cosine of the angle between two tensors; of two that are all zeros 1, of one that is 0."""
    a, b = array.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        length = float(np.sqrt(a @ a) * np.sqrt(b @ b))
        if length == 0:
            return float(not a.any() and not b.any())
        return float(np.clip((a @ b) / length, -1.0, 1.0))
