"""Agreement: outputs of timed queries against those of other kernels, running the same model on the same inputs.

Which reference: what shares least with the kernels that were timed and is on the same machine without another download.
- litert: its reference kernels, plain loops that neither XNNPACK nor the optimised kernels share; 40 times slower than XNNPACK (yolov8n 640
  int8: 0.95 s against 0.024 s), so for a model too slow for that the optimised kernels without a delegate.
- onnx: ONNX Runtime's CPU provider with graph optimisations off: no fusing, every operator as the file has it.
- pytorch: the CPU without oneDNN, which leaves PyTorch's own kernels; for CUDA that is another device too.
- replay runs no model, and of a runtime that others registered we know no second implementation.
What it takes to run it stays outside: a process of its own, a few inputs, a limit in seconds, after everything that is measured.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent import records
from edgemeter.agent.engine.answers import output_check, reference_process
from edgemeter.agent.engine.suites import Case
from edgemeter.agent.errors import EdgemeterError
from edgemeter.agent.recognition.model_tensors import real_values
from edgemeter.agent.runtimes import Array, Loaded

INPUTS = 4
LIMIT_S = 20.0
# What a query on the plain loops may take, as a multiple of the timed one; measured 12 to 40, more on a machine with wide vectors.
PLAIN_LOOPS = 60
SameAnswer = Callable[[int, Sequence[Array], Sequence[Array]], float | None]


@dataclass(frozen=True, slots=True)
class Reference:
    """How the reference is run: which runtime, backend and settings."""

    runtime: str
    backend: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timed:
    """One query of the timed part: which item of the data, the inputs, and the outputs that it gave."""

    item: int
    inputs: list[Array]
    outputs: list[Array]


def agree(
    case: Case, loaded: Loaded, p50_ms: float, queries: Sequence[Timed], same_answer: SameAnswer | None, limit_s: float = LIMIT_S
) -> tuple[records.Agreement | None, str | None]:
    """Return how the timed outputs compare with the reference's for the same inputs, or None and why they were not compared."""
    reference = choose(case.runtime, loaded.backend, case.options, is_slow=p50_ms * PLAIN_LOOPS > limit_s * 1000 / 2)
    if isinstance(reference, str):
        return None, reference
    try:
        return _ask(case, reference, loaded, queries[:INPUTS], same_answer, limit_s)
    except (OSError, EdgemeterError) as error:
        # What was measured stands, whatever becomes of the comparison.
        return None, f"the comparison with the reference ({_words(reference)}) failed: {error}"


def _ask(
    case: Case, reference: Reference, loaded: Loaded, asked: Sequence[Timed], same_answer: SameAnswer | None, limit_s: float
) -> tuple[records.Agreement | None, str | None]:
    with tempfile.TemporaryDirectory(prefix="edgemeter-") as name:
        folder = Path(name)
        request = reference_process.Request(case.model, reference.runtime, reference.backend, case.threads, dict(reference.options))
        (folder / reference_process.REQUEST).write_bytes(msgspec.json.encode(request))
        for place, query in enumerate(asked):
            reference_process.write_arrays(reference_process.inputs_file(folder, place), query.inputs)
        why = _run(folder, limit_s)
        answers = [reference_process.read_arrays(reference_process.outputs_file(folder, place)) for place in range(len(asked))]
        pairs = [(query, answer) for query, answer in zip(asked, answers, strict=True) if answer is not None]
        if not pairs:
            return None, f"the reference ({_words(reference)}) gave no answer: {why or 'nothing was asked'}"
        about = msgspec.json.decode((folder / reference_process.ABOUT).read_bytes(), type=reference_process.About)
    return _compare(f"{about.package} {about.version} {_words(reference)}", loaded, pairs, same_answer), None


def choose(runtime: str, backend: str, options: Mapping[str, str], *, is_slow: bool) -> Reference | str:
    """Return the reference for what was timed, or why there is none; `is_slow` rules plain loops out."""
    if runtime == "litert":
        return _of_litert(backend, is_slow=is_slow)
    if runtime == "onnx":
        plain = Reference("onnx", "cpu", {"graph_optimisation": "none"})
        is_plain = (backend, options.get("graph_optimisation")) == ("cpu", "none")
        return "no other kernels: what was timed is the reference itself" if is_plain else plain
    if runtime == "pytorch":
        is_plain = (backend, options.get("onednn")) == ("cpu", "off")
        reference = Reference("pytorch", "cpu", {"onednn": "off"})
        return "no other kernels: what was timed is the reference itself" if is_plain else reference
    if runtime == "replay":
        return "a replay runs no model: there is nothing to compare"
    return f"no second implementation is known for runtime {runtime!r}"


def _of_litert(backend: str, *, is_slow: bool) -> Reference | str:
    if backend == "reference":
        return "no other kernels: what was timed is the reference itself"
    if backend == "builtin" and is_slow:
        return "the model is too slow for the reference kernels, and the builtin ones are what was timed"
    return Reference("litert", "builtin" if is_slow else "reference")


def _words(reference: Reference) -> str:
    settings = "".join(f", {key} {value}" for key, value in reference.options.items())
    return f"{reference.backend}{settings}"


def _run(folder: Path, limit_s: float) -> str:
    """Run the reference process, for `limit_s` at most, and return why it did not come to its end; empty when it did."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgemeter.agent.engine.answers.reference_process", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        try:
            status = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limit_s:g} s"
        finally:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        return "" if status == 0 else _last_words(stderr) or f"its process ended with status {status}"


def _last_words(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    lines = stderr.read().decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _compare(
    reference: str, loaded: Loaded, pairs: Sequence[tuple[Timed, list[Array]]], same_answer: SameAnswer | None
) -> records.Agreement:
    found = [(real_values(query.outputs, loaded), real_values(answer, loaded)) for query, answer in pairs]
    ratios = [output_check.difference(ours, theirs).ratio for ours, theirs in found]
    tensors = [
        pair for ours, theirs in found for pair in zip(ours, theirs, strict=False) if pair[0].shape == pair[1].shape and pair[0].size
    ]
    answers = [same_answer(query.item, query.outputs, answer) for query, answer in pairs] if same_answer else []
    said = [ratio for ratio in answers if ratio is not None]
    return records.Agreement(
        reference=reference,
        inputs=len(pairs),
        largest_difference=_worst(max, [_largest_difference(*pair) for pair in tensors]),
        largest_difference_ratio=None if None in ratios else max(ratio for ratio in ratios if ratio is not None),
        lowest_cosine=_worst(min, [_cosine(*pair) for pair in tensors]),
        same_answer_ratio=sum(said) / len(said) if said else None,
    )


def _worst(pick: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    # NaN is not comparable; one is enough that nothing can be said of the worst.
    return None if not values or not np.isfinite(values).all() else pick(values)


def _largest_difference(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())


def _cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the cosine of the angle between two tensors; of two that are all zeros 1, of one that is 0."""
    a, b = one.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        length = float(np.sqrt(a @ a) * np.sqrt(b @ b))
        if length == 0:
            return float(not a.any() and not b.any())
        return float(np.clip((a @ b) / length, -1.0, 1.0))
