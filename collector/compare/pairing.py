"""Pairing: which case of the reference a case is compared with, like with like, or why there is none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgemeter.collector.compare.summary import Summary

# Of two precisions the one with more bits is the better reference: the quantised model was made from it.
PRECISION_BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "int16": 15, "int8": 8, "uint8": 8, "int4": 4}
# Within a class like is compared with like; a name that stands here nowhere is a class of its own.
PRECISION_CLASSES = {
    "full": ("fp64", "fp32", "tf32"),
    "half": ("fp16", "bf16"),
    "8-bit float": ("fp8",),
    "16-bit integer": ("int16", "uint16", "int16x8"),
    "8-bit integer": ("int8", "uint8", "w8a8", "dynamic-int8"),
    "4-bit": ("int4", "uint4", "fp4"),
}
_CLASS_OF = {name: wide for wide, names in PRECISION_CLASSES.items() for name in names}


@dataclass(frozen=True, slots=True)
class Pairing:
    """The reference of a case, and by which rule it was chosen."""

    reference: Summary
    choice: str


@dataclass(frozen=True, slots=True)
class Likeness:
    """One thing that has to be equal (None, not known, equals everything), and how to word it when it is not."""

    name: str
    wording: str
    value: Callable[[Summary], object]
    shown: Callable[[Summary], str]

    def holds(self, case: Summary, reference: Summary) -> bool:
        """Return whether it is equal, or not known of one of them."""
        mine, theirs = self.value(case), self.value(reference)
        return mine is None or theirs is None or mine == theirs

    def difference(self, case: Summary, references: Sequence[Summary]) -> str:
        """Return the reason why none of `references` is like `case`."""
        theirs = ", ".join(dict.fromkeys(self.shown(reference) for reference in references)) or "no usable run"
        return f"no reference {self.wording}: this is {self.shown(case)}, the reference has {theirs}"


LIKENESSES = (
    Likeness("provenance", "of the same provenance", lambda case: case.key.provenance, lambda case: case.key.provenance),
    Likeness("model", "for the same model", lambda case: case.key.model, lambda case: case.key.model),
    Likeness("task", "for the same task", lambda case: case.key.task, lambda case: case.key.task),
    Likeness("scenario", "in the same scenario", lambda case: case.key.scenario, lambda case: case.key.scenario),
    # Only where the latency is of so many samples: offline, each machine takes the batch that suits it.
    Likeness(
        "samples a query",
        "with as many samples a query",
        lambda case: case.key.samples_per_query if case.key.scenario == "multi_stream" else None,
        lambda case: f"{case.key.samples_per_query}",
    ),
    Likeness("rate", "at the same rate", lambda case: case.key.target_per_s, lambda case: f"{case.key.target_per_s} per s"),
    Likeness(
        "data",
        "on the same data",
        lambda case: case.key.dataset_sha256,
        lambda case: f"{case.newest.dataset.name} ({case.key.dataset_sha256[:12]})",
    ),
    Likeness("input size", "at the same input size", lambda case: case.key.input_values, lambda case: f"{case.key.input_values} values"),
)


def pair(case: Summary, references: Sequence[Summary]) -> Pairing | str:
    """Return the reference case that `case` is compared with, or the reason why none is like it.

    Equal must be: provenance (measured or replayed), model name, task, scenario with its samples a query and rate, data, and input size
    where both are known. Of several, the same precision on the same runtime comes first, then the same class of precision, then the highest
    precision; then the same runtime, valid before suspect, the same batch, the lowest p50.
    """
    if any(case is reference for reference in references):
        return Pairing(case, "the reference itself")
    alike = list(references)
    for likeness in LIKENESSES:
        narrowed = [reference for reference in alike if likeness.holds(case, reference)]
        if not narrowed:
            return likeness.difference(case, alike)
        alike = narrowed
    best = min(alike, key=lambda reference: _rank(case, reference))
    return Pairing(best, _choice(case, best, alike))


def precision_class(precision: str) -> str:
    """Return the class of a precision: `full` for fp32; of one that is not known its own name."""
    return _CLASS_OF.get(precision, precision)


def is_one_class(case: Summary, reference: Summary) -> bool:
    """Return whether both are of one class of precision."""
    return precision_class(case.key.precision) == precision_class(reference.key.precision)


def _rank(case: Summary, reference: Summary) -> tuple[bool, bool, int, bool, bool, bool, float]:
    """Order references: the first is compared with; False comes before True."""
    return (
        not _same_kind(case, reference),
        not is_one_class(case, reference),
        -PRECISION_BITS.get(reference.key.precision, 0),
        reference.key.runtime != case.key.runtime,
        reference.suspect > 0,
        reference.key.batch != case.key.batch,
        reference.p50_ms.median if reference.p50_ms else float("inf"),
    )


def _same_kind(case: Summary, reference: Summary) -> bool:
    return (case.key.precision, case.key.runtime) == (reference.key.precision, reference.key.runtime)


def _choice(case: Summary, best: Summary, alike: Sequence[Summary]) -> str:
    ties = sum(_same_kind(best, reference) for reference in alike)
    among = f"; the first of {ties} such by verdict, batch and p50" if ties > 1 else ""
    if _same_kind(case, best):
        return f"same precision and runtime{among}"
    wanted = f"the reference has no {case.key.precision} on {case.key.runtime}"
    highest = max(PRECISION_BITS.get(reference.key.precision, 0) for reference in alike)
    if PRECISION_BITS.get(best.key.precision, 0) < highest:
        return f"the same class of precision ({best.key.precision} on {best.key.runtime}{among}): {wanted}"
    if len(alike) == ties:
        return f"the only kind there is ({best.key.precision} on {best.key.runtime}{among}): {wanted}"
    return f"the highest precision there is ({best.key.precision} on {best.key.runtime}{among}): {wanted}"
