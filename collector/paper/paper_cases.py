"""The cases of a paper: those of the selected runs in a fixed order, and the excluded runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.summary import CaseSummary, DaysCounted, summaries_of
from edgemeter.collector.runs.cases import group_cases
from edgemeter.collector.runs.store import LeftOut, oldest_first


@dataclass(frozen=True, slots=True)
class PaperCases:
    """The cases, by model, device, precision and runtime; `left_out` are runs that do not count, each with its reason."""

    cases: Sequence[CaseSummary]
    left_out: Sequence[LeftOut]

    @property
    def runs(self) -> list[RunRecord]:
        """The runs that count, oldest first."""
        return oldest_first(run for case in self.cases for run in case.runs)


def paper_cases(runs: Iterable[RunRecord], days: DaysCounted) -> PaperCases:
    """Return the cases of `runs`, whatever order those come in; raises UnavailableError if no run counts; names the reasons."""
    cases, left_out = group_cases(oldest_first(runs))
    if not cases:
        reasons = "; ".join(dict.fromkeys(entry.reason for entry in left_out)) or "there are no runs"
        raise UnavailableError(f"no run is left for a table ({reasons}): measure with `edgemeter run`, or select others")
    summaries = sorted(summaries_of(cases, days), key=_order)
    return PaperCases(summaries, [*left_out, *(entry for case in summaries for entry in case.left_out)])


def _order(case: CaseSummary) -> tuple[str, ...]:
    key = case.key
    named = (key.scenario, key.model, key.fleet, key.device, key.precision, key.runtime, key.runtime_version, key.backend)
    return (*named, *(f"{value:08}" if isinstance(value, int) else str(value or "") for value in msgspec.structs.astuple(key)))
