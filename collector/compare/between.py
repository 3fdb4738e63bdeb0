"""Two sides, of which each case of the new one is compared with the same case of a baseline.

The only case of each may also be compared with the other. Cases are the same if their whole
identity is equal on the same device, or on the same board if no device is on both sides. A missing
baseline is not replaced by another. Only the results of a change may differ: the model's file, and
the versions of runtime and agent.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgemeter.agent.base import number_text
from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.verdict.siblings import case_in_session
from edgemeter.collector.compare.case_book import book_of
from edgemeter.collector.compare.comparison import ComparedCase, Comparison, in_order
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted
from edgemeter.collector.ledgers.place import shown_place
from edgemeter.collector.runs import selection
from edgemeter.collector.runs.case_runs import FACTS
from edgemeter.collector.runs.cases import grouped, names_of, unusable
from edgemeter.collector.runs.contents import LeftOut, StoreContents, oldest_first
from edgemeter.collector.runs.relation import like_with_like
from edgemeter.collector.runs.store import MemoryStore

SAME_CASE = "the same case"  # The rule by which a case of the new side has its reference.
NOTED = ("agent", "kernel", "firmware", "governor")


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The comparison of two sides.

    `lost` are the cases (name, reason) of the baseline that the new side made unusable.
    """

    comparison: Comparison
    lost: tuple[tuple[str, str], ...] = ()


def between(
    baseline: tuple[str, StoreContents],
    new: tuple[str, StoreContents],
    matters_ratio: float = MATTERS_RATIO,
    days: DaysCounted = "current",
) -> ComparedSides:
    """Return the comparison of two sides, for each case's level at the end or all `days`.

    Raises ConfigError if both have a run.

    If no case is on both sides and each side has one, these two are compared.
    """
    ids = {run.id for run in baseline[1].runs}
    both = ids & {run.id for run in new[1].runs}
    runs = number_text.count(len(both), "run")
    if both and both == ids:
        raise ConfigError(
            f"{baseline[0]!r} and {new[0]!r} are the same {runs}: give another file, selection "
            "or run as one of the two sides"
        )
    if both:
        raise ConfigError(
            f"{runs} on both sides, such as {min(both)}: separate the sides by ?since=, ?until=, "
            "?device= or ?agent="
        )
    device_or_board = _place(baseline[1], new[1])
    old_side, new_side = (
        _side(baseline, device_or_board, days),
        _side(new, device_or_board, days),
    )
    old, now, ruined = old_side.cases, new_side.cases, new_side.ruined
    baselines = grouped((_identity(summary.subject, device_or_board), summary) for summary in old)
    matched = {_identity(summary.subject, device_or_board) for summary in now}
    gone = {
        identity: summaries[0]
        for identity, summaries in baselines.items()
        if identity not in matched
    }
    left_out = [*old_side.left_out, *new_side.left_out]
    if len(old) == len(now) == len(gone) == 1 and not ruined:
        return ComparedSides(in_order([old[0], now[0]], matters_ratio, left_out))
    names = names_of(summary.key for summary in (*gone.values(), *now))
    rows: list[ComparedCase] = []
    for summary in now:
        if candidates := baselines.get(_identity(summary.subject, device_or_board)):
            # Among several versions, the baseline is the one measured last.
            newest = max(candidates, key=lambda candidate: candidate.last_started_at_ns)
            rows.append(
                ComparedCase(
                    summary,
                    newest,
                    names[summary.key],
                    SAME_CASE,
                    None,
                    matters_ratio,
                    _changed(summary, newest),
                )
            )
        else:
            left_out.append(
                LeftOut(
                    None,
                    f"{names[summary.key]} ({new[0]}): the baseline has no usable run of this case",
                )
            )
    lost: list[tuple[str, str]] = []
    for identity, summary in gone.items():
        if why := ruined.get(identity):
            lost.append((names[summary.key], f"no usable run on the new side: {why}"))
        reason = f"no usable run on the new side: {why}" if why else "not measured on the new side"
        left_out.append(LeftOut(None, f"{names[summary.key]} ({baseline[0]}): {reason}"))
    return ComparedSides(Comparison(baseline[0], tuple(rows), tuple(left_out)), tuple(lost))


def _place(baseline: StoreContents, new: StoreContents) -> Callable[[RunSubject], Hashable]:
    devices = [{(run.fleet, run.device) for run in side.runs} for side in (baseline, new)]
    if devices[0] & devices[1]:
        return lambda subject: (subject.key.fleet, subject.key.device)
    return lambda subject: subject.environment.board


class _ReadSide(NamedTuple):
    """The cases of a side and the runs left out.

    `ruined` has by the identity of a case why a run of it is unusable.
    """

    cases: list[CaseSummary]
    left_out: list[LeftOut]
    ruined: dict[Hashable, str]


def _side(
    side: tuple[str, StoreContents],
    device_or_board: Callable[[RunSubject], Hashable],
    days: DaysCounted,
) -> _ReadSide:
    name, contents = side
    book = book_of(MemoryStore(contents.runs, contents.left_out))
    left_out = [
        LeftOut(entry.run, f"{name}: {entry.reason}", entry.device) for entry in book.left_out()
    ]
    refused = book.store.columns("is_usable = 0", names=FACTS).oldest_first()
    ruined: dict[Hashable, str] = {}
    for index, verdict in enumerate(refused.verdicts()):
        if reason := unusable(refused.subject(index), verdict):
            ruined[_identity(refused.subject(index), device_or_board)] = reason
    return _ReadSide(book.summaries(days), left_out, ruined)


def _identity(subject: RunSubject, device_or_board: Callable[[RunSubject], Hashable]) -> Hashable:
    return device_or_board(subject), like_with_like(subject.key)


def _changed(case: CaseSummary, baseline: CaseSummary) -> tuple[str, ...]:
    key, other = case.key, baseline.key
    around = [
        (name, baseline.around.environment[name], case.around.environment[name]) for name in NOTED
    ]
    facts: Sequence[tuple[str, str | None, str | None]] = (
        ("device", other.device, key.device),
        ("model file", other.model_sha256[:12], key.model_sha256[:12]),
        (key.runtime_package, other.runtime_version, key.runtime_version),
        *around,
    )
    return tuple(
        f"{name} {before or 'none'} to {after or 'none'}"
        for name, before, after in facts
        if before != after
    )


def read_sides(baseline: str, new: str) -> tuple[StoreContents, StoreContents]:
    """Return the runs of two sides.

    If one side is a part of the other, its runs count only there.
    """
    first, second = read_side(baseline), read_side(new)
    ids = [{run.id for run in side.runs} for side in (first, second)]
    if ids[0] < ids[1]:
        second = StoreContents(
            [run for run in second.runs if run.id not in ids[0]], second.left_out
        )
    elif ids[1] < ids[0]:
        first = StoreContents([run for run in first.runs if run.id not in ids[1]], first.left_out)
    return first, second


def read_side(text: str) -> StoreContents:
    """Return the runs of a side, `PATH[?KEY=VALUE&...]`, a device, or the id of a run.

    An id selects its case in its session.

    Raises:
        ConfigError: a file or a selector is wrong, or no run is left.
    """
    run_selection = selection.parse_selection(text)
    runs = oldest_first(run_selection.runs())
    if not runs:
        raise ConfigError(
            f"{shown_place(text)!r} has no run to compare: select others, or measure some"
        )
    if len(runs) == 1 and runs[0].id.startswith(text) and runs[0].session_started_at_ns:
        identity = case_in_session(runs[0])
        of_device = selection.selections_of("", {"fleet": runs[0].fleet, "device": runs[0].device})
        runs = oldest_first(run for run in of_device.runs() if case_in_session(run) == identity)
    return StoreContents(runs, run_selection.unreadable)


def compare_results(
    sides: Sequence[str],
    matters_ratio: float,
    days: DaysCounted,
    *,
    may_lack_baseline: bool = False,
) -> ComparedSides:
    """Return the comparison of results.

    Two sides are compared case by case, more sides in order, if each has one case. If the first of
    two has no run, as in a project's first comment, it is empty if it `may_lack_baseline`.

    Raises:
        ConfigError: a side cannot be read or has no run; a run is on two sides; or one of more than
            two sides has several cases.
    """
    if may_lack_baseline and len(sides) == 2:
        selection.parse_selection(sides[0])
        try:
            read_side(sides[0])
        except ConfigError as error:
            return ComparedSides(Comparison(sides[0], (), (LeftOut(None, str(error)),)))
    if len(sides) == 2:
        contents = read_sides(*sides)
        return between((sides[0], contents[0]), (sides[1], contents[1]), matters_ratio, days)
    cases, left_out = zip(*(stored_case(side, days) for side in sides), strict=True)
    runs = grouped(
        (run, side) for side, case in zip(sides, cases, strict=True) for run in case.run_ids
    )
    if both := next((places for places in runs.values() if len(places) > 1), None):
        raise ConfigError(
            f"{both[0]!r} and {both[1]!r} have the same run: give each side its own runs"
        )
    return ComparedSides(
        in_order(cases, matters_ratio, [entry for entries in left_out for entry in entries])
    )


def stored_case(side: str, days: DaysCounted = "all") -> tuple[CaseSummary, list[LeftOut]]:
    """Return the only case of a side, and the runs that are left out.

    Raises ConfigError if it has several or none.
    """
    book = book_of(MemoryStore(read_side(side).runs))
    cases, left_out = book.summaries(days), book.left_out()
    if len(cases) != 1:
        reason = (
            f"it has {len(cases)} cases: select one, as in {side + '?model=NAME'!r}"
            if cases
            else left_out[0].reason
        )
        raise ConfigError(
            f"{side!r} cannot be compared with models, or as one of more than two sides: {reason}"
        )
    return cases[0], left_out
