"""Pairing: which reference case a case is compared with, like with like, or why none; the nearest one; the rules as a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.documents import json_document
from edgemeter.agent.contract.record_conditions import TextForm
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import named

# Of two precisions the one with more bits is the better reference: the quantised model was made from it.
PRECISION_BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "int16": 15, "int8": 8, "uint8": 8, "int4": 4}

# Within a class like is compared with like; an unlisted name is a class of its own.
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
class CasePairing:
    """The reference of a case, and by which rule it was chosen."""

    reference: CaseSummary
    choice: str


@dataclass(frozen=True, slots=True)
class PairingRule:
    """One thing that has to be equal (None, not known, equals everything), and how to word it when it is not."""

    name: str
    wording: str
    value: Callable[[CaseSummary], object]
    shown: Callable[[CaseSummary], str]

    def holds(self, case: CaseSummary, reference: CaseSummary) -> bool:
        """Return whether it is equal, or not known of one of them."""
        return _agree(self.value(case), self.value(reference))

    def difference(self, case: CaseSummary, references: Sequence[CaseSummary]) -> str:
        """Return the reason why none of `references` is like `case`."""
        theirs = ", ".join(dict.fromkeys(self.shown(reference) for reference in references)) or "no usable run"
        return f"no reference {self.wording}: this is {self.shown(case)}, the reference has {theirs}"


LIKENESSES = (
    PairingRule("provenance", "of the same provenance", lambda case: case.key.provenance, lambda case: case.key.provenance),
    PairingRule("model", "for the same model", lambda case: case.key.model, lambda case: case.key.model),
    PairingRule("task", "for the same task", lambda case: case.key.task, lambda case: case.key.task),
    PairingRule("scenario", "in the same scenario", lambda case: case.key.scenario, lambda case: case.key.scenario),
    # Only where the latency is of so many samples: offline, each machine takes the batch that suits it.
    PairingRule(
        "samples a query",
        "with as many samples a query",
        lambda case: case.key.samples_per_query if case.key.scenario == "multi_stream" else None,
        lambda case: f"{case.key.samples_per_query}",
    ),
    PairingRule("rate", "at the same rate", lambda case: case.key.target_per_s, lambda case: f"{case.key.target_per_s} per s"),
    PairingRule(
        "data",
        "on the same data",
        lambda case: case.key.dataset_sha256,
        lambda case: f"{case.newest.dataset.name} ({case.key.dataset_sha256[:12]})",
    ),
    # Of a language model each is another trade of speed for quality.
    PairingRule(
        "quantisation (language models)",
        "of the same quantisation",
        lambda case: case.key.precision if case.generates else None,
        lambda case: case.key.precision,
    ),
    PairingRule(
        "sequence length",
        "of the same sequence length",
        lambda case: case.text and (case.text.tokens or 0, case.text.padding),
        lambda case: _sequence_length(case.text),
    ),
    PairingRule("input size", "at the same input size", lambda case: case.key.input_values, lambda case: f"{case.key.input_values} values"),
)


def _sequence_length(text: TextForm | None) -> str:
    if text is None:
        return "no text"
    return f"{text.tokens or 'any number of'} tokens{'' if text.padding == 'tokens' else ', not padded'}"


def _agree(mine: object, theirs: object) -> bool:
    return mine is None or theirs is None or mine == theirs


def likeness(case: CaseSummary) -> tuple[object, ...]:
    """Return what has to be equal, in the order of the rules: of ten thousand cases there are a few such."""
    return tuple(one.value(case) for one in LIKENESSES)


def are_alike(mine: tuple[object, ...], theirs: tuple[object, ...]) -> bool:
    """Return whether two cases of these likenesses may be compared."""
    return all(map(_agree, mine, theirs))


class References:
    """The cases that others are compared with; cases of one likeness are paired from the same few of them."""

    def __init__(self, cases: Sequence[CaseSummary]) -> None:
        self.cases = cases
        self._alike: dict[tuple[object, ...], tuple[Sequence[CaseSummary], PairingRule | None]] = {}
        self._paired: dict[tuple[object, ...], CasePairing] = {}

    def pair(self, case: CaseSummary) -> CasePairing | str:
        """Return the reference that `case`, itself none of them, is compared with, or the reason why none is like it.

        Equal must be: provenance (measured or replayed), model name, task, scenario with its samples a query and rate, data, the
        quantisation of a language model, and input size where both are known. Of several, the same precision on the same runtime comes
        first, then the same class of precision, then the highest precision; then the same runtime, valid before suspect, the same batch,
        the lowest p50.
        """
        own = likeness(case)
        if own not in self._alike:
            self._alike[own] = self._narrowed(own)
        alike, unlike = self._alike[own]
        if unlike is not None:
            return unlike.difference(case, alike)
        # All that `_rank` and `_choice` read of a case.
        kind = (own, case.key.precision, case.key.runtime, case.key.batch)
        if kind not in self._paired:
            best = min(alike, key=lambda reference: _rank(case, reference))
            self._paired[kind] = CasePairing(best, _choice(case, best, alike))
        return self._paired[kind]

    def _narrowed(self, own: tuple[object, ...]) -> tuple[Sequence[CaseSummary], PairingRule | None]:
        """Return the references that are alike, and None; or those alike in all before a rule that none of them meets, and the rule."""
        alike = self.cases
        for rule, mine in zip(LIKENESSES, own, strict=True):
            narrowed = [reference for reference in alike if _agree(mine, rule.value(reference))]
            if not narrowed:
                return alike, rule
            alike = narrowed
        return alike, None


def precision_class(precision: str) -> str:
    """Return the class of a precision: `full` for fp32; of one that is not known its own name."""
    return _CLASS_OF.get(precision, precision)


def is_one_class(case: CaseSummary, reference: CaseSummary) -> bool:
    """Return whether both are of one class of precision."""
    return precision_class(case.key.precision) == precision_class(reference.key.precision)


def _rank(case: CaseSummary, reference: CaseSummary) -> tuple[bool, bool, int, bool, bool, bool, float]:
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


def _same_kind(case: CaseSummary, reference: CaseSummary) -> bool:
    return (case.key.precision, case.key.runtime) == (reference.key.precision, reference.key.runtime)


def _choice(case: CaseSummary, best: CaseSummary, alike: Sequence[CaseSummary]) -> str:
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


class CaseDifference(msgspec.Struct, frozen=True):
    """One thing in which a case is unlike its nearest: what it has itself, and what it would need to have."""

    what: str
    own: str
    nearest: str


class NearestCase(msgspec.Struct, frozen=True):
    """An unmatched case, its runs, the reference case that differs from it the least, and in what."""

    case: str
    runs: tuple[str, ...]
    reference: str
    differs_in: tuple[CaseDifference, ...]

    def words(self) -> str:
        """Return in a sentence what to measure."""
        what = "; ".join(f"{one.what}: {one.own}, there {one.nearest}" for one in self.differs_in)
        return f"nearest to {self.case} is {self.reference}, which differs in {what}"


def nearest(case: CaseSummary, references: Sequence[CaseSummary]) -> NearestCase | None:
    """Return the reference that differs from `case` in the fewest things, None where there is none or one that differs in nothing.

    A different model or task is the farthest: it counts for more than all the rest together.
    """
    if not references:
        return None
    best = min(references, key=lambda reference: _distance(case, reference))
    differences = tuple(CaseDifference(one.name, one.shown(case), one.shown(best)) for one in _differing(case, best))
    if not differences:
        return None
    return NearestCase(named(case.key), tuple(case.run_ids), named(best.key), differences)


def _differing(case: CaseSummary, reference: CaseSummary) -> list[PairingRule]:
    return [one for one in LIKENESSES if not one.holds(case, reference)]


def _distance(case: CaseSummary, reference: CaseSummary) -> tuple[int, bool, int]:
    differing = _differing(case, reference)
    grave = sum(one.name in ("model", "task") for one in differing)
    is_other_precision = case.key.precision != reference.key.precision
    return grave * len(LIKENESSES) + len(differing), is_other_precision, -PRECISION_BITS.get(reference.key.precision, 0)


Row = dict[str, str]

_WHY = {
    "provenance": "a replay is true of its recording only",
    "model": "different networks do different work",
    "task": "classification and detection are different tasks",
    "scenario": "single queries and batches measure different things",
    "samples a query": "a query of eight samples takes longer than one of one; multi_stream only",
    "rate": "waiting times depend on the rate; open loop only",
    "data": "accuracy and latency depend on the images (compared by hash)",
    "quantisation (language models)": "a file of 4 bits is faster and another model; compare their quality first",
    "sequence length": "more tokens take longer, and padding counts; text only",
    "input size": "more pixels take longer; the layout does not matter",
}


def comparability_rules() -> list[Row]:
    """Return what two cases must share, in the order of the checks, and what happens if they differ."""
    classes = "; ".join(f"{name}: {', '.join(members)}" for name, members in PRECISION_CLASSES.items())
    left_out = "left out, with the nearest comparable case"
    equal = [_comparability_row(one.name, "equal, where both are known", left_out, _WHY[one.name]) for one in LIKENESSES]
    return [
        _comparability_row("verdict", "valid or suspect", "an invalid run is left out; suspect ones are marked", "its own rules reject it"),
        *equal,
        _comparability_row(
            "accuracy gate",
            "enough of the most precise reference's accuracy",
            "no ratio and no rank",
            "a fast but wrong model has no speed to compare",
        ),
        _comparability_row("class of precision", "equal", "a marked ratio without a verdict", classes),
        _comparability_row(
            "energy's scope and provenance",
            "equal",
            "no ratio, no rank, not on one chart, not in one series",
            "a board's input and a wall socket measure different things; a replay is no measurement of this board",
        ),
        _comparability_row("metric, images and data of the accuracy", "equal", "no difference", "AP minus top-1 is meaningless"),
        _comparability_row("runtime, backend, threads, batch", "preferred equal", "marked", "each machine uses what suits it"),
        _comparability_row(
            "runs", "three on each side", "a ratio without an interval and without a verdict", "fewer runs do not show the spread"
        ),
    ]


def comparability_kinds() -> list[Row]:
    """Return which kinds of figures are compared with which."""
    return [
        _comparability_kind("measured", "measured", "yes", "by the same agent; a server has the role `reference`"),
        _comparability_kind("replayed", "replayed", "marked", "replayed from a recording"),
        _comparability_kind("estimated", "nothing", "no", "shown as a reason, not as a figure"),
        _comparability_kind(
            "imported (MLPerf)", "compatible MLPerf results", "no", "shown separately with the footnote that MLCommons requires"
        ),
        _comparability_kind("published", "nothing", "no", "shown with source, version, date and conditions"),
    ]


def comparability_json() -> str:
    """Return both tables as JSON."""
    return json_document({"comparing": comparability_rules(), "kinds": comparability_kinds()})


def comparability_markdown() -> str:
    """Return both tables as Markdown."""
    return f"{_markdown(comparability_rules())}\n{_markdown(comparability_kinds())}"


def _comparability_row(what: str, asked: str, otherwise: str, why: str) -> Row:
    return {"what": what, "asked": asked, "otherwise": otherwise, "why": why}


def _comparability_kind(kind: str, beside: str, ranks: str, note: str) -> Row:
    return {"kind": kind, "stands beside": beside, "ranks": ranks, "note": note}


def _markdown(rows: Sequence[Row]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *(list(row.values()) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
