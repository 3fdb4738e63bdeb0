"""The cases that are chosen among: without suspect runs, and over the boards of a type where three and more show its spread."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.run_statistics import FEWEST, median_interval
from edgemeter.collector.compare.spread import MedianInterval, Spread
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.runs.cases import CaseRuns, grouped


def without_suspect(case: CaseSummary) -> CaseSummary:
    """Return the case without its suspect runs, of which nothing is certain; as it is where it has no others."""
    if not case.suspect or case.suspect == len(case.run_ids):
        return case
    return summarise(CaseRuns(case.key, tuple(run for run in case.runs if run.verdict.state == "valid"), case.segment))


def over_boards(cases: Sequence[CaseSummary]) -> list[CaseSummary]:
    """Return the cases, the same one on three and more boards of a type as one case, whose figures are over these boards.

    Fewer boards do not show how far those of a type lie apart, and stay cases of their own.
    """
    by_type = grouped((_of_type(case), case) for case in cases)
    merged: list[CaseSummary] = []
    for members in by_type.values():
        board, devices = members[0].around.environment["board"], {case.device for case in members}
        merged += [_merged(board, members)] if board and len(devices) == len(members) >= FEWEST else members
    return merged


def _of_type(case: CaseSummary) -> tuple[object, ...]:
    key = msgspec.structs.replace(case.key, device="", fleet="", role="")
    return case.around.environment["board"], key, case.energy.ranks_as if case.energy else None


def _merged(board: str, members: Sequence[CaseSummary]) -> CaseSummary:
    newest = max(members, key=lambda case: case.around.first_started_at_ns)
    name = f"{board}, {figures.count(len(members), 'board')}"
    names = {figure for case in members for figure in case.spreads}
    spreads = {figure: _spread([case.spreads[figure] for case in members if figure in case.spreads]) for figure in sorted(names)}
    uncertain = {figure for figure in newest.uncertainties if all(figure in case.uncertainties for case in members)}
    return replace(
        newest,
        key=msgspec.structs.replace(newest.key, device=name, fleet="", role=""),
        run_ids=tuple(run for case in members for run in case.run_ids),
        spreads=spreads,
        p50_ms=spreads.get("latency_p50_ms"),
        uncertainties={figure: max(case.uncertainties[figure] for case in members) for figure in uncertain},
        suspect=sum(case.suspect for case in members),
    )


def _spread(of_boards: Sequence[Spread]) -> Spread:
    medians = [spread.median for spread in of_boards]
    middle, runs = median(medians), sum(spread.n for spread in of_boards)
    bounds = median_interval(medians) if min(medians) > 0 else None
    interval = None
    if bounds is not None:
        days = max((spread.interval.days for spread in of_boards if spread.interval), default=1)
        interval = MedianInterval(min(bounds.low, middle), max(bounds.high, middle), "device", len(medians), len(medians), days, runs)
    return Spread(middle, min(spread.low for spread in of_boards), max(spread.high for spread in of_boards), runs, interval)
