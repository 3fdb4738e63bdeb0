"""The cases that are chosen among: without suspect runs, and over the boards of a type where three and more show its spread."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from edgemeter.agent.base import figures
from edgemeter.agent.base.run_statistics import FEWEST, MATTERS_ACCURACY
from edgemeter.collector.compare.boards import summary_of_boards
from edgemeter.collector.compare.summary import CaseSummary, summarise
from edgemeter.collector.runs.cases import CaseRuns, grouped

# So many boards that deviate are named.
_NAMED = 3


def without_suspect(case: CaseSummary) -> CaseSummary:
    """Return the case without its suspect runs, of which nothing is certain; as it is where it has no others."""
    if not case.suspect or case.suspect == len(case.run_ids):
        return case
    return summarise(CaseRuns(case.key, tuple(run for run in case.runs if run.verdict.state == "valid"), case.segment))


def over_boards(cases: Sequence[CaseSummary]) -> tuple[list[CaseSummary], list[str]]:
    """Return the cases, the same one on three and more boards of a type as one case, and in words what the figures of these do not show.

    The figures are over boards, the accuracy is that of the board in the middle. Fewer boards do not show how far those of a type lie
    apart, and stay cases of their own. Boards of which every run is suspect are left out where most have others.
    """
    by_type = grouped((_of_type(case), case) for case in cases)
    results: list[CaseSummary] = []
    notes: list[str] = []
    for members in by_type.values():
        board, devices = members[0].around.environment["board"], {case.device for case in members}
        if not board or len(devices) < len(members) or len(members) < FEWEST:
            results += members
            continue
        sound = [case for case in members if not case.suspect]
        doubted = [case.key.device for case in members if case.suspect] if 2 * len(sound) > len(members) and len(sound) >= FEWEST else []
        merged = _merged(board, sound if doubted else members)
        results.append(merged)
        about = f"{merged.key.precision} on {merged.key.runtime}, {merged.key.device}"
        notes += [f"{about}: without {_names(doubted)}, of which every run is suspect."] if doubted else []
        notes += [f"{about}: {text}." for text in _deviating(merged, members)]
    return results, notes


def _of_type(case: CaseSummary) -> tuple[object, ...]:
    key = msgspec.structs.replace(case.key, device="", fleet="", role="")
    measure = case.accuracy.measure if case.accuracy else None
    return case.around.environment["board"], key, case.energy.ranks_as if case.energy else None, measure


def _merged(board: str, members: Sequence[CaseSummary]) -> CaseSummary:
    case, name = summary_of_boards(members), f"{board}, {figures.count(len(members), 'board')}"
    run_ids = tuple(run for member in members for run in member.run_ids)
    return replace(case, key=msgspec.structs.replace(case.key, device=name, fleet="", role=""), run_ids=run_ids)


def _deviating(merged: CaseSummary, members: Sequence[CaseSummary]) -> list[str]:
    """Return which boards score otherwise than the one in the middle, which the same model on the same data must not."""
    if merged.accuracy is None:
        return []
    middle = merged.accuracy.value.median
    values = {case.key.device: case.accuracy.value.median for case in members if case.accuracy}
    deviating = [device for device, value in values.items() if abs(value - middle) > MATTERS_ACCURACY]
    scores = ", ".join(figures.accuracy(values[device]) for device in deviating[:_NAMED])
    return [f"{_names(deviating)} scored {scores} where the board in the middle has {figures.accuracy(middle)}"] if deviating else []


def _names(devices: Sequence[str]) -> str:
    remainder = [f"{len(devices) - _NAMED} more"] if len(devices) > _NAMED else []
    return ", ".join([*devices[:_NAMED], *remainder])
