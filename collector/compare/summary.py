"""The summary of a case: each figure over its runs with its interval, its accuracy and energy, and what it ran on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.evidence import CONFIDENCE, EXACT, REACH, Evidence
from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.energy_provenance import energy_provenance, not_measured
from edgemeter.agent.contract.figures import FIGURES, Figure, Group, hottest_c, reader
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict, Violation
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.contract.run_figures import kind_of
from edgemeter.agent.verdict.judge import counted
from edgemeter.agent.verdict.words import verdict_lines
from edgemeter.collector.compare.case_figure import CaseFigure, RunValues, figure_of, run_value
from edgemeter.collector.runs.cases import CaseRuns, CurrentSegment, EnergyClass, distinct
from edgemeter.collector.runs.figure_names import JUDGED
from edgemeter.collector.runs.store import LeftOut
from edgemeter.collector.trend.current import current_cases

# Which runs of a case count: those since the newest step of its level, or all.
DaysCounted = Literal["current", "all"]
# What is shown of the machine that a case ran on.
ENVIRONMENT = ("board", "cpu", "cores", "os", "kernel", "virtualisation", "governor", "power_mode", "agent", "firmware")
_SUMMED = tuple(entry for entry in FIGURES if entry.group not in ("accuracy", "conditions"))


@dataclass(frozen=True, slots=True)
class AccuracySummary:
    """Accuracy of the case's model, which of a deterministic model is the same in every run: that of the newest run that was scored.

    `low` and `high` (95%) are over the images; None where it has none. `without_parts` is its value without one part of the images after
    the other, `interval_reason` why there are no bounds.
    """

    metric: str
    value: float
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
    def measure(self) -> tuple[str, int, str, str | None]:
        """Return what two accuracies must share to be compared: metric, number of images, data, and the rule or protocol of comparing."""
        return self.metric, self.images, self.dataset_sha256, self.normalisation

    @property
    def evidence(self) -> Evidence:
        """The value with its standard error over the images."""
        error = None if self.low is None or self.high is None else (self.high - self.low) / 2 / REACH
        return Evidence(self.value, error, EXACT, self.images, "image")

    def half(self, end: float | None) -> Evidence:
        """The value with its standard error towards an end of its interval: near 0 and 1 one half is wider than the other."""
        if end is None:
            return Evidence(self.value, None, 0, self.images, "image")
        is_spread = self.without_parts and jackknife_error(self.without_parts) is not None
        freedom = jackknife_freedom(self.without_parts) if is_spread else EXACT
        return Evidence(
            self.value, abs(end - self.value) / student_quantile(CONFIDENCE, min(freedom, 1000.0)), freedom, self.images, "image"
        )

    def bounds(self, confidence: float) -> tuple[float, float] | None:
        """Return the interval at another confidence than 95%: each half is longer by the same factor."""
        low, high = (self.half(end).bounds(confidence) for end in (self.low, self.high))
        return (low[0], high[1]) if low and high else None

    @property
    def gain(self) -> float:
        """Return the value, with its sign turned where lower is better: the larger of two is the better."""
        return gain(self.value, self.better)


def accuracy_of(runs: Sequence[RunRecord]) -> tuple[AccuracySummary | None, str | None, list[LeftOut]]:
    """Return the accuracy of the runs of a case (oldest first), or why there is none, and what is left out of it."""
    scored, left_out = of_one_kind(runs, "accuracy")
    if not scored or (newest := scored[-1].accuracy) is None:
        return None, _why_none(runs, "accuracy", left_out) or "not scored", left_out
    return AccuracySummary(**{name: getattr(newest, name) for name in AccuracySummary.__slots__}), None, left_out


def _why_none(runs: Sequence[RunRecord], group: Group, left_out: Sequence[LeftOut]) -> str:
    return "; ".join(distinct([*(run.reasons.get(group) for run in runs), *(entry.reason for entry in left_out)]))


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
        return None, _why_none(runs, "energy", left_out) or "not measured", left_out
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
    """One case in figures, by the names of the table of figures; absent where no run that counts has one.

    Of the runs those count that are ok, where there are three; else all. `verdicts` are those of the runs that count, `not_counted` is the
    number of the others. `generates` is whether the newest run generated text, `board` the type of its board. `segment` is since when its
    runs count and why, None where all do. Where there are many cases, `runs`, `run_ids` and `run_values` are read on demand.
    """

    key: CaseKey
    runs: Sequence[RunRecord]
    run_ids: Sequence[str]
    around: CaseSurroundings
    p50_ms: CaseFigure | None
    figures: Mapping[str, CaseFigure]
    run_values: RunValues
    accuracy: AccuracySummary | None
    accuracy_reason: str | None
    energy: EnergySummary | None
    energy_reason: str | None
    verdicts: tuple[Verdict, ...]
    not_counted: int
    left_out: tuple[LeftOut, ...]
    generates: bool
    board: str | None
    segment: CurrentSegment | None = None

    @property
    def disturbed(self) -> int:
        """The number of disturbed runs among those that count."""
        return sum(verdict.state == "disturbed" for verdict in self.verdicts)

    @property
    def counted_ratio(self) -> float:
        """The share of its runs that count."""
        return len(self.verdicts) / (len(self.verdicts) + self.not_counted)

    @property
    def verdict(self) -> str:
        """`disturbed` where a run that counts is, else `ok`; invalid runs never come this far."""
        return "disturbed" if self.disturbed else "ok"

    @property
    def violated(self) -> tuple[Violation, ...]:
        """The first violation of each rule."""
        return tuple({violation.rule: violation for verdict in reversed(self.verdicts) for violation in verdict.violations}.values())

    @property
    def violations(self) -> tuple[str, ...]:
        """The rules that the runs that count violate, each once in words."""
        return tuple(verdict_lines(self.verdicts, with_notes=False))

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
    counting = counted(runs)
    figures, run_values = _figures(counting)
    if accuracy is not None:
        scored, _ = of_one_kind(runs, "accuracy")
        figures["accuracy_value"] = CaseFigure(accuracy.value, accuracy.low, accuracy.high, len(scored), accuracy.evidence, "points")
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
        p50_ms=figures.get("latency_p50_ms"),
        figures=figures,
        run_values=run_values,
        accuracy=accuracy,
        accuracy_reason=accuracy_reason,
        energy=energy,
        energy_reason=energy_reason,
        verdicts=tuple(run.verdict for run in counting),
        not_counted=len(runs) - len(counting),
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
    values = [getattr(run.environment, field) for run in runs]
    texts = [", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values if value not in (None, ())]
    return " | ".join(distinct(texts)) or None


def _figures(runs: Sequence[RunRecord]) -> tuple[dict[str, CaseFigure], RunValues]:
    """Return the figures over the runs, of those measured and of one kind, and what the judged ones are in each run."""
    members: dict[Group, Sequence[RunRecord]] = {}
    figures: dict[str, CaseFigure] = {}
    values: dict[str, tuple[float | None, ...]] = {}
    for entry in _SUMMED:
        if entry.group not in members:
            members[entry.group] = of_one_kind(runs, entry.group)[0] if entry.group == "energy" else runs
        valued = _valued(entry, members[entry.group])
        if entry.needs_all and len(valued) < len(members[entry.group]):
            continue
        known_u = [reader(entry.u)(run) for run, _ in valued] if entry.u else []
        u = max(known_u) if known_u and None not in known_u else None
        if figure := figure_of(entry, valued, u):
            figures[entry.name] = figure
            if entry.name in JUDGED:
                by_run = {run.id: value for run, value in valued}
                values[entry.name] = tuple(by_run.get(run.id) for run in runs)
    return figures, RunValues(tuple(run_value(run, 0.0)[1:] for run in runs), values)


def _valued(entry: Figure, runs: Sequence[RunRecord]) -> list[tuple[RunRecord, float]]:
    """Return the value of each run that has one, and in which all that it is worked out from was measured."""
    valued = [(run, float(value)) for run in runs if (value := entry.value(run)) is not None]
    return [(run, value) for run, value in valued if not any(not_measured(run, name) for name in entry.provenance_groups)]


def of_one_kind(runs: Sequence[RunRecord], group: Group) -> tuple[list[RunRecord], list[LeftOut]]:
    """Return the runs (oldest first) whose figures of a group were measured and are of the newest one's kind, and what is left out.

    Merging two kinds (another meter, another metric) would give a mean of nothing; the newest is the one that the user means.
    """
    having = [(run, kind, not_measured(run, group)) for run in runs if (kind := kind_of(run, group)) is not None]
    newest = next((kind for _, kind, reason in reversed(having) if reason is None), None)
    other_kind = f"is not what the newest run of the case has, {newest}"
    reasons = [reason or (None if kind == newest else f"{group}: {kind} {other_kind}") for _, kind, reason in having]
    of_newest = [run for (run, _, _), reason in zip(having, reasons, strict=True) if reason is None]
    return of_newest, [LeftOut(run.id, reason) for (run, _, _), reason in zip(having, reasons, strict=True) if reason is not None]
