"""The summary of a case: each figure over its runs with its interval, its accuracy and energy, and what it ran on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from edgemeter.agent.base.evidence import CONFIDENCE, EXACT, REACH, Evidence, RunValue
from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.base.statistics import jackknife_error, jackknife_freedom, student_quantile
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.energy_provenance import not_measured
from edgemeter.agent.contract.figures import (
    ACCURACY,
    ENERGY,
    FIGURES,
    LATENCY,
    MISSED,
    THROUGHPUT,
    TOKEN_ENERGY,
    TPOT,
    TTFT,
    Group,
    field_name,
)
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import Environment, Verdict, Violation
from edgemeter.agent.contract.record_figures import Scope
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.contract.run_figures import VALUE_COLUMNS, RunFigures, of_newest_kind
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.verdict.judge import counted
from edgemeter.agent.verdict.words import verdict_lines
from edgemeter.collector.compare.case_figure import CaseFigure, figure_of, run_value
from edgemeter.collector.runs.cases import CurrentSegment, EnergyClass, distinct
from edgemeter.collector.runs.contents import UNREAD, LeftOut
from edgemeter.collector.runs.store import RunStore

Value = TypeVar("Value")
# Which runs of a case count: those since the newest step of its level, or all.
DaysCounted = Literal["current", "all"]
# What is shown of the machine that a case ran on.
ENVIRONMENT = ("board", "cpu", "cores", "os", "kernel", "virtualisation", "governor", "power_mode", "agent", "firmware")
RunPlace = tuple[int, str, int, int]
# The figures that an answer decides, of models of one call and of language models, as far as two cases have them.
OF_CALLS = (MISSED, LATENCY, THROUGHPUT, ACCURACY, ENERGY)
OF_TEXT = (TTFT, TPOT, ACCURACY, TOKEN_ENERGY)
_SUMMED = {entry.name: entry for entry in FIGURES if entry.group not in ("accuracy", "conditions")}


@dataclass(frozen=True)
class AccuracySummary:
    """Accuracy of the case's model, which of a deterministic model is the same in every run: that of the newest run that was scored.

    `low` and `high` (95%) are over the images; None where it has none. What else was scored is read when it is asked for.
    """

    metric: str
    value: float
    images: int
    dataset_sha256: str
    low: float | None
    high: float | None
    better: Better
    normalisation: str | None
    read: Callable[[], Accuracy]

    @cached_property
    def of_record(self) -> Accuracy:
        """All that the record has of it."""
        return self.read()

    @property
    def without_parts(self) -> tuple[float, ...]:
        """Its value without one part of the images after the other."""
        return self.of_record.without_parts

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


@dataclass(frozen=True, slots=True)
class EnergySummary:
    """The energies of a case, per inference or request."""

    provenance: str
    sensor: str
    scope: Scope
    excludes: tuple[str, ...]

    @property
    def ranks_as(self) -> EnergyClass:
        """The class of energies that it may be ranked with."""
        return EnergyClass(self.scope, self.provenance)


@dataclass(frozen=True, slots=True)
class CaseSurroundings:
    """The surroundings of the runs of a case; values of the environment that differ between runs are joined by ` | `."""

    first_started_at_ns: int
    queries: int
    modes: tuple[str, ...]
    environment: dict[str, str | None]
    has_several_libraries: bool
    hottest_c: float | None


class WorkedOut(Mapping[str, Value]):
    """A mapping whose values are worked out when they are asked for: of thousands of cases most figures are never shown."""

    def __init__(self, names: Sequence[str], value: Callable[[str], Value | None]) -> None:
        self._names, self._value = names, value
        self._known: dict[str, Value | None] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._known:
            self._known[name] = self._value(name) if name in self._names else None
        value = self._known[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class CaseSummary:
    """One case: its usable runs that count, and what is said of them, by the names of the table of figures; worked out when asked for.

    Of the runs those count that are ok, where there are three; else all. `segment` is since when its runs count and why, None where all do.
    """

    def __init__(
        self,
        store: RunStore,
        key: CaseKey,
        read: Callable[[], Sequence[RunFigures]],
        begin: int = 0,
        segment: CurrentSegment | None = None,
    ) -> None:
        """Make it of the usable runs of a case, which `read` gives, from the run `begin` on."""
        self.store, self.read, self.begin = store, read, begin
        self.key, self.segment = key, segment

    @property
    def runs(self) -> Sequence[RunFigures]:
        """Its usable runs of any verdict, oldest first; there is at least one."""
        return self.read()[self.begin :]

    def prepare(self, figures: Sequence[str]) -> None:
        """Work out what an answer asks of every case, and these figures, while its runs are at hand."""
        for name in ("first", "size", "subject", "around", "accuracy", "energy", "verdicts", "left_out"):
            getattr(self, name)
        for name in figures:
            self.figures.get(name)

    @cached_property
    def first(self) -> RunPlace:
        """The place of its first run, by which cases are ordered."""
        return place_of(self.read()[0])

    @cached_property
    def size(self) -> int:
        """The number of its runs."""
        return len(self.runs)

    @property
    def run_ids(self) -> list[str]:
        """Their ids."""
        return [run.id for run in self.runs]

    def records(self) -> list[RunRecord]:
        """Return the records of its runs that can be read."""
        return self.store.records([run.row for run in self.runs])

    @cached_property
    def newest(self) -> RunRecord:
        """The record of the newest run that can be read: what is the same in all runs of the case is read from it."""
        return self._record_of(self.runs)

    def _record_of(self, runs: Sequence[RunFigures]) -> RunRecord:
        records = (record for run in reversed(runs) for record in self.store.records([run.row]))
        record = next(records, None)
        return self.store.record(runs[-1].row) if record is None else record

    @cached_property
    def subject(self) -> RunSubject:
        """The model, the data and the machine of the newest run."""
        return self.runs[-1].subject

    @cached_property
    def around(self) -> CaseSurroundings:
        """The surroundings of its runs."""
        runs = self.runs
        subjects = list({id(run.subject): run.subject for run in runs}.values())
        heats_c = [heat_c for run in runs if (heat_c := run.value("temperature_max_c")) is not None]
        return CaseSurroundings(
            first_started_at_ns=runs[0].started_at_ns,
            queries=sum(run.queries for run in runs),
            modes=tuple(dict.fromkeys(subject.mode for subject in subjects)),
            environment={field: environment([subject.environment for subject in subjects], field) for field in ENVIRONMENT},
            has_several_libraries=len({tuple(sorted(subject.environment.libraries.items())) for subject in subjects}) > 1,
            hottest_c=max(heats_c, default=None),
        )

    @property
    def board(self) -> str | None:
        """The type of the board."""
        return self.subject.environment.board

    @property
    def generates(self) -> bool:
        """Whether it generates text."""
        return self.key.generates

    @property
    def generation(self) -> Generation | None:
        """The text that the newest run generated, in numbers; None of a model that generates no text."""
        return self.newest.generation if self.key.generates else None

    @property
    def p50_ms(self) -> CaseFigure | None:
        """The median latency."""
        return self.figures.get(LATENCY)

    @cached_property
    def figures(self) -> Mapping[str, CaseFigure]:
        """The figures over the runs that count, of those measured and of one kind."""
        columns = zip(*(run.values for run in counted(self.runs)), strict=True)
        having = {name for name, values in zip(VALUE_COLUMNS, columns, strict=True) if any(value is not None for value in values)}
        return WorkedOut([name for name in (*_SUMMED, ACCURACY) if name in having or name == ACCURACY], self.figure)

    def figure(self, name: str) -> CaseFigure | None:
        """Return a figure over its runs; None where no run that counts has one."""
        if name == ACCURACY:
            return self._accuracy_figure()
        entry = _SUMMED[name]
        members = of_newest_kind(counted(self.runs), entry.group)
        valued = [(run, value) for run in members if (value := run.value(name)) is not None]
        if entry.needs_all and len(valued) < len(members):
            return None
        known_u = [run.value(field_name(entry.u)) for run, _ in valued] if entry.u else []
        u = max((u for u in known_u if u is not None), default=None) if None not in known_u else None
        return figure_of(entry, valued, u)

    def _accuracy_figure(self) -> CaseFigure | None:
        accuracy = self.accuracy
        if accuracy is None:
            return None
        scored = of_newest_kind(self.runs, "accuracy")
        return CaseFigure(accuracy.value, accuracy.low, accuracy.high, len(scored), accuracy.evidence, "points")

    def run_values(self, name: str) -> list[RunValue]:
        """Return the values of a figure that the case has, one a run, each with its device, day and turn."""
        members = of_newest_kind(counted(self.runs), _SUMMED[name].group)
        return [run_value(run, value) for run in members if (value := run.value(name)) is not None]

    @cached_property
    def accuracy(self) -> AccuracySummary | None:
        """The accuracy of its newest run that was scored; None where none was."""
        newest = next((run for run in reversed(self.runs) if run.subject.accuracy_kind), None)
        if newest is None or newest.subject.accuracy is None or (value := newest.value(ACCURACY)) is None:
            return None
        measure = newest.subject.accuracy

        def read() -> Accuracy:
            records = self.store.records([newest.row]) or [self._record_of(of_newest_kind(self.runs, "accuracy"))]
            accuracy = records[0].accuracy
            if accuracy is None:
                raise LookupError(f"the record of {newest.id} has no accuracy")
            return accuracy

        return AccuracySummary(
            measure.metric, value, measure.images, measure.dataset_sha256, newest.value("accuracy_low"), newest.value("accuracy_high"),
            measure.better, measure.normalisation, read,
        )  # fmt: skip

    @cached_property
    def energy(self) -> EnergySummary | None:
        """The source of its energies; None where none was measured."""
        newest = next((run.subject for run in reversed(self.runs) if run.subject.energy_kind), None)
        if newest is None or newest.energy is None:
            return None
        return EnergySummary(newest.energy_provenance or "", newest.energy.sensor, newest.energy.scope, newest.energy.excludes)

    @property
    def accuracy_reason(self) -> str | None:
        """Why there is no accuracy, in the words of the newest run; None where there is one."""
        return None if self.accuracy else self._why_none("accuracy") or "not scored"

    @property
    def energy_reason(self) -> str | None:
        """Why there is no energy, in the words of the newest run; None where there is one."""
        return None if self.energy else self._why_none("energy") or "not measured"

    def _why_none(self, group: Group) -> str:
        return "; ".join(distinct([self.newest.reasons.get(group), *(entry.reason for entry in self._not_ranked(group))]))

    @cached_property
    def net_state(self) -> str | None:
        """Whether its net energy is `resolved` in every run that has an energy, or why not; None where none has."""
        members = of_newest_kind(self.runs, "energy")
        lacking = next((run for run in members if run.value("energy_net_mj") is None), None)
        if not members:
            return None
        energy = self._record_of([lacking]).energy if lacking else None
        return energy.net_state if energy else "resolved"

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of the runs that count."""
        return tuple(run.verdict for run in counted(self.runs))

    @property
    def not_counted(self) -> int:
        """How many of its runs do not count."""
        return self.size - len(self.verdicts)

    @cached_property
    def left_out(self) -> list[LeftOut]:
        """Energies and accuracies that do not rank, and the runs before its level."""
        left_out = [*self._not_ranked("energy"), *self._not_ranked("accuracy")]
        if self.segment and self.begin == self.segment.earlier:
            reason = f"earlier than the current level, {self.segment.words}"
            left_out += [LeftOut(run.id, reason) for run in self.read()[: self.begin]]
        return left_out

    def _not_ranked(self, group: Group) -> list[LeftOut]:
        having = [run for run in self.runs if (run.subject.energy if group == "energy" else run.subject.accuracy)]
        newest = next((kind for run in reversed(having) if (kind := run.subject.kind(group))), None)
        left_out = []
        for run in having:
            kind = run.subject.kind(group)
            if kind is None:
                left_out.append(
                    LeftOut(run.id, next((not_measured(record, group) for record in self.store.records([run.row])), None) or UNREAD)
                )
            elif kind != newest:
                left_out.append(LeftOut(run.id, f"{group}: {kind} is not what the newest run of the case has, {newest}"))
        return left_out

    @cached_property
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


def place_of(run: RunFigures) -> RunPlace:
    """Return what runs of several cases are ordered by: when each began, then device and numbers."""
    return run.started_at_ns, run.subject.key.device, run.session, run.seq


def environment(environments: Sequence[Environment], field: str) -> str | None:
    """Return one field of environments (`board`, `governor`, ...) as text; values that differ are joined by ` | `."""
    values = [getattr(of_run, field) for of_run in environments]
    texts = [", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values if value not in (None, ())]
    return " | ".join(distinct(texts)) or None
