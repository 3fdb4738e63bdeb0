"""The review: each case of the new side compared with the same case of the baseline; unmatched cases are left out with a reason.

The same case is the same in its whole identity on the same device; where no device is on both sides, on the same board. No other baseline
takes the place of one that is missing. What may differ is what a change changes: the model's file, and the versions of runtime and agent.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.decision import ACCURACY, ENERGY, MISSED, Difference, Scale, decide, difference, sentence
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.metrics import Better, metric_name
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import (
    CaseJudgements,
    Ratios,
    SmallestDifferences,
    decide_figure,
    in_points,
    judge_case,
    ratios,
    speed_of,
    why_not_compared,
)
from edgemeter.collector.compare.pairing import value_text
from edgemeter.collector.compare.spread import median_of
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted, summaries_of, summarise
from edgemeter.collector.ledgers.place import shown_place
from edgemeter.collector.runs import selection
from edgemeter.collector.runs.cases import group_cases, grouped, named, names_of
from edgemeter.collector.runs.relation import like_with_like, load_text, relation
from edgemeter.collector.runs.store import StoreContents, oldest_first

NOTED = ("agent", "kernel", "firmware", "governor")


@dataclass(frozen=True, slots=True)
class ReviewPair:
    """One case on both sides, with a name that no other has. `changed` is what differs beneath it, in words."""

    name: str
    case: CaseSummary
    baseline: CaseSummary
    ratios: Ratios
    judgements: CaseJudgements
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnpairedCase:
    """A case that is not compared: its side, and why. `is_lost` marks a case that the baseline has and the new side ruined."""

    side: str
    what: str
    reason: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """Two cases of one device or type of board that are chosen between: names, numbers of runs, and B against A.

    `marks` are what they differ in, `where` is the device or the type of board.
    """

    a: str
    b: str
    runs: tuple[int, int]
    where: str
    differences: tuple[Difference, ...]
    sentence: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Review:
    """The pairs in the order of the baseline, and what is left out; `baseline` and `new` are the sides as given on the command line.

    Where no case is on both sides, `choice` is between the only case of each. `candidates` are the cases of the new side, and those of the
    baseline that it does not have.
    """

    baseline: str
    new: str
    pairs: tuple[ReviewPair, ...]
    left_out: tuple[UnpairedCase, ...]
    matters: SmallestDifferences
    choice: CaseChoice | None = None
    candidates: tuple[CaseSummary, ...] = ()


def review(
    baseline: tuple[str, StoreContents],
    new: tuple[str, StoreContents],
    matters: SmallestDifferences = SmallestDifferences(),  # noqa: B008 - frozen
    days: DaysCounted = "current",
) -> Review:
    """Return the review of two sides, each case's level at the end of its side or all `days`; raises ConfigError if a run is on both."""
    both = {run.id for run in baseline[1].runs} & {run.id for run in new[1].runs}
    if both:
        raise ConfigError(
            f"{len(both)} runs are on both sides ({min(both)} is one): separate the sides by ?since=, ?until=, ?device= or ?agent="
        )
    device_or_board = _place(baseline[1], new[1])
    (old, old_left_out, _), (now, new_left_out, ruined) = _side(baseline, device_or_board, days), _side(new, device_or_board, days)
    baselines = grouped((_identity(summary, device_or_board), summary) for summary in old)
    matched = {_identity(summary, device_or_board) for summary in now}
    gone = {identity: summaries[0] for identity, summaries in baselines.items() if identity not in matched}
    names = names_of(summary.key for summary in (*gone.values(), *now))
    choice = _choice(old[0], now[0], matters) if len(old) == len(now) == len(gone) == 1 else None
    pairs: list[ReviewPair] = []
    left_out = [*old_left_out, *new_left_out]
    for summary in now:
        if candidates := baselines.get(_identity(summary, device_or_board)):
            # Of several versions the baseline is the one that was measured last.
            newest = max(candidates, key=lambda candidate: candidate.newest.started_at_ns)
            compared = ratios(summary, newest)
            judgements = judge_case(summary, newest, compared, matters)
            pairs.append(ReviewPair(names[summary.key], summary, newest, compared, judgements, _changed(summary, newest)))
        elif choice is None:
            left_out.append(UnpairedCase(new[0], names[summary.key], "the baseline has no usable run of this case"))
    for identity, summary in gone.items():
        why = ruined.get(identity)
        reason = f"no usable run on the new side: {why}" if why else "not measured on the new side"
        if why or choice is None:
            left_out.append(UnpairedCase(baseline[0], names[summary.key], reason, is_lost=why is not None))
    return Review(baseline[0], new[0], tuple(pairs), tuple(left_out), matters, choice, (*now, *gone.values()))


def _place(baseline: StoreContents, new: StoreContents) -> Callable[[CaseSummary], Hashable]:
    devices = [{(run.fleet, run.device) for run in side.runs} for side in (baseline, new)]
    if devices[0] & devices[1]:
        return lambda summary: summary.device
    return lambda summary: summary.around.environment["board"]


def _side(
    side: tuple[str, StoreContents], device_or_board: Callable[[CaseSummary], Hashable], days: DaysCounted
) -> tuple[list[CaseSummary], list[UnpairedCase], dict[Hashable, str]]:
    """Return the cases of a side, what is left out of it, and by the identity of a case why a run of it is unusable."""
    name, contents = side
    cases, refused = group_cases(contents.runs)
    by_id = {run.id: run for run in contents.runs}
    left_out = [UnpairedCase(name, entry.run or "unreadable run", entry.reason) for entry in (*contents.left_out, *refused)]
    unusable: dict[Hashable, str] = {}
    for entry in refused:
        if entry.run is not None:
            # An invalid run has no case of its own; summarised alone it shows which one it would have belonged to.
            run = by_id[entry.run]
            provenance = run.provenance | dict.fromkeys(("latency", "throughput"), "measured")
            alone, _ = group_cases([msgspec.structs.replace(run, verdict=Verdict(state="ok"), provenance=provenance)])
            unusable.update({_identity(summarise(case), device_or_board): entry.reason for case in alone})
    return summaries_of(cases, days), left_out, unusable


def _identity(summary: CaseSummary, device_or_board: Callable[[CaseSummary], Hashable]) -> Hashable:
    return device_or_board(summary), like_with_like(summary.key)


def _changed(case: CaseSummary, baseline: CaseSummary) -> tuple[str, ...]:
    key, other = case.key, baseline.key
    around = [(name, baseline.around.environment[name], case.around.environment[name]) for name in NOTED]
    facts: Sequence[tuple[str, str | None, str | None]] = (
        ("device", other.device, key.device),
        ("model file", other.model_sha256[:12], key.model_sha256[:12]),
        (key.runtime_package, other.runtime_version, key.runtime_version),
        *around,
    )
    return tuple(f"{name} {before or 'none'} to {after or 'none'}" for name, before, after in facts if before != after)


def read_sides(baseline: str, new: str) -> tuple[StoreContents, StoreContents]:
    """Return the runs of two sides; a single run is on its own side only, so that it can be compared with the others of its device."""
    first, second = read_side(baseline), read_side(new)
    if len(second.runs) == 1 < len(first.runs):
        return _without(first, second), second
    return first, _without(second, first) if len(first.runs) == 1 < len(second.runs) else second


def _without(side: StoreContents, single: StoreContents) -> StoreContents:
    return StoreContents([run for run in side.runs if run.id != single.runs[0].id], side.left_out)


def read_side(text: str) -> StoreContents:
    """Return the runs of a side, `PATH[?KEY=VALUE&...]`; raises ConfigError if a file or a selector is wrong, or no run is left."""
    run_selection = selection.parse_selection(text)
    runs = oldest_first(run_selection.runs())
    if not runs:
        raise ConfigError(f"{shown_place(text)!r} has no run to compare: select others, or measure some")
    return StoreContents(runs, run_selection.unreadable)


def _choice(a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> CaseChoice | None:
    """Return the choice between two cases, None unless they are of one scenario on one device or type of board."""
    board, is_one_device = b.around.environment["board"], a.device == b.device
    if not (is_one_device or a.around.environment["board"] == board) or a.key.scenario != b.key.scenario:
        return None
    loads = dict.fromkeys(load_text(side.key) for side in (a, b))

    def called(key: CaseKey) -> str:
        name = named(key).removesuffix(f", {key.device}") if is_one_device else named(key)
        return ", ".join(filter(None, (name, load_text(key) if len(loads) > 1 else "")))

    names = names_of([a.key, b.key], called)
    where = f"{b.key.device}{f' ({board})' if board else ''}" if is_one_device else f"boards of one type ({board})"
    related = relation(b.key, a.key)
    # Models are what is chosen between, and a precision has a mark.
    unlike = [
        f"other {field.title}: {value_text(field, b)} against {value_text(field, a)}"
        for field in related.unlike
        if field.name not in ("model", "precision")
    ]
    return CaseChoice(
        names[a.key], names[b.key], (len(a.runs), len(b.runs)), where, case_differences(a, b, matters),
        case_sentence("B", "A", a, b, matters), (*(difference.words for difference in related.marked), *unlike),
    )  # fmt: skip


def case_sentence(name: str, other: str, a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> str:
    """Return what case `b`, called `name`, comes to against case `a`, called `other`."""
    doubts = [
        f"{side.disturbed} of {len(side.runs)} runs of {called} are disturbed "
        f"({', '.join(dict.fromkeys(rule for verdict in side.verdicts for rule in verdict.rules))})"
        for called, side in ((other, a), (name, b))
        if side.disturbed
    ]
    return sentence(name, other, case_differences(a, b, matters), doubts)


def case_differences(a: CaseSummary, b: CaseSummary, matters: SmallestDifferences) -> tuple[Difference, ...]:
    """Return the figures of `b` against those of `a`: latency (of an offline case throughput), missed frames, accuracy, energy."""
    missed = (MISSED,) if a.key.scenario == b.key.scenario == "steady" else ()
    figures: tuple[str, ...] = (speed_of(a), *missed, ACCURACY, ENERGY)
    return tuple(_difference(figure, a, b, matters.of(figure)) for figure in figures)


def _difference(figure: str, a: CaseSummary, b: CaseSummary, matters: float) -> Difference:
    scale: Scale = "difference" if in_points(figure) else "ratio"
    decision = decide_figure(figure, b, a, ratios(b, a), matters) or decide(None, None, matters, scale, why_not_compared(figure, b, a))
    if figure == ACCURACY:
        name = metric_name(a.accuracy.metric) if a.accuracy and decision.value is not None else "accuracy"
        values = median_of(a.accuracy_value), median_of(b.accuracy_value)
        return difference(figure, name, decision, values, a.accuracy.better if a.accuracy else "higher")
    entry = JUDGED[figure]
    better: Better = "higher" if entry.better == "higher" else "lower"
    return difference(figure, entry.unit, decision, (median_of(a.spreads.get(entry.name)), median_of(b.spreads.get(entry.name))), better)
