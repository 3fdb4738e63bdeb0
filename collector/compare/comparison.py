"""Compare.

Runs become cases, each case is compared with its reference, and omissions have a reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_uppercase
from typing import Literal

from edgemeter.agent.base.decision import MATTERS_RATIO, Decision
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.figures import ACCURACY
from edgemeter.agent.contract.mode_answer import ModeAnswer, mode_answers, without_mode
from edgemeter.agent.contract.series import UNKNOWN_BOARD
from edgemeter.collector.compare.accuracy_and_energy import read_parts
from edgemeter.collector.compare.accuracy_gate import most_precise, not_ranked
from edgemeter.collector.compare.case_book import CaseBook
from edgemeter.collector.compare.choice import Choice
from edgemeter.collector.compare.figure_differences import (
    Contrast,
    decided,
    deciding,
    energies_rank,
)
from edgemeter.collector.compare.limits import GateLimit
from edgemeter.collector.compare.pairing import References
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.runs.cases import grouped, named
from edgemeter.collector.runs.contents import LeftOut
from edgemeter.collector.runs.relation import (
    MARKED,
    OTHER_CLASS,
    Relation,
    are_alike,
    likeness,
    load_text,
    relation,
)

RECOMMENDED = "the recommended one"  # The rule by which a candidate of a choice has its reference.
GateOutcome = Literal["pass", "fail", "inconclusive"]
WORST_FIRST: tuple[GateOutcome, ...] = ("fail", "inconclusive", "pass")
# The meaning of each mark, for the reader of a table.
MARKS = {
    "reference": "the case that others are compared with",
    "current level": "its level changed, so that only the runs since then count",
    "replayed": "the figures are those of a recording, not of this run",
    "replayed energy": "its power was replayed from a recording",
    "disturbed": "a counted run violates a measurement rule",
    "disturbed reference": "a counted run of the reference violates a measurement rule",
    "below accuracy gate": (
        "its speed is not ranked, because its accuracy is too far below that of the "
        "most precise reference"
    ),
    "one run": "the spread between runs is not known",
    **{field.mark: f"the reference differs in {field.title}" for field in MARKED},
    OTHER_CLASS: "the precision classes differ",
    "other energy scope": (
        "the reference's energy has another scope or provenance, so that the energies "
        "do not compare"
    ),
    "other energy coverage": "the two meters exclude different parts",
    "mixed conditions": "the runs differ in governor, kernel, firmware, libraries or mode",
}


@dataclass(frozen=True, slots=True)
class GateFinding:
    """A limit for a case, and its outcome.

    It is the deciding change of the `figure`, or None with a reason.
    """

    limit: GateLimit
    case: str
    outcome: GateOutcome
    figure: str = ""
    change: Decision | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """The findings on a change, by limit and case.

    It also has the result of the check if they are inconclusive.
    """

    findings: tuple[GateFinding, ...]
    if_inconclusive: Literal["fail", "pass"] = "fail"

    @property
    def outcome(self) -> GateOutcome:
        """The worst of them; inconclusive if nothing was compared."""
        return min(
            (finding.outcome for finding in self.findings),
            key=WORST_FIRST.index,
            default="inconclusive",
        )

    @property
    def is_passed(self) -> bool:
        return (self.if_inconclusive if self.outcome == "inconclusive" else self.outcome) == "pass"


@dataclass(frozen=True)
class ComparedCase:
    """A case with its reference; the reference of a reference is itself.

    `name` is unique among the compared cases. `choice` is the rule by which the reference was
    selected, `not_ranked` is why its speed is not ranked, and `changed` are the differences of the
    two. `boards` are the cases combined in a row of several boards (`boards.py`), empty for a
    single board. `limited` are the findings of a gate on it, and `chosen_by` is the figure of a
    choice with its decision. Most of thousands of cases are never shown, so facts about a case are
    computed on demand.
    """

    case: CaseSummary
    reference: CaseSummary
    name: str = ""
    choice: str = ""
    not_ranked: str | None = None
    matters_ratio: float = MATTERS_RATIO
    changed: tuple[str, ...] = ()
    boards: tuple["ComparedCase", ...] = ()
    limited: tuple[GateFinding, ...] = ()
    chosen_by: tuple[tuple[str, Decision], ...] = ()

    @cached_property
    def decisions(self) -> Mapping[str, Decision]:
        """The decisions on the compared figures, by name; a speed that is not ranked has none."""
        if self.is_reference:
            return {}
        limited = dict(self.chosen_by) | {
            finding.figure: finding.change for finding in self.limited if finding.change
        }
        names = deciding(self.case, self.reference)
        contrasts = {
            name: Contrast(name, self.case, self.reference)
            for name in names
            if name not in limited and (name == ACCURACY or not self.not_ranked)
        }
        decisions = decided(contrasts, self.matters_ratio) | limited
        return {
            name: decisions[name] for name in dict.fromkeys((*names, *limited)) if name in decisions
        }

    @property
    def within_limits(self) -> set[str]:
        """The figures within their limits.

        Still more runs are needed to decide between better, worse and no difference.
        """
        open_limits = {finding.figure for finding in self.limited if finding.outcome != "pass"}
        limited = {finding.figure for finding in self.limited} - open_limits
        return {
            name
            for name, decision in self.decisions.items()
            if decision.outcome == "inconclusive" and name in limited
        }

    @cached_property
    def relation(self) -> Relation:
        return relation(self.case.key, self.reference.key)

    @cached_property
    def marks(self) -> tuple[str, ...]:
        case, reference = self.case, self.reference
        both_energy = case.energy is not None and reference.energy is not None
        around = case.around
        differs = any(
            " | " in (around.environment[field] or "")
            for field in ("governor", "kernel", "firmware")
        )
        has_mark = {
            **{difference.mark: True for difference in self.relation.marked},
            "reference": self.is_reference,
            "current level": case.segment is not None,
            "replayed": case.key.provenance == "replayed",
            "replayed energy": case.key.provenance != "replayed"
            and case.energy is not None
            and case.energy.provenance == "replayed",
            "disturbed": case.disturbed > 0,
            "disturbed reference": reference.disturbed > 0 and not self.is_reference,
            "below accuracy gate": self.not_ranked is not None,
            "one run": case.size == 1,
            "other energy scope": both_energy and not energies_rank(case, reference),
            "other energy coverage": energies_rank(case, reference)
            and _excludes(case) != _excludes(reference),
            "mixed conditions": around.has_several_libraries or len(around.modes) > 1 or differs,
        }
        return tuple(mark for mark in MARKS if has_mark.get(mark))

    @property
    def is_reference(self) -> bool:
        return self.case is self.reference

    @property
    def board(self) -> str:
        return self.case.board or UNKNOWN_BOARD


@dataclass(frozen=True, slots=True)
class Comparison:
    """The cases, those of the reference first.

    Every run or case that is left out is there with the reason. `choice` is the choice among the
    cases, `gate` the findings on the limits of a change; None if not requested.
    """

    reference: str
    rows: tuple[ComparedCase, ...]
    left_out: tuple[LeftOut, ...] = ()
    choice: Choice | None = None
    gate: Gate | None = None

    @property
    def compared(self) -> list[ComparedCase]:
        """The rows without those of the reference."""
        return [row for row in self.rows if not row.is_reference]


def compare(
    book: CaseBook,
    reference: str,
    matters_ratio: float = MATTERS_RATIO,
    days: DaysCounted = "current",
) -> Comparison:
    """Return the comparison of all runs with those of `reference`.

    That is a device of this name, or else a role. `matters_ratio` is the smallest ratio that
    counts, `days` selects the current level of each case or all its days.

    Raises:
        UnavailableError: there is no run.
        ConfigError: there is no such device or role.
    """
    summaries = book.summaries(days)
    keys = [case.key for case in book.cases]
    belongs = reference_cases((key.device for key in keys), (key.role for key in keys), reference)
    return of_summaries(summaries, belongs, reference, book.left_out(), matters_ratio)


def in_order(
    cases: Sequence[CaseSummary],
    matters_ratio: float = MATTERS_RATIO,
    left_out: Sequence[LeftOut] = (),
) -> Comparison:
    """Return the comparison of cases, called A, B, C, ..., each with the first."""
    names = ascii_uppercase[: len(cases)]
    gates = most_precise(cases)
    rows = [
        ComparedCase(
            case,
            cases[0],
            name,
            "the first",
            not_ranked(case, gates[case.key.model]),
            matters_ratio,
        )
        for case, name in zip(cases, names, strict=True)
    ]
    return Comparison("A", tuple(rows), tuple(left_out))


def of_choice(choice: Choice, matters_ratio: float = MATTERS_RATIO) -> Comparison:
    """Return the comparison of the candidates of a choice with the recommended one.

    Without one it is with the first.
    """
    best = choice.recommended or choice.candidates[0]
    chosen_as = RECOMMENDED if choice.recommended else "the first"
    rows = [
        ComparedCase(
            candidate.case,
            best.case,
            candidate.name,
            chosen_as,
            candidate.out or None,
            matters_ratio,
        )
        for candidate in choice.candidates
    ]
    return with_choice(Comparison(best.name, tuple(rows)), choice)


def with_choice(comparison: Comparison, choice: Choice) -> Comparison:
    """Return the comparison with a choice among its cases, by their names.

    The figure of the choice shows the choice's decision.
    """
    names = {id(row.case): row.name for row in comparison.rows}
    named_candidates = {
        id(entry): replace(entry, name=names.get(id(entry.case), entry.name))
        for entry in choice.candidates
    }
    choice = replace(
        choice,
        candidates=tuple(named_candidates.values()),
        recommended=named_candidates[id(choice.recommended)] if choice.recommended else None,
        similar=tuple(named_candidates[id(entry)] for entry in choice.similar),
    )
    best = choice.recommended.case if choice.recommended else None
    against_best = {id(candidate.case): candidate.against_best for candidate in choice.candidates}

    def chosen_by(row: ComparedCase) -> tuple[tuple[str, Decision], ...]:
        if row.reference is best and (change := against_best.get(id(row.case))):
            return ((choice.cheapest.name, change),)
        if row.case is best and (change := against_best.get(id(row.reference))):
            return ((choice.cheapest.name, change.mirrored),)
        return ()

    return replace(
        comparison,
        rows=tuple(replace(row, chosen_by=chosen_by(row)) for row in comparison.rows),
        choice=choice,
    )


def of_summaries(
    summaries: Sequence[CaseSummary],
    belongs: Callable[[CaseKey], bool],
    reference: str,
    unusable: Sequence[LeftOut] = (),
    matters_ratio: float = MATTERS_RATIO,
) -> Comparison:
    """Return the comparison of summarised cases.

    `belongs` selects those of `reference`, `unusable` is left out already.
    """
    references = [summary for summary in summaries if belongs(summary.key)]
    # A case that is not ranked cannot be a reference either.
    gates = most_precise(references)
    sound = References(
        [
            reference
            for reference in references
            if not_ranked(reference, gates[reference.key.model]) is None
        ]
    )
    rows: list[ComparedCase] = []
    left_out = [*unusable, *(entry for summary in summaries for entry in summary.left_out)]
    for summary in summaries:
        pairing = (summary, "the reference itself") if belongs(summary.key) else sound.pair(summary)
        if isinstance(pairing, str):
            left_out += [LeftOut(run, pairing) for run in summary.run_ids]
        else:
            rows.append(
                ComparedCase(
                    summary,
                    pairing[0],
                    named(summary.key),
                    pairing[1],
                    not_ranked(summary, gates.get(summary.key.model, ())),
                    matters_ratio,
                )
            )
    read_parts(
        accuracy
        for row in rows
        if not row.is_reference
        for case in (row.case, row.reference)
        if (accuracy := case.accuracy)
    )
    alone = _alone(rows)
    left_out += [
        LeftOut(run, "no device run matches this reference run")
        for row in alone
        for run in row.case.run_ids
    ]
    hidden = set(map(id, alone))
    visible = [row for row in rows if id(row) not in hidden]
    left_out += [
        LeftOut(run, f"not ranked: {row.not_ranked}")
        for row in visible
        if row.not_ranked
        for run in row.case.run_ids
    ]
    return Comparison(reference, tuple(sorted(visible, key=_place)), tuple(left_out))


def comparable(rows: Sequence[ComparedCase]) -> list[list[ComparedCase]]:
    """Return the rows in groups that may be compared with each other.

    A group has one model, one set of data, one scenario and one load.
    """
    return list(grouped((_group(row.case.key), row) for row in rows).values())


def answers_of(comparison: Comparison) -> list[ModeAnswer]:
    """Return the answers for cases in several power modes or clocks of one board.

    Other runs are not read.
    """
    of_cases = grouped((without_mode(row.case.key), row) for row in comparison.rows).values()
    return mode_answers(
        run for rows in of_cases if len(rows) > 1 for row in rows for run in row.case.records()
    )


def _group(key: CaseKey) -> tuple[str, ...]:
    return key.model, key.served_model or "", key.dataset_sha256, key.scenario, load_text(key)


def reference_cases(
    devices: Iterable[str], roles: Iterable[str], reference: str
) -> Callable[[CaseKey], bool]:
    """Return a test for the cases of `reference`.

    Raises ConfigError if it is none of the devices and roles of all runs.
    """
    devices, roles = sorted(set(devices)), sorted(set(roles))
    if reference in devices:
        return lambda key: key.device == reference
    if reference in roles:
        return lambda key: key.role == reference
    raise ConfigError(
        f"no run has the device or role {reference!r}: devices are {', '.join(devices)}; roles "
        f"are {', '.join(roles)}"
    )


def _alone(rows: Sequence[ComparedCase]) -> list[ComparedCase]:
    """Return the reference's rows without a matching device case.

    There are none if there is no device case at all.
    """
    device_rows = [row for row in rows if not row.is_reference]
    matched = {id(row.reference) for row in device_rows}
    unmatched = (
        [row for row in rows if row.is_reference and id(row.case) not in matched]
        if device_rows
        else []
    )
    devices = {likeness(row.case.key) for row in device_rows} if unmatched else set()
    return [
        row
        for row in unmatched
        if not any(are_alike(of_device, likeness(row.case.key)) for of_device in devices)
    ]


def _place(row: ComparedCase) -> tuple[tuple[str, ...], bool, str, float]:
    p50 = row.case.p50_ms.value if row.case.p50_ms else float("inf")
    return _group(row.case.key), not row.is_reference, row.case.key.device, p50


def _excludes(case: CaseSummary) -> frozenset[str]:
    return frozenset(case.energy.excludes) if case.energy else frozenset()
