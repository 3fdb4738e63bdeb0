"""How two cases relate is decided by projections of their identity.

This also has the fields that must be equal for a comparison, and the marks of differences.

The projections are the series of a trend, the same case elsewhere or after a change, and the hash
of a point's tag.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey, IdentityField

# Only precisions of one class are compared; an unlisted name is a class of its own.
PRECISION_CLASSES = {
    "full": ("fp64", "fp32", "tf32"),
    "half": ("fp16", "bf16"),
    "8-bit float": ("fp8",),
    "16-bit integer": ("int16", "uint16", "int16x8"),
    "8-bit integer": ("int8", "uint8", "w8a8", "int8-dynamic"),
    "4-bit": ("int4", "uint4", "fp4"),
}
_CLASS_OF = {name: wide for wide, names in PRECISION_CLASSES.items() for name in names}


# Language models also need the same precision: a 4-bit file is faster and another model, whose
# quality is to be compared first.
EQUAL = tuple(field for field in FIELDS if field.rule == "equal" or field.name == "precision")
MARKED = tuple(field for field in FIELDS if field.rule == "marked")
OTHER_CLASS = "other class of precision"
# The same case on another device or after a change of the model's file or the runtime's version.
like_with_like: Callable[[CaseKey], tuple[Any, ...]] = attrgetter(
    *(field.name for field in FIELDS if field.rule != "free")
)
_equal_values: Callable[[CaseKey], tuple[Any, ...]] = attrgetter(*(field.name for field in EQUAL))
_PRECISION = EQUAL.index(FIELD["precision"])


def precision_class(precision: str) -> str:
    """Return the class of a precision: `full` for fp32; an unknown one is its own class."""
    return _CLASS_OF.get(precision, precision)


def load_text(key: CaseKey) -> str:
    """Return the load of a case, and its concurrent models; empty for calls one after the other.

    It separates cases in a chart.
    """
    return ", ".join(
        FIELD[name].text(key)
        for name in ("target_per_s", "deadline", "concurrency", "together")
        if getattr(key, name)
    )


def likeness(key: CaseKey) -> tuple[object, ...]:
    """Return the values that must be equal for a comparison, in the order of `EQUAL`.

    Ten thousand cases have few combinations of them.
    """
    values = _equal_values(key)
    return values if key.generates else (*values[:_PRECISION], None, *values[_PRECISION + 1 :])


def agree(value: object, other: object) -> bool:
    """Return whether two values are equal, or one of them is unknown."""
    return value is None or other is None or value == other


def are_alike(likeness_of_case: Sequence[object], likeness_of_other: Sequence[object]) -> bool:
    """Return whether two cases with these values may be compared."""
    return all(map(agree, likeness_of_case, likeness_of_other))


class MarkedDifference(NamedTuple):
    """A difference between two compared cases: the mark, and the values of both in words."""

    mark: str
    own: str
    other: str

    @property
    def words(self) -> str:
        """The difference in words: `other threads: 1 thread against 4 threads`."""
        return f"{self.mark}: {self.own} against {self.other}"


class Relation(NamedTuple):
    """How a case relates to another.

    It is not comparable because of these fields, or comparable with these marks.
    """

    unlike: tuple[IdentityField, ...]
    marked: tuple[MarkedDifference, ...]


def relation(case: CaseKey, other: CaseKey) -> Relation:
    sides = zip(EQUAL, likeness(case), likeness(other), strict=True)
    marked = [
        MarkedDifference(field.mark, field.text(case), field.text(other))
        for field in MARKED
        if not agree(getattr(case, field.name), getattr(other, field.name))
    ]
    if precision_class(case.precision) != precision_class(other.precision):
        marked.append(MarkedDifference(OTHER_CLASS, case.precision, other.precision))
    return Relation(
        tuple(field for field, value, other_value in sides if not agree(value, other_value)),
        tuple(marked),
    )


# Called for each figure of a case.
@lru_cache(maxsize=256)
def why_other_load(case: CaseKey, other: CaseKey) -> str:
    """Return why speed and energy of two cases cannot be compared; empty if they can.

    This also holds for cases of two models.
    """
    titles = [
        field.title
        for field in relation(case, other).unlike
        if field.name in ("scenario", "target_per_s", "deadline")
    ]
    return f"another {' and another '.join(titles)} is other work" if titles else ""
