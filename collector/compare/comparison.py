"""Compare: runs become cases, each device case stands beside the reference case that is like it, and what is left out says why."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.collector.compare.accuracy_gate import not_ranked
from edgemeter.collector.compare.cases import CaseKey, group
from edgemeter.collector.compare.judging import Judgements, Matters, judge
from edgemeter.collector.compare.nearest import Nearest, nearest
from edgemeter.collector.compare.pairing import Pairing, is_one_class, pair
from edgemeter.collector.compare.ratios import Ratios, ratios, same_scope, withheld
from edgemeter.collector.compare.store import Contents, LeftOut
from edgemeter.collector.compare.summary import Summary, summarise

# What a mark means, for the reader of a table.
MARKS = {
    "reference": "what the others are compared with",
    "replayed": "played back from a recording: true of the recording, not of this run",
    "replayed energy": "its power was played back from a recording",
    "suspect": "a rule of measuring was broken in at least one run",
    "suspect reference": "a rule of measuring was broken in at least one run of the reference",
    "below accuracy gate": "its accuracy is too far below that of the model's most precise reference: its speed has no ratio and no rank",
    "one run": "the spread between runs is not known",
    "other precision": "the reference has another precision",
    "other class of precision": "like is not compared with like: a ratio, and no verdict",
    "other runtime": "the reference has another runtime",
    "other batch": "the reference has another batch size",
    "other energy scope": "the reference's energy is of another part of the machine, or of another provenance: no energy ratio",
    "other energy coverage": "the two meters leave out different things",
    "mixed conditions": "the runs differ in governor, kernel, firmware, libraries or mode",
    "alike": "the whole 95 % interval of p50 to the reference's lies within the smallest difference that matters",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One case beside its reference; a reference case stands beside itself. `not_ranked` is why its speed does not rank, else None."""

    case: Summary
    reference: Summary
    choice: str
    ratios: Ratios
    marks: tuple[str, ...]
    not_ranked: str | None
    judgements: Judgements = field(default_factory=Judgements)

    @property
    def is_reference(self) -> bool:
        """Whether this is a case of the reference."""
        return self.case is self.reference


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows, by model, data and scenario, the reference first; and every run that is left out, with the reason.

    `nearest` says for each case that nothing is like what it could be compared with.
    """

    reference: str
    rows: tuple[Row, ...]
    left_out: tuple[LeftOut, ...]
    nearest: tuple[Nearest, ...] = ()


def compare(contents: Contents, reference: str, matters: Matters = Matters()) -> Comparison:  # noqa: B008 - frozen
    """Return the comparison of all runs with those of `reference`: a device of this name, or else a role.

    `matters` are the smallest differences that count.

    Raises:
        UnavailableError: there is no run at all.
        ConfigError: there is no such device or role.
    """
    if not contents.runs:
        message = "the store holds no run yet: measure one with `edgemeter run --model FILE --broker ADDRESS`, or see `edgemeter demo`"
        raise UnavailableError(message)
    belongs = reference_cases((run.device for run in contents.runs), (run.role for run in contents.runs), reference)
    cases, unusable = group(contents.runs)
    return of_summaries([summarise(case) for case in cases], belongs, reference, [*contents.left_out, *unusable], matters)


def of_summaries(
    summaries: Sequence[Summary],
    belongs: Callable[[CaseKey], bool],
    reference: str,
    unusable: Sequence[LeftOut] = (),
    matters: Matters = Matters(),  # noqa: B008 - frozen
) -> Comparison:
    """Return the comparison of cases that were summed up before; `belongs` tells those of `reference`, `unusable` is left out already."""
    references = [summary for summary in summaries if belongs(summary.key)]
    # What does not rank is nothing to be compared with either.
    sound = [reference for reference in references if not_ranked(reference, references) is None]
    rows: list[Row] = []
    unlike: list[Nearest] = []
    left_out = [*unusable, *(entry for summary in summaries for entry in summary.left_out)]
    for summary in summaries:
        found = pair(summary, [summary] if belongs(summary.key) else sound)
        if isinstance(found, Pairing):
            rows.append(_row(summary, found, not_ranked(summary, references), matters))
        else:
            left_out += [LeftOut(run, found) for run in summary.around.run_ids]
            unlike += [near] if (near := nearest(summary, sound)) else []
    alone = _alone(rows)
    left_out += [LeftOut(run, "no device run to compare with this reference run") for row in alone for run in row.case.around.run_ids]
    shown = [row for row in rows if not any(row is other for other in alone)]
    left_out += [LeftOut(run, f"not ranked: {row.not_ranked}") for row in shown if row.not_ranked for run in row.case.around.run_ids]
    return Comparison(reference, tuple(sorted(shown, key=_place)), tuple(left_out), tuple(unlike))


def comparable(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows in groups that may be compared with each other: one model, one set of data, one scenario."""
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row.case.key.model, row.case.key.dataset_sha256, row.case.key.scenario), []).append(row)
    return list(grouped.values())


def reference_cases(devices: Iterable[str], roles: Iterable[str], reference: str) -> Callable[[CaseKey], bool]:
    """Return what tells the cases of `reference` from others, given the devices and roles of all runs.

    Raises:
        ConfigError: there is no such device or role.
    """
    devices, roles = sorted(set(devices)), sorted(set(roles))
    if reference in devices:
        return lambda key: key.device == reference
    if reference in roles:
        return lambda key: key.role == reference
    message = (
        f"no run is by a device or in a role called {reference!r}: devices here are {', '.join(devices)}; roles are {', '.join(roles)}"
    )
    raise ConfigError(message)


def _row(case: Summary, pairing: Pairing, why_not_ranked: str | None, matters: Matters) -> Row:
    found = ratios(case, pairing.reference)
    shown = withheld(found) if why_not_ranked else found
    judgements = judge(case, pairing.reference, shown, matters)
    marks = _marks(case, pairing.reference, judgements, why_not_ranked)
    return Row(case, pairing.reference, pairing.choice, shown, marks, why_not_ranked, judgements)


def _alone(rows: Sequence[Row]) -> list[Row]:
    """Return the reference's rows that no device case is like; none where there is no device case at all."""
    devices = [row.case for row in rows if not row.is_reference]
    ours = [row for row in rows if row.is_reference] if devices else []
    return [row for row in ours if not any(isinstance(pair(case, [row.case]), Pairing) for case in devices)]


def _place(row: Row) -> tuple[str, str, str, bool, str, float]:
    key = row.case.key
    p50 = row.case.p50_ms.median if row.case.p50_ms else float("inf")
    return key.model, key.dataset_sha256, key.scenario, not row.is_reference, key.device, p50


def _marks(case: Summary, reference: Summary, judgements: Judgements, why_not_ranked: str | None) -> tuple[str, ...]:
    own, other = case.key, reference.key
    is_itself = case is reference
    both_energy = case.energy is not None and reference.energy is not None
    found = {
        "reference": is_itself,
        "replayed": own.provenance == "replayed",
        "replayed energy": own.provenance != "replayed" and case.energy is not None and case.energy.provenance == "replayed",
        "suspect": case.suspect > 0,
        "suspect reference": reference.suspect > 0 and not is_itself,
        "below accuracy gate": why_not_ranked is not None,
        "one run": len(case.runs) == 1,
        "other precision": own.precision != other.precision,
        "other class of precision": not is_one_class(case, reference),
        "other runtime": own.runtime != other.runtime,
        "other batch": own.batch != other.batch,
        "other energy scope": both_energy and not same_scope(case, reference),
        "other energy coverage": same_scope(case, reference) and _excludes(case) != _excludes(reference),
        "mixed conditions": _is_mixed(case),
        "alike": judgements.latency is not None and judgements.latency.state == "alike",
    }
    return tuple(mark for mark in MARKS if found[mark])


def _excludes(case: Summary) -> frozenset[str]:
    return frozenset(case.energy.excludes) if case.energy else frozenset()


def _is_mixed(case: Summary) -> bool:
    around = case.around
    differs = any(" | " in (around.environment[field] or "") for field in ("governor", "kernel", "firmware"))
    return around.has_several_libraries or len(around.modes) > 1 or differs
