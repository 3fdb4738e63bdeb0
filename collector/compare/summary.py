"""The summary of a case.

It has each figure over its runs with its interval, its accuracy and energy, and its machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from edgemeter.agent.base.evidence import RunValue
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
from edgemeter.agent.contract.record_conditions import Environment, Verdict, Violation
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.contract.run_subject import RunSubject
from edgemeter.agent.verdict.words import verdict_lines
from edgemeter.collector.compare.accuracy_and_energy import AccuracySummary, EnergySummary
from edgemeter.collector.compare.case_figure import CaseFigure, CaseFigures, figure_of, run_value
from edgemeter.collector.runs.case_runs import CaseRuns
from edgemeter.collector.runs.cases import CurrentSegment, distinct
from edgemeter.collector.runs.contents import UNREAD, LeftOut
from edgemeter.collector.runs.store import RunStore

# The runs of a case that count: those since the newest step of its level, or all.
DaysCounted = Literal["current", "all"]
# The facts shown of the machine that a case ran on.
ENVIRONMENT = (
    "board",
    "cpu",
    "cores",
    "os",
    "kernel",
    "virtualisation",
    "governor",
    "power_mode",
    "agent",
    "firmware",
)
RunPlace = tuple[int, str, int, int]
# The compared figures, of models of one call and of language models, if both cases have them.
OF_CALLS = (MISSED, LATENCY, THROUGHPUT, ACCURACY, ENERGY)
OF_TEXT = (TTFT, TPOT, ACCURACY, TOKEN_ENERGY)
_SUMMED = {entry.name: entry for entry in FIGURES if entry.group not in ("accuracy", "conditions")}


@dataclass(frozen=True, slots=True)
class CaseSurroundings:
    """The machine of a case's runs; values that differ between runs are joined by ` | `."""

    first_started_at_ns: int
    queries: int
    modes: tuple[str, ...]
    environment: dict[str, str | None]
    has_several_libraries: bool
    hottest_c: float | None


class CaseSummary:
    """One case with its usable runs that count, and facts about them, computed on demand.

    The facts have the names of the table of figures. If there are three ok runs, only those count;
    else all. `segment` is since when its runs count and why, None if all do.
    """

    def __init__(
        self,
        store: RunStore,
        key: CaseKey,
        read: Callable[[], CaseRuns],
        begin: int = 0,
        segment: CurrentSegment | None = None,
    ) -> None:
        """Create it from the usable runs of a case, returned by `read`, from the run `begin` on."""
        self.store, self.read, self.begin = store, read, begin
        self.key, self.segment = key, segment
        # Its runs, and those that count, while it is prepared.
        self._at_hand: tuple[CaseRuns, CaseRuns] | None = None

    @property
    def runs(self) -> CaseRuns:
        return self._at_hand[0] if self._at_hand else self.read().part(slice(self.begin, None))

    @property
    def counted(self) -> CaseRuns:
        return self._at_hand[1] if self._at_hand else self.runs.counted()

    def prepare(self, usable: CaseRuns, figures: Sequence[str]) -> None:
        """Compute the facts needed for every case, and these figures, from its usable runs."""
        runs = usable.part(slice(self.begin, None))
        self._at_hand, self.read, read_later = (runs, runs.counted()), lambda: usable, self.read
        for name in (
            "first",
            "size",
            "subject",
            "around",
            "accuracy",
            "energy",
            "verdicts",
            "left_out",
        ):
            getattr(self, name)
        for name in figures:
            self.figures.get(name)
        self._at_hand, self.read = None, read_later

    @cached_property
    def first(self) -> RunPlace:
        """The sort key of its first run, by which cases are ordered."""
        return place_of(self.read(), 0)

    @cached_property
    def size(self) -> int:
        return len(self.runs)

    @property
    def last_started_at_ns(self) -> int:
        return int(self.runs.columns["started_at_ns"][-1])

    @property
    def run_ids(self) -> list[str]:
        return self.runs.values_of("id")

    def records(self) -> list[RunRecord]:
        return self.store.records(self.runs.values_of("row"))

    @cached_property
    def newest(self) -> RunRecord:
        """The newest record that can be read.

        It is for facts that are the same in all runs of the case.
        """
        return self._record_of(self.runs)

    def _record_of(self, runs: CaseRuns) -> RunRecord:
        rows = runs.values_of("row")
        record = next(
            (record for row in reversed(rows) for record in self.store.records([row])), None
        )
        return self.store.record(rows[-1]) if record is None else record

    @cached_property
    def subject(self) -> RunSubject:
        return self.runs.subject(-1)

    @cached_property
    def around(self) -> CaseSurroundings:
        runs = self.runs
        subjects = runs.own_subjects()
        return CaseSurroundings(
            first_started_at_ns=int(runs.columns["started_at_ns"][0]),
            queries=int(runs.columns["queries"].sum()),
            modes=tuple(dict.fromkeys(subject.mode for subject in subjects)),
            environment={
                field: environment([subject.environment for subject in subjects], field)
                for field in ENVIRONMENT
            },
            has_several_libraries=len(
                {tuple(sorted(subject.environment.libraries.items())) for subject in subjects}
            )
            > 1,
            hottest_c=runs.highest("temperature_max_c"),
        )

    @property
    def board(self) -> str | None:
        return self.subject.environment.board

    @property
    def generates(self) -> bool:
        return self.key.generates

    @property
    def generation(self) -> Generation | None:
        """The text that the newest run generated, in numbers.

        It is None of a model that generates no text.
        """
        return self.newest.generation if self.key.generates else None

    @property
    def p50_ms(self) -> CaseFigure | None:
        return self.figures.get(LATENCY)

    @cached_property
    def figures(self) -> CaseFigures:
        """The figures over the runs that count, of those measured and of one kind."""
        return CaseFigures((*_SUMMED, ACCURACY), self.figure)

    def figure(self, name: str) -> CaseFigure | None:
        """Return a figure over its runs; None if no counted run has one."""
        if name == ACCURACY:
            accuracy = self.accuracy
            if accuracy is None:
                return None
            scored = len(self.runs.of_newest_kind("accuracy"))
            return CaseFigure(
                accuracy.value, accuracy.low, accuracy.high, scored, accuracy.evidence, "points"
            )
        entry = _SUMMED[name]
        members = self.counted.of_newest_kind(entry.group)
        valued = members.having(name)
        if entry.needs_all and len(valued) < len(members):
            return None
        u = valued.columns[field_name(entry.u)] if entry.u else np.zeros(0)
        return figure_of(
            entry, valued, float(u.max()) if len(u) and not np.isnan(u).any() else None
        )

    def run_values(self, name: str) -> list[RunValue]:
        """Return the values of a figure, one a run, each with its device, day and turn."""
        return [
            run_value(run, value)
            for run in self.counted.of_newest_kind(_SUMMED[name].group).each()
            if (value := run.value(name)) is not None
        ]

    @cached_property
    def accuracy(self) -> AccuracySummary | None:
        """The accuracy of its newest scored run; None without one."""
        newest = self.runs.of_newest_kind("accuracy").part(slice(-1, None))
        if not len(newest) or (measure := newest.subject(0).accuracy) is None:
            return None
        value, low, high = (
            None if np.isnan(number := newest.columns[name][0]) else float(number)
            for name in (ACCURACY, "accuracy_low", "accuracy_high")
        )
        (row,), (run_id,) = newest.values_of("row"), newest.values_of("id")

        def read() -> RunRecord:
            return next(iter(self.store.records([row])), None) or self._record_of(
                self.runs.of_newest_kind("accuracy")
            )

        return value if value is None else AccuracySummary(
            measure.metric, value, measure.images, measure.dataset_sha256, low, high,
            measure.better, measure.normalisation, self.store, run_id, row, read,
        )  # fmt: skip

    @cached_property
    def energy(self) -> EnergySummary | None:
        runs = self.runs.of_newest_kind("energy")
        newest = runs.subject(-1) if len(runs) else None
        if newest is None or newest.energy is None:
            return None
        return EnergySummary(
            newest.energy_provenance or "",
            newest.energy.sensor,
            newest.energy.scope,
            newest.energy.excludes,
        )

    @property
    def accuracy_reason(self) -> str | None:
        """Why there is no accuracy, in the words of the newest run; None if there is one."""
        return None if self.accuracy else self._why_none("accuracy") or "not scored"

    @property
    def energy_reason(self) -> str | None:
        """Why there is no energy, in the words of the newest run; None if there is one."""
        return None if self.energy else self._why_none("energy") or "not measured"

    def _why_none(self, group: Group) -> str:
        return "; ".join(
            distinct(
                [
                    self.newest.reasons.get(group),
                    *(entry.reason for entry in self._not_ranked(group)),
                ]
            )
        )

    @cached_property
    def net_state(self) -> str | None:
        """Whether its net energy is `resolved` in every run with an energy, or why not.

        It is None without any.
        """
        members = self.runs.of_newest_kind("energy")
        lacking = members.part(np.isnan(members.columns["energy_net_mj"]))
        if not len(members):
            return None
        energy = self._record_of(lacking.part(slice(1))).energy if len(lacking) else None
        return energy.net_state if energy else "resolved"

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.counted.verdicts()

    @property
    def not_counted(self) -> int:
        return self.size - len(self.verdicts)

    @cached_property
    def left_out(self) -> list[LeftOut]:
        """Energies and accuracies that do not rank, and the runs before its level."""
        left_out = [*self._not_ranked("energy"), *self._not_ranked("accuracy")]
        if self.segment and self.begin == self.segment.earlier:
            reason = f"earlier than the current level, {self.segment.words}"
            left_out += [
                LeftOut(run_id, reason) for run_id in self.read().values_of("id")[: self.begin]
            ]
        return left_out

    def _not_ranked(self, group: Group) -> list[LeftOut]:
        runs = self.runs
        kinds = {
            number: runs.subjects[number].kind(group)
            for number in dict.fromkeys(runs.values_of("subject"))
            if (
                runs.subjects[number].energy
                if group == "energy"
                else runs.subjects[number].accuracy
            )
        }
        if len(set(kinds.values())) < 2 and None not in kinds.values():
            return []
        having = [
            run
            for run in zip(*map(runs.values_of, ("subject", "id", "row")), strict=True)
            if run[0] in kinds
        ]
        newest = next((kind for number, *_ in reversed(having) if (kind := kinds[number])), None)
        left_out = []
        for number, run_id, row in having:
            kind = kinds[number]
            if kind is None:
                reasons = (not_measured(record, group) for record in self.store.records([row]))
                left_out.append(LeftOut(run_id, next(reasons, None) or UNREAD))
            elif kind != newest:
                left_out.append(
                    LeftOut(
                        run_id, f"{group}: {kind} differs from the newest run of the case, {newest}"
                    )
                )
        return left_out

    @cached_property
    def disturbed(self) -> int:
        return sum(verdict.state == "disturbed" for verdict in self.verdicts)

    @property
    def counted_ratio(self) -> float:
        """The share of its runs that count."""
        return len(self.verdicts) / (len(self.verdicts) + self.not_counted)

    @property
    def verdict(self) -> str:
        """`disturbed` if a counted run is, else `ok`; invalid runs are not usable."""
        return "disturbed" if self.disturbed else "ok"

    @property
    def violated(self) -> tuple[Violation, ...]:
        """The first violation of each rule."""
        return tuple(
            {
                violation.rule: violation
                for verdict in reversed(self.verdicts)
                for violation in verdict.violations
            }.values()
        )

    @property
    def violations(self) -> tuple[str, ...]:
        """The rules that the counted runs violate, each once in words."""
        return tuple(verdict_lines(self.verdicts, with_notes=False))

    @property
    def device(self) -> tuple[str, str]:
        return self.key.fleet, self.key.device


def place_of(runs: CaseRuns, index: int) -> RunPlace:
    """Return the sort key of runs of several cases: start, then device and numbers."""
    started_at_ns, session, seq = (
        int(runs.columns[name][index]) for name in ("started_at_ns", "session", "seq")
    )
    return started_at_ns, runs.subject(index).key.device, session, seq


def environment(environments: Sequence[Environment], field: str) -> str | None:
    """Return one field of environments (`board`, `governor`, ...) as text.

    Different values are joined by ` | `.
    """
    values = [getattr(of_run, field) for of_run in environments]
    texts = [
        ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for value in values
        if value not in (None, ())
    ]
    return " | ".join(distinct(texts)) or None
