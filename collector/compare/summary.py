"""The summary of a case: for each figure the median over its runs, with the range and the number of runs behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.accuracy_bounds import BoundedFigure
from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import FIGURES, Figure, Group, hottest_c, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.verdict.words import verdict_lines
from edgemeter.collector.compare.spread import Spread, of_counted, of_one_kind, of_points, point_of
from edgemeter.collector.runs.cases import CaseRuns, CurrentSegment, EnergyClass, distinct, not_measured
from edgemeter.collector.runs.store import LeftOut
from edgemeter.collector.trend.current import current_cases

# Which runs of a case count: those since the newest step of its level, or all.
DaysCounted = Literal["current", "all"]
# What is shown of the machine that a case ran on.
ENVIRONMENT = ("board", "cpu", "cores", "os", "kernel", "virtualisation", "governor", "power_mode", "agent", "firmware")
_SUMMED = tuple(entry for entry in FIGURES if entry.group != "conditions")


@dataclass(frozen=True, slots=True)
class AccuracySummary:
    """Accuracy of the case's model; of several runs the median, which for a deterministic model is all of them.

    `low` and `high` (95%) are of the newest run, over the images; None where it has none. `without_parts` is its value without one part
    of the images after the other, `interval_reason` why there are no bounds.
    """

    metric: str
    value: Spread
    images: int
    dataset_sha256: str
    detail: dict[str, float | None]
    low: float | None = None
    high: float | None = None
    without_parts: tuple[float, ...] = ()
    better: Better = "higher"
    interval_reason: str | None = None
    normalisation: str | None = None

    @property
    def bounded(self) -> BoundedFigure:
        """Return the median with the bounds of the newest run."""
        return BoundedFigure(self.value.median, self.low, self.high, self.without_parts, self.interval_reason)

    @property
    def measure(self) -> tuple[str, int, str, str | None]:
        """Return what two accuracies must share to be compared: metric, number of images, data, and the rule or protocol of comparing."""
        return self.metric, self.images, self.dataset_sha256, self.normalisation

    @property
    def gain(self) -> float:
        """Return the median, with its sign turned where lower is better: the larger of two is the better."""
        return gain(self.value.median, self.better)


def accuracy_of(runs: Sequence[RunRecord]) -> tuple[AccuracySummary | None, str | None, list[LeftOut]]:
    """Return the accuracy of the runs of a case (oldest first), or why there is none, and what is left out of it."""
    scored, left_out = of_one_kind(runs, "accuracy")
    scores = [run.accuracy for run in scored if run.accuracy is not None]
    value = of_points([point_of(run, score.value) for run, score in zip(scored, scores, strict=True)])
    if value is None:
        reasons = distinct([*(run.reasons.get("accuracy") for run in runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not scored", left_out
    newest = scores[-1]
    copied = {name: getattr(newest, name) for name in AccuracySummary.__slots__ if name != "value"}
    return AccuracySummary(value=value, **copied), None, left_out


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """The energies of a case, per inference or request; net energy has a figure only if `net_state` is `resolved` in every run."""

    provenance: str
    sensor: str
    scope: Scope
    excludes: tuple[str, ...]
    net_state: str

    @property
    def ranks_as(self) -> EnergyClass:
        """The class of energies that it may be ranked with."""
        return EnergyClass(self.scope, self.provenance)


def energy_of(runs: Sequence[RunRecord]) -> tuple[EnergySummary | None, str | None, list[LeftOut]]:
    """Return what the energies of a case are (runs oldest first), or why there are none, and what is left out."""
    metered, left_out = of_one_kind(runs, "energy")
    energies = [run.energy for run in metered if run.energy is not None]
    if not energies:
        reasons = distinct([*(run.reasons.get("energy") for run in runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not measured", left_out
    newest = energies[-1]
    net_state = next((energy.net_state for energy in energies if energy.net_state != "resolved"), "resolved")
    provenance = energy_provenance(metered[-1]) or ""
    return EnergySummary(provenance, newest.sensor, newest.scope, newest.excludes, net_state), None, left_out


@dataclass(frozen=True, slots=True)
class CaseSurroundings:
    """The surroundings of the runs of a case, read once; values of the environment that differ between runs are joined by ` | `."""

    first_started_at_ns: int
    queries: int
    modes: tuple[str, ...]
    environment: dict[str, str | None]
    has_several_libraries: bool
    hottest_c: float | None


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """One case in figures. `spreads` are by the names of the table of figures, absent where no run of the case has one.

    `uncertainties` are expanded ones (95%), the largest of the runs, absent where any is not known: repeating a run does not shrink what
    the sensor contributes.

    `generates` is whether the newest run generated text, `board` the type of its board. `segment` is since when its runs count and why,
    None where all do. Where there are many cases, `runs` and `run_ids` are read on demand.
    """

    key: CaseKey
    runs: Sequence[RunRecord]
    run_ids: Sequence[str]
    around: CaseSurroundings
    p50_ms: Spread | None
    spreads: Mapping[str, Spread]
    uncertainties: dict[str, float]
    accuracy: AccuracySummary | None
    accuracy_reason: str | None
    energy: EnergySummary | None
    energy_reason: str | None
    disturbed: int
    verdicts: tuple[Verdict, ...]
    left_out: tuple[LeftOut, ...]
    generates: bool
    board: str | None
    segment: CurrentSegment | None = None

    @property
    def verdict(self) -> str:
        """`disturbed` when any run is, else `ok`; invalid runs never come this far."""
        return "disturbed" if self.disturbed else "ok"

    @property
    def violated(self) -> tuple[Violation, ...]:
        """The first violation of each rule."""
        return tuple({violation.rule: violation for verdict in reversed(self.verdicts) for violation in verdict.violations}.values())

    @property
    def violations(self) -> tuple[str, ...]:
        """The rules that the runs violate, each once in words."""
        return tuple(verdict_lines(self.verdicts, with_notes=False))

    @property
    def throughput_per_s(self) -> Spread:
        """Samples processed per second, which every run has."""
        return self.spreads["throughput_per_s"]

    @property
    def gross_mj(self) -> Spread | None:
        """Gross energy per inference."""
        return self.spreads.get("energy_gross_mj")

    @property
    def gross_u_mj(self) -> float | None:
        """Its expanded uncertainty (95%)."""
        return self.uncertainties.get("energy_gross_mj")

    @property
    def accuracy_value(self) -> Spread | None:
        """Accuracy in its own metric."""
        return self.accuracy.value if self.accuracy else None

    @property
    def device(self) -> tuple[str, str]:
        """The fleet and the device that it ran on."""
        return self.key.fleet, self.key.device

    @property
    def newest(self) -> RunRecord:
        """The newest run: what is the same in all runs of the case is read from it."""
        return self.runs[-1]


def summarise(case: CaseRuns) -> CaseSummary:
    """Return the summary of `case`."""
    runs, segment = case.runs, case.segment
    earlier = [LeftOut(run.id, f"earlier than the current level, {segment.words}") for run in case.earlier] if segment else []
    energy, energy_reason, energy_left_out = energy_of(runs)
    accuracy, accuracy_reason, accuracy_left_out = accuracy_of(runs)
    spreads, uncertainties = _figures(runs)
    return CaseSummary(
        key=case.key,
        runs=runs,
        run_ids=tuple(run.id for run in runs),
        around=CaseSurroundings(
            first_started_at_ns=runs[0].started_at_ns,
            queries=sum(run.latency.count for run in runs),
            modes=tuple(dict.fromkeys(run.mode for run in runs)),
            environment={field: environment(runs, field) for field in ENVIRONMENT},
            has_several_libraries=len({tuple(sorted(run.environment.libraries.items())) for run in runs}) > 1,
            hottest_c=hottest_c(runs),
        ),
        p50_ms=spreads.get("latency_p50_ms"),
        spreads=spreads,
        uncertainties=uncertainties,
        accuracy=accuracy,
        accuracy_reason=accuracy_reason,
        energy=energy,
        energy_reason=energy_reason,
        disturbed=sum(run.verdict.state == "disturbed" for run in runs),
        verdicts=tuple(run.verdict for run in runs),
        left_out=(*energy_left_out, *accuracy_left_out, *earlier),
        generates=runs[-1].generation is not None,
        board=runs[-1].environment.board,
        segment=segment,
    )


def summaries_of(cases: Sequence[CaseRuns], days: DaysCounted = "current") -> list[CaseSummary]:
    """Return the summary of each case: of the level that the board has now, or of all days."""
    return [summarise(case) for case in (current_cases(cases) if days == "current" else cases)]


def environment(runs: Sequence[RunRecord], field: str) -> str | None:
    """Return one field of the environment (`board`, `governor`, ...) as text; values that differ between the runs are joined by ` | `."""
    return " | ".join(distinct(_text(getattr(run.environment, field)) for run in runs)) or None


def _text(value: object) -> str | None:
    if value is None or value == ():
        return None
    return ", ".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _figures(runs: Sequence[RunRecord]) -> tuple[dict[str, Spread], dict[str, float]]:
    """Return the spreads over the runs, of those measured and of one kind, and the uncertainties."""
    members: dict[Group, Sequence[RunRecord]] = {}
    spreads: dict[str, Spread] = {}
    uncertainties: dict[str, float] = {}
    for entry in _SUMMED:
        if entry.group not in members:
            members[entry.group] = _members(runs, entry.group)
        valued = _valued(entry, members[entry.group])
        if entry.needs_all and len(valued) < len(members[entry.group]):
            continue
        if spread := _spread(entry, valued):
            spreads[entry.name] = spread
        known_u = [reader(entry.u)(run) for run, _ in valued] if entry.u else []
        if known_u and None not in known_u:
            uncertainties[entry.name] = max(known_u)
    return spreads, uncertainties


def spread_of_figure(case: CaseSummary, entry: Figure) -> Spread | None:
    """Return the spread of any figure of a case, also of one that no comparison shows."""
    if entry in _SUMMED:
        return case.spreads.get(entry.name)
    return _spread(entry, _valued(entry, _members(case.runs, entry.group)))


def _spread(entry: Figure, valued: Sequence[tuple[RunRecord, float]]) -> Spread | None:
    points = [point_of(run, value) for run, value in valued]
    over_runs = entry.over_runs([run for run, _ in valued]) if entry.over_runs else None
    return of_counted(points, *over_runs, entry.most) if over_runs else of_points(points)


def _valued(entry: Figure, runs: Sequence[RunRecord]) -> list[tuple[RunRecord, float]]:
    """Return the value of each run that has one, and in which all that it is worked out from was measured."""
    valued = [(run, float(value)) for run in runs if (value := entry.value(run)) is not None]
    return [(run, value) for run, value in valued if not any(not_measured(run, name) for name in entry.provenance_groups)]


def _members(runs: Sequence[RunRecord], group: Group) -> Sequence[RunRecord]:
    return of_one_kind(runs, group)[0] if group in ("energy", "accuracy") else runs
