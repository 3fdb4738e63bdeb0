"""One case with all its runs: the mean of each figure with its interval, and the case's name."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from edgemeter.agent.base.evidence import (
    IntervalOverRuns,
    RunValue,
    interval_over_runs,
    mean_of,
    middle_of,
)
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.number_text import ABSENT, plain_digits, significant, with_interval
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import (
    LATENCY,
    MISSED,
    THROUGHPUT,
    Figure,
    figure,
    takes_a_minute,
)
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import Verdict, VerdictState, worst
from edgemeter.agent.verdict.judge import counted
from edgemeter.agent.verdict.siblings import judged_together

DECODING = "generation_decode_tokens_per_s"


@dataclass(frozen=True)
class MeasuredCase:
    """The runs of one case in measuring order.

    Runs count as in every comparison; invalid ones count only if all are invalid.
    """

    runs: tuple[RunRecord, ...]

    @cached_property
    def counted(self) -> tuple[RunRecord, ...]:
        return tuple(counted(self.runs)) or self.runs

    @property
    def state(self) -> VerdictState:
        return worst([run.verdict.state for run in self.counted])

    @property
    def session_sd(self) -> float:
        """The assumed scatter between sessions on its machine."""
        return self.runs[0].environment.session_sd

    @property
    def verdicts(self) -> list[Verdict]:
        return [
            run.verdict
            for run in self.runs
            if self.state != "ok" or run.verdict.state != "disturbed"
        ]

    @property
    def typical(self) -> RunRecord:
        """The run with the median of the first figure; the first run if none has it."""
        value = figure(self.first_figure).value
        valued = sorted(
            (number, index)
            for index, run in enumerate(self.counted)
            if (number := value(run)) is not None
        )
        return self.counted[valued[(len(valued) - 1) // 2][1]] if valued else self.counted[0]

    @property
    def first_figure(self) -> str:
        """The main figure of the case.

        It is the decoding rate for text, missed frames for a camera, else latency or throughput.
        Its interval shows which differences can be detected.
        """
        run = self.counted[0]
        return (
            DECODING
            if run.generation
            else MISSED
            if run.steady
            else THROUGHPUT
            if run.scenario == "offline"
            else LATENCY
        )

    def values(self, name: str) -> list[float]:
        """Return the value of a figure in each run that has it.

        Energy that several models share counts for none.
        """
        entry = figure(name)
        runs = [
            run
            for run in self.counted
            if entry.group != "energy" or energy_provenance(run) != "shared"
        ]
        return [value for run in runs if (value := entry.value(run)) is not None]

    def interval(self, name: str) -> IntervalOverRuns | None:
        """Return the interval of a figure over the runs.

        It is None for too few runs, unknown scatter, or a share.
        """
        entry = figure(name)
        if entry.is_share or not self._shows_scatter(entry):
            return None
        # Memory does not vary between sessions.
        return interval_over_runs(
            self.values(name), 0.0 if entry.group == "memory" else self.session_sd
        )

    def _shows_scatter(self, entry: Figure) -> bool:
        values = [entry.value(run) or 0.0 for run in self.counted]
        return entry.shows_scatter(values, take_a_minute=all(map(takes_a_minute, self.counted)))

    def middle(self, name: str) -> str:
        """Return the mean of a figure over the runs without its interval; "-" without a value."""
        values = self.values(name)
        return figure(name).text(middle_of(values)) if values else ABSENT

    def text(self, name: str, unit: str | None = None, per: float = 1.0) -> str:
        """Return a figure as `140 ms ± 4%`, which is its mean over the runs with its interval.

        It is "-" without a value. `unit` replaces the figure's own, `per` of which are one; "" is
        for a table, whose heading has it.
        """
        entry, values = figure(name), self.values(name)
        unit = entry.unit if unit is None else unit
        if not values:
            return ABSENT
        if entry.is_share:
            evidence = mean_of([RunValue(value, "", 0) for value in values])
            bounds = evidence.share_bounds() if self._shows_scatter(entry) else None
            return f"{entry.table_text(evidence.middle)} {unit}".rstrip() + (
                f" (95% {entry.range_text(*bounds)})" if bounds else ""
            )
        value = f"{significant(middle_of(values) / per)} {unit}".rstrip()
        interval = self.interval(name)
        return with_interval(value, *(end / per for end in interval)) if interval else value

    @property
    def summary(self) -> str:
        speed = self.text(self.first_figure, "missed" if self.first_figure == MISSED else None)
        return ", ".join(
            text for text in (speed, self.accuracy_text(), self.state) if text != ABSENT
        )

    def accuracy_text(self) -> str:
        """Return the accuracy, such as `AP 0.404`; "-" without one."""
        scored = self.scored
        return (
            f"{metric_name(scored.accuracy.metric)} {scored.accuracy.value:.3f}"
            if scored and scored.accuracy
            else ABSENT
        )

    @property
    def scored(self) -> RunRecord | None:
        """The newest run with a score: a disturbance of its speed does not change its accuracy."""
        return next((run for run in reversed(self.runs) if run.accuracy), None)


def cases_of(runs: Iterable[RunRecord]) -> list[MeasuredCase]:
    """Return the cases of the runs, in the order of their first run."""
    cases: dict[object, list[RunRecord]] = {}
    for run in judged_together(runs):
        cases.setdefault(key_of(run), []).append(run)
    return [MeasuredCase(tuple(of_case)) for of_case in cases.values()]


def model_text(run: RunRecord) -> str:
    """Return the model's name; for a language model with the lengths of prompt and output."""
    return f"{run.model.name} {run.generation.lengths}" if run.generation else run.model.name


def setting_text(run: RunRecord) -> str:
    """Return precision (if known), runtime and threads.

    For a served load its users or rate follow, then concurrent models.
    """
    precision = "" if run.precision == "unknown" else run.precision
    return " ".join(filter(None, (precision, run.runtime.setting_text, load_text(run))))


def load_text(run: RunRecord) -> str:
    """Return users, rate and concurrent models, as far as a run has them."""
    users = (
        f"{run.load.concurrency} user{'s' * (run.load.concurrency > 1)}"
        if run.load and run.load.concurrency
        else ""
    )
    rate = (
        f"{plain_digits(run.load.target_per_s)} a second"
        if run.load and run.load.target_per_s
        else ""
    )
    rate = f"{plain_digits(run.steady.rate_per_s)} frames a second" if run.steady else rate
    company = f"beside {run.together.names}" if run.together else ""
    return " ".join(filter(None, (users or rate, company)))
