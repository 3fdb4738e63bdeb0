"""The nearest comparable case: what a case could be compared with if it were measured otherwise, where nothing is like it."""

from collections.abc import Sequence

import msgspec

from edgemeter.collector.compare.naming import named
from edgemeter.collector.compare.pairing import LIKENESSES, PRECISION_BITS, Likeness
from edgemeter.collector.compare.summary import Summary


class Difference(msgspec.Struct, frozen=True):
    """One thing in which a case is not like its nearest: what it has itself, and what it would need to have."""

    what: str
    own: str
    nearest: str


class Nearest(msgspec.Struct, frozen=True):
    """A case that nothing is like, its runs, the reference case that differs from it in the least, and in what."""

    case: str
    runs: tuple[str, ...]
    reference: str
    differs_in: tuple[Difference, ...]

    def words(self) -> str:
        """Return the sentence that says what to measure."""
        what = "; ".join(f"{one.what}: {one.own}, there {one.nearest}" for one in self.differs_in)
        return f"nearest to {self.case} is {self.reference}, which differs in {what}"


def nearest(case: Summary, references: Sequence[Summary]) -> Nearest | None:
    """Return the reference that differs from `case` in the fewest things, None where there is none or one that differs in nothing.

    A different model or task is the farthest: it counts for more than all the rest together.
    """
    if not references:
        return None
    best = min(references, key=lambda reference: _distance(case, reference))
    differences = tuple(Difference(one.name, one.shown(case), one.shown(best)) for one in _differing(case, best))
    if not differences:
        return None
    return Nearest(named(case.key), case.around.run_ids, named(best.key), differences)


def _differing(case: Summary, reference: Summary) -> list[Likeness]:
    return [one for one in LIKENESSES if not one.holds(case, reference)]


def _distance(case: Summary, reference: Summary) -> tuple[int, bool, int]:
    differing = _differing(case, reference)
    grave = sum(one.name in ("model", "task") for one in differing)
    is_other_precision = case.key.precision != reference.key.precision
    return grave * len(LIKENESSES) + len(differing), is_other_precision, -PRECISION_BITS.get(reference.key.precision, 0)
