"""How two cases relate: equal in all fields they are one case, like in those with a `likeness` they may be compared, and else unlike.

In what else two that may be compared differ is a mark, if the field has one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal

from edgemeter.agent.contract.case_identity import FIELDS, CaseKey, IdentityField, Likeness, PairMark, Value

LIKENESSES: tuple[tuple[IdentityField, Likeness], ...] = tuple((field, field.likeness) for field in FIELDS if field.likeness)
_likeness_fields: Callable[[CaseKey], tuple[Any, ...]] = attrgetter(*(field.name for field, _ in LIKENESSES))
_LIKENESSES_WORKED_OUT = tuple((index, like.value) for index, (_, like) in enumerate(LIKENESSES) if like.value)
PAIR_MARKS: tuple[tuple[IdentityField, PairMark], ...] = tuple((field, mark) for field in FIELDS for mark in field.marks)
_MARK_VALUES: tuple[Value, ...] = tuple(mark.value or attrgetter(field.name) for field, mark in PAIR_MARKS)


def likeness(key: CaseKey) -> tuple[object, ...]:
    """Return what has to be equal for cases to be compared, in the order of `LIKENESSES`: of ten thousand cases there are a few such."""
    values = list(_likeness_fields(key))
    for index, value in _LIKENESSES_WORKED_OUT:
        values[index] = value(key)
    return tuple(values)


def agree(value: object, other: object) -> bool:
    """Return whether two values are equal, or one of them is not known."""
    return value is None or other is None or value == other


def are_alike(likeness_of_case: Sequence[object], likeness_of_other: Sequence[object]) -> bool:
    """Return whether two cases of these likenesses may be compared."""
    return all(map(agree, likeness_of_case, likeness_of_other))


@dataclass(frozen=True, slots=True)
class MarkedDifference:
    """A difference between two compared cases: the mark, and the values of both in words."""

    mark: str
    own: str
    other: str

    @property
    def words(self) -> str:
        """The same in words: `other threads: 1 thread against 4 threads`."""
        return f"{self.mark}: {self.own} against {self.other}"


@dataclass(frozen=True, slots=True)
class Relation:
    """How a case relates to another: the same, to be merged; like, to be compared with these marks; or unlike in these fields."""

    kind: Literal["same", "like", "unlike"]
    unlike: tuple[IdentityField, ...] = ()
    marked: tuple[MarkedDifference, ...] = ()

    @property
    def marks(self) -> tuple[str, ...]:
        """The names of the marks."""
        return tuple(difference.mark for difference in self.marked)


def relation(case: CaseKey, other: CaseKey) -> Relation:
    """Return how `case` relates to `other`."""
    if case == other:
        return Relation("same")
    unlike = tuple(field for field, _ in _unlike(case, other))
    marked = tuple(
        MarkedDifference(mark.name, field.text(case), field.text(other))
        for (field, mark), value in zip(PAIR_MARKS, _MARK_VALUES, strict=True)
        if not agree(value(case), value(other))
    )
    return Relation("unlike" if unlike else "like", unlike, marked)


def _unlike(case: CaseKey, other: CaseKey) -> Iterator[tuple[IdentityField, Likeness]]:
    for field, case_value, other_value in zip(LIKENESSES, likeness(case), likeness(other), strict=True):
        if not agree(case_value, other_value):
            yield field


# Asked for each figure of a case.
@lru_cache(maxsize=256)
def why_other_load(case: CaseKey, other: CaseKey) -> str:
    """Return why speed and energy of two cases do not compare, as of other loads; empty where they do."""
    titles = [like.title for _, like in _unlike(case, other) if like.is_load]
    return f"not at one {' nor one '.join(titles)}: other work" if titles else ""
