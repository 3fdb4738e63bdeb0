"""Parity: is this file still the model it was converted from? Both run by their own runtimes on the same pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from edgemeter.agent.recognition.model_tensors import real_values
from edgemeter.agent.records import Accuracy
from edgemeter.agent.runtimes import Array, Loaded
from edgemeter.models.convert.agreement import Agreement, Comparison, Floats
from edgemeter.models.convert.answers import Answered, Inputs, ask
from edgemeter.models.convert.verdict import Verdict, judge
from edgemeter.models.progress import Tell

# Outputs are compared value by value for so many inputs, the first; the accuracy is that of all.
COMPARED = 100
_PERMUTED = 6


@dataclass(frozen=True, slots=True)
class Reference:
    """What the source answered: its outputs lie in `folder`, one file an input."""

    folder: Path
    answered: Answered
    names: tuple[str, ...]
    is_float: bool


@dataclass(frozen=True, slots=True)
class Parity:
    """What the conversion did to the model."""

    verdict: Verdict
    agreement: Agreement
    before: Accuracy | None
    after: Accuracy | None
    runtime_before: str
    runtime_after: str


def reference(model: Path, runtime: str, inputs: Inputs, folder: Path, tell: Tell) -> Reference:
    """Run the source once, and keep its outputs in the folder."""
    names: list[str] = []
    floats: list[bool] = []

    def take(index: int, outputs: list[Array], loaded: Loaded) -> None:
        if index == 0:
            declared = [info.name for info in loaded.outputs]
            names.extend(declared if len(declared) == len(outputs) else [f"output_{place}" for place in range(len(outputs))])
            floats.append(all(output.dtype.kind == "f" for output in outputs))
        if index < COMPARED:
            np.savez(_file(folder, index), *real_values(outputs, loaded))

    answered = ask(model, runtime, inputs, take, tell)
    return Reference(folder, answered, tuple(names), all(floats))


def compare(expected: Reference, model: Path, runtime: str, inputs: Inputs, precision: str, tell: Tell) -> Parity:
    """Run the conversion on the same inputs, and return how it compares.

    Raises:
        EdgemeterError: its runtime is not installed, or refuses the file.
    """
    comparison = Comparison(expected.names)
    order: list[int] = []

    def take(index: int, outputs: list[Array], loaded: Loaded) -> None:
        if index >= COMPARED:
            return
        ours, theirs = _kept(expected.folder, index), real_values(outputs, loaded)
        if index == 0:
            order.extend(_order(ours, theirs))
        theirs = [theirs[place] for place in order] if len(theirs) == len(order) else theirs
        theirs = (theirs + [np.zeros(0, np.float32)] * len(ours))[: len(ours)]
        can_decode = all(one.ndim == other.ndim and np.isfinite(other).all() for one, other in zip(ours, theirs, strict=True))
        # The source's task decodes both: real values are raw values only where the source has no scale of its own.
        same = expected.answered.asked.same_answer(index, ours, theirs) if expected.is_float and can_decode else None
        comparison.add(ours, theirs, same)

    answered = ask(model, runtime, inputs, take, tell)
    agreement = comparison.summary()
    before, after = expected.answered.accuracy, answered.accuracy
    verdict = judge(precision, agreement, before.value if before else None, after.value if after else None)
    return Parity(verdict, agreement, before, after, expected.answered.runtime, answered.runtime)


def _file(folder: Path, index: int) -> Path:
    return folder / f"{index}.npz"


def _kept(folder: Path, index: int) -> list[Floats]:
    with np.load(_file(folder, index), allow_pickle=False) as arrays:
        return [arrays[f"arr_{place}"] for place in range(len(arrays.files))]


def _order(ours: Sequence[Floats], theirs: Sequence[Floats]) -> list[int]:
    """Return which of their outputs is which of ours: converters may change the order, and the names say little.

    Of those with equal shapes the order with the smallest differences; where shapes differ, as they come.
    """
    plain = list(range(len(theirs)))
    if len(ours) != len(theirs) or len(ours) > _PERMUTED:
        return plain
    fitting = [order for order in permutations(plain) if all(ours[a].shape == theirs[b].shape for a, b in enumerate(order))]
    return list(min(fitting, key=lambda order: _apart(ours, [theirs[place] for place in order]), default=plain))


def _apart(ours: Sequence[Floats], theirs: Sequence[Floats]) -> float:
    """Return the differences of all outputs, each relative to its own size."""
    total = 0.0
    for one, other in zip(ours, theirs, strict=True):
        size = float(np.abs(one).max(initial=0.0)) or 1.0
        difference = np.nan_to_num(np.abs(one - other), nan=size, posinf=size)
        total += float(difference.mean()) / size if one.size else 0.0
    return total
