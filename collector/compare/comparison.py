"""Compare: runs become cases, each device case is paired with the matching reference case, and what is left out has a reason."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from edgemeter.agent.base.decision import LATENCY, ONE_DAY, Decision
from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.base.metrics import is_reached, metric_name, needed_value
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.mode_answer import ModeAnswer, mode_answers, without_mode
from edgemeter.agent.contract.record_accuracy import GATE_RATIO
from edgemeter.collector.compare.judgement import (
    CaseJudgements,
    Ratios,
    SmallestDifferences,
    decide_case,
    energies_rank,
    judgements_of,
    ratios,
    withheld,
)
from edgemeter.collector.compare.pairing import PRECISION_BITS, References
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted, summaries_of
from edgemeter.collector.runs.cases import UNKNOWN_BOARD, group_cases, grouped, named
from edgemeter.collector.runs.relation import MARKED, OTHER_CLASS, Relation, are_alike, likeness, load_text, relation
from edgemeter.collector.runs.store import LeftOut, StoreContents

# What a case shares with those that its accuracy is held against: whatever its load, they are the same model on inputs of one size.
_gated: Callable[[CaseKey], tuple[object, ...]] = attrgetter("model", "served_model", "provenance", "task", "input_values")


def not_ranked(case: CaseSummary, references: Sequence[CaseSummary]) -> str | None:
    """Return why the speed of `case` is not ranked; None if it is, or if its accuracy cannot be compared with any reference's."""
    alike = [reference for reference in references if reference is not case and _is_alike(case, reference)]
    if not alike or case.accuracy is None:
        return None
    best = max(alike, key=_precision)
    if best.accuracy is None or _bits(best) < _bits(case):
        return None
    accuracy, other = case.accuracy.value.median, best.accuracy.value.median
    threshold = needed_value(other, GATE_RATIO, case.accuracy.better)
    if is_reached(accuracy, threshold, case.accuracy.better):
        return None
    metric = metric_name(case.accuracy.metric)
    return (
        f"{named(case.key)}: {metric} {accuracy:.3f} of the {other:.3f} that {named(best.key)} has, needed {threshold:.3f} "
        f"({GATE_RATIO:.0%} of it): its speed is not ranked"
    )


def most_precise(summaries: Sequence[CaseSummary]) -> dict[str, list[CaseSummary]]:
    """Return by model the candidate baselines of a gate: the two best of each kind, so that no case is compared with itself.

    `not_ranked` gives the same result for them as for all cases, but faster where there are thousands.
    """
    kinds = grouped(((_gated(case.key), *case.accuracy.measure), case) for case in summaries if case.accuracy is not None)
    candidates: dict[str, list[CaseSummary]] = {case.key.model: [] for case in summaries}
    for cases in kinds.values():
        candidates[cases[0].key.model] += sorted(cases, key=_precision, reverse=True)[:2]
    return candidates


def _is_alike(case: CaseSummary, reference: CaseSummary) -> bool:
    accuracy, other = case.accuracy, reference.accuracy
    return (
        accuracy is not None
        and other is not None
        and accuracy.measure == other.measure
        and are_alike(_gated(case.key), _gated(reference.key))
    )


def _precision(case: CaseSummary) -> tuple[int, float]:
    """Order cases by bits, then by accuracy: of two fp32 files of one model the better is what it can do."""
    return _bits(case), case.accuracy.gain if case.accuracy else 0.0


def _bits(case: CaseSummary) -> int:
    return PRECISION_BITS.get(case.key.precision, 0)


# What a mark means, for the reader of a table.
MARKS = {
    "reference": "the case that others are compared with",
    "current level": "its level changed: only the runs since then count",
    "replayed": "replayed from a recording: true of the recording, not of this run",
    "replayed energy": "its power was replayed from a recording",
    "disturbed": "at least one run violates a measurement rule",
    "disturbed reference": "at least one run of the reference violates a measurement rule",
    "below accuracy gate": "its accuracy is too far below the most precise reference of the model: its speed is not ranked",
    "one run": "the spread between runs is not known",
    **{field.mark: f"the reference differs in {field.title}" for field in MARKED},
    OTHER_CLASS: "the precision classes differ: a ratio that is not judged",
    "other energy scope": "the reference's energy has another scope or provenance: no energy ratio",
    "other energy coverage": "the two meters exclude different parts",
    "one day": "one side was measured on one day only: nothing is settled for other days",
    "step suspected": "within the days of one side a step is suspected: the ratio, and its interval, are of both levels",
    "mixed conditions": "the runs differ in governor, kernel, firmware, libraries or mode",
    "alike": "the 95% interval of the p50 ratio lies within the smallest difference that matters",
}


@dataclass(frozen=True)
class ComparisonRow:
    """One case with its reference; the reference of a reference case is itself. `not_ranked` is why its speed is not ranked, else None.

    `boards` are the rows that a row of several boards stands for (`boards.py`), empty for one of a single board. Of thousands of rows most
    are never shown: what is said of a row is worked out when it is asked for.
    """

    case: CaseSummary
    reference: CaseSummary
    choice: str
    not_ranked: str | None
    matters: SmallestDifferences = SmallestDifferences()  # noqa: RUF009 - frozen
    boards: tuple["ComparisonRow", ...] = ()

    @cached_property
    def ratios(self) -> Ratios:
        """The case's figures against the reference's."""
        compared = ratios(self.case, self.reference)
        return withheld(compared) if self.not_ranked else compared

    @cached_property
    def judgements(self) -> CaseJudgements:
        """The judgements of the differences."""
        return judgements_of(self.decisions, self.case, self.reference)

    @cached_property
    def decisions(self) -> Mapping[str, Decision]:
        """The decisions that the judgements put into words."""
        return decide_case(self.case, self.reference, self.ratios, self.matters)

    @cached_property
    def relation(self) -> Relation:
        """How the case relates to its reference."""
        return relation(self.case.key, self.reference.key)

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """The marks of `MARKS` that the reader of the row has to know."""
        case, reference, latency = self.case, self.reference, self.decisions.get(LATENCY)
        both_energy = case.energy is not None and reference.energy is not None
        around = case.around
        decisions = self.decisions.values()
        differs = any(" | " in (around.environment[field] or "") for field in ("governor", "kernel", "firmware"))
        has_mark = {
            **{difference.mark: True for difference in self.relation.marked},
            "reference": self.is_reference,
            "current level": case.segment is not None,
            "replayed": case.key.provenance == "replayed",
            "replayed energy": case.key.provenance != "replayed" and case.energy is not None and case.energy.provenance == "replayed",
            "disturbed": case.disturbed > 0,
            "disturbed reference": reference.disturbed > 0 and not self.is_reference,
            "below accuracy gate": self.not_ranked is not None,
            "one run": case.throughput_per_s.n == 1,
            "other energy scope": both_energy and not energies_rank(case, reference),
            "other energy coverage": energies_rank(case, reference) and _excludes(case) != _excludes(reference),
            "one day": any(decision.reason == ONE_DAY for decision in decisions),
            "step suspected": any(decision.caution for decision in decisions),
            "mixed conditions": around.has_several_libraries or len(around.modes) > 1 or differs,
            "alike": latency is not None and latency.outcome == "alike",
        }
        return tuple(mark for mark in MARKS if has_mark.get(mark))

    @property
    def is_reference(self) -> bool:
        """Whether this is a case of the reference."""
        return self.case is self.reference

    @property
    def board(self) -> str:
        """The board type."""
        return self.case.board or UNKNOWN_BOARD


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows, the reference first; and every run that is left out, with the reason."""

    reference: str
    rows: tuple[ComparisonRow, ...]
    left_out: tuple[LeftOut, ...]


def compare(
    contents: StoreContents,
    reference: str,
    matters: SmallestDifferences = SmallestDifferences(),  # noqa: B008 - frozen
    days: DaysCounted = "current",
) -> Comparison:
    """Return the comparison of all runs with those of `reference`: a device of this name, or else a role.

    `matters` are the smallest differences that count, `days` is whether the current level of each case is compared or all its days.

    Raises:
        UnavailableError: there is no run.
        ConfigError: there is no such device or role.
    """
    summaries, unusable = gather(contents, days)
    belongs = reference_cases((run.device for run in contents.runs), (run.role for run in contents.runs), reference)
    return of_summaries(summaries, belongs, reference, unusable, matters)


def gather(contents: StoreContents, days: DaysCounted = "current") -> tuple[Sequence[CaseSummary], list[LeftOut]]:
    """Return the cases of all runs and what is left out; raises UnavailableError if there is no run."""
    if not contents.runs:
        raise UnavailableError(
            "the store has no run yet: measure one with `edgemeter run FILE --broker ADDRESS`, or see `edgemeter collector demo`"
        )
    cases, unusable = group_cases(contents.runs)
    return summaries_of(cases, days), [*contents.left_out, *unusable]


def of_summaries(
    summaries: Sequence[CaseSummary],
    belongs: Callable[[CaseKey], bool],
    reference: str,
    unusable: Sequence[LeftOut] = (),
    matters: SmallestDifferences = SmallestDifferences(),  # noqa: B008 - frozen
) -> Comparison:
    """Return the comparison of summarised cases; `belongs` selects those of `reference`, `unusable` is left out already."""
    references = [summary for summary in summaries if belongs(summary.key)]
    # A case that is not ranked is no reference either.
    gates = most_precise(references)
    sound = References([reference for reference in references if not_ranked(reference, gates[reference.key.model]) is None])
    rows: list[ComparisonRow] = []
    left_out = [*unusable, *(entry for summary in summaries for entry in summary.left_out)]
    for summary in summaries:
        pairing = (summary, "the reference itself") if belongs(summary.key) else sound.pair(summary)
        if isinstance(pairing, str):
            left_out += [LeftOut(run, pairing) for run in summary.run_ids]
        else:
            rows.append(ComparisonRow(summary, *pairing, not_ranked(summary, gates.get(summary.key.model, ())), matters))
    alone = _alone(rows)
    left_out += [LeftOut(run, "no device run matches this reference run") for row in alone for run in row.case.run_ids]
    hidden = set(map(id, alone))
    visible = [row for row in rows if id(row) not in hidden]
    left_out += [LeftOut(run, f"not ranked: {row.not_ranked}") for row in visible if row.not_ranked for run in row.case.run_ids]
    return Comparison(reference, tuple(sorted(visible, key=_place)), tuple(left_out))


def comparable(rows: Sequence[ComparisonRow]) -> list[list[ComparisonRow]]:
    """Return the rows in groups that may be compared with each other: one model, one set of data, one scenario, one load."""
    return list(grouped((_group(row.case.key), row) for row in rows).values())


def answers_of(comparison: Comparison) -> list[ModeAnswer]:
    """Return the answers of cases that ran in several power modes or clocks of one board; the runs of no others are read."""
    of_cases = grouped((without_mode(row.case.key), row) for row in comparison.rows).values()
    return mode_answers(run for rows in of_cases if len(rows) > 1 for row in rows for run in row.case.runs)


def _group(key: CaseKey) -> tuple[str, ...]:
    return key.model, key.served_model or "", key.dataset_sha256, key.scenario, load_text(key)


def reference_cases(devices: Iterable[str], roles: Iterable[str], reference: str) -> Callable[[CaseKey], bool]:
    """Return a test for the cases of `reference`; raises ConfigError if it is none of the devices and roles of all runs."""
    devices, roles = sorted(set(devices)), sorted(set(roles))
    if reference in devices:
        return lambda key: key.device == reference
    if reference in roles:
        return lambda key: key.role == reference
    raise ConfigError(f"no run has the device or role {reference!r}: devices are {', '.join(devices)}; roles are {', '.join(roles)}")


def _alone(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the reference's rows that no device case matches; none where there is no device case at all."""
    device_rows = [row for row in rows if not row.is_reference]
    matched = {id(row.reference) for row in device_rows}
    unmatched = [row for row in rows if row.is_reference and id(row.case) not in matched] if device_rows else []
    devices = {likeness(row.case.key) for row in device_rows} if unmatched else set()
    return [row for row in unmatched if not any(are_alike(of_device, likeness(row.case.key)) for of_device in devices)]


def _place(row: ComparisonRow) -> tuple[tuple[str, ...], bool, str, float]:
    p50 = row.case.p50_ms.median if row.case.p50_ms else float("inf")
    return _group(row.case.key), not row.is_reference, row.case.key.device, p50


def _excludes(case: CaseSummary) -> frozenset[str]:
    return frozenset(case.energy.excludes) if case.energy else frozenset()
