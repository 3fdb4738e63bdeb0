"""Pairing finds the reference that a case is compared with, or why there is none.

The rules are also given as a table.
"""

from collections.abc import Sequence
from operator import attrgetter, ne

from edgemeter.agent.contract.case_identity import IdentityField
from edgemeter.agent.contract.record_accuracy import GATE_RATIO
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.relation import (
    EQUAL,
    MARKED,
    OTHER_CLASS,
    PRECISION_CLASSES,
    agree,
    likeness,
    precision_class,
)

# The precision with more bits is the better reference: the quantised model was made from it.
PRECISION_BITS = {
    "fp64": 64,
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "int16": 15,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
}
# The fields that should be equal where possible, after precision and runtime.
EQUAL_IF_KNOWN = "equal, if both are known"
preferred_equal = attrgetter(
    *(field.name for field in MARKED if field.name not in ("precision", "runtime"))
)


def value_text(field: IdentityField, case: CaseSummary) -> str:
    """Return the value of a field in words, for data with their name."""
    return (
        f"{case.subject.dataset.name} ({case.key.dataset_sha256[:12]})"
        if field.name == "dataset_sha256"
        else field.text(case.key)
    )


class References:
    """The cases that others are compared with, grouped by the fields that must be equal."""

    def __init__(self, cases: Sequence[CaseSummary]) -> None:
        self.cases = cases
        self._likenesses = [(case, likeness(case.key)) for case in cases]
        self._alike: dict[
            tuple[object, ...], tuple[Sequence[CaseSummary], IdentityField | None]
        ] = {}
        self._paired: dict[tuple[object, ...], tuple[CaseSummary, str]] = {}

    def pair(self, case: CaseSummary) -> tuple[CaseSummary, str] | str:
        """Return the reference of `case` and the rule that selected it.

        Without one, it is the reason why there is none. The fields that must be equal are in
        `case_identity.FIELDS`. Among several, the same precision on the same runtime comes first,
        then the same class of precision, then the highest precision; then the same runtime, ok
        before disturbed, the fewest marks, the lowest p50.
        """
        shared = likeness(case.key)
        if shared not in self._alike:
            self._alike[shared] = self._narrowed(shared)
        alike, unlike = self._alike[shared]
        if unlike is not None:
            values = (
                ", ".join(dict.fromkeys(value_text(unlike, reference) for reference in alike))
                or "no usable run"
            )
            return (
                f"no reference with the same {unlike.title}: this is {value_text(unlike, case)}, "
                f"the reference has {values}"
            )
        # The facts of a case that `_rank` and `_choice` read.
        kind = (shared, case.key.precision, case.key.runtime, preferred_equal(case.key))
        if kind not in self._paired:
            best = min(alike, key=lambda reference: _rank(case, reference))
            self._paired[kind] = best, _choice(case, best, alike)
        return self._paired[kind]

    def _narrowed(
        self, shared: tuple[object, ...]
    ) -> tuple[Sequence[CaseSummary], IdentityField | None]:
        """Return the matching references, and None.

        Else it is those that match up to a field in which none does, and the field.
        """
        alike = self._likenesses
        for index, field in enumerate(EQUAL):
            narrowed = [
                candidate for candidate in alike if agree(shared[index], candidate[1][index])
            ]
            if not narrowed:
                return [reference for reference, _ in alike], field
            alike = narrowed
        return [reference for reference, _ in alike], None


def is_one_class(case: CaseSummary, reference: CaseSummary) -> bool:
    return precision_class(case.key.precision) == precision_class(reference.key.precision)


def _rank(
    case: CaseSummary, reference: CaseSummary
) -> tuple[bool, bool, int, bool, bool, int, float]:
    return (
        not _same_kind(case, reference),
        not is_one_class(case, reference),
        -PRECISION_BITS.get(reference.key.precision, 0),
        reference.key.runtime != case.key.runtime,
        reference.disturbed > 0,
        sum(map(ne, preferred_equal(case.key), preferred_equal(reference.key))),
        reference.p50_ms.value if reference.p50_ms else float("inf"),
    )


def _same_kind(case: CaseSummary, reference: CaseSummary) -> bool:
    return (case.key.precision, case.key.runtime) == (
        reference.key.precision,
        reference.key.runtime,
    )


def _choice(case: CaseSummary, best: CaseSummary, alike: Sequence[CaseSummary]) -> str:
    ties = sum(_same_kind(best, reference) for reference in alike)
    among = f"; the first of {ties} such by verdict, settings and p50" if ties > 1 else ""
    if _same_kind(case, best):
        return f"same precision and runtime{among}"
    missing = f"the reference has no {case.key.precision} on {case.key.runtime}"
    if PRECISION_BITS.get(best.key.precision, 0) < max(
        PRECISION_BITS.get(reference.key.precision, 0) for reference in alike
    ):
        rule = "the same class of precision"
    else:
        rule = "the only kind there is" if len(alike) == ties else "the highest precision there is"
    return f"{rule} ({best.key.precision} on {best.key.runtime}{among}): {missing}"


def comparability_rules() -> list[dict[str, str]]:
    """Return what a case and its reference must share, and what happens if they differ.

    It is in the order of the checks.
    """
    classes = "; ".join(
        f"{name} ({', '.join(members)})" for name, members in PRECISION_CLASSES.items()
    )
    marked = ", ".join(field.title for field in MARKED)
    left_out = "left out"
    rows = [
        ("verdict", "ok or disturbed", left_out, "the figures of an invalid run are wrong"),
        *(
            (field.title, EQUAL_IF_KNOWN, left_out, field.why)
            for field in EQUAL
            if field.rule == "equal"
        ),
        (
            "precision of language models",
            EQUAL_IF_KNOWN,
            left_out,
            "a 4-bit file is faster, but it is another model: compare their quality first",
        ),
        (
            "accuracy gate",
            f"{GATE_RATIO:.0%} of the accuracy of the most precise reference",
            "its speed is not compared",
            "the speed of an inaccurate model is meaningless",
        ),
        (
            "class of precision",
            "equal if possible",
            f"marked `{OTHER_CLASS}`",
            f"fewer bits are faster; the classes are {classes}",
        ),
        (
            "energy's scope and provenance",
            "equal",
            "the energies are not compared",
            (
                "a board's input and a wall socket measure different things; a replay is no "
                "measurement of this board"
            ),
        ),
        (
            "metric, images and data of the accuracy",
            "equal",
            "the accuracies are not compared",
            "AP minus top-1 is meaningless",
        ),
        (
            marked,
            "equal if possible",
            "marked `other threads` and so on",
            "they change the figures, which may be what you want to see",
        ),
        (
            "runs",
            "three on each side",
            "a change without an interval, which is inconclusive",
            "fewer runs do not show the spread",
        ),
    ]
    return [dict(zip(("what", "asked", "otherwise", "why"), row, strict=True)) for row in rows]
