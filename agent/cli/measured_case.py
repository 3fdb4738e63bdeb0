"""One case of a session with all its runs, and what they come to in one sentence: median, interval and verdict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from edgemeter.agent.base.figures import ABSENT, count, plain_digits, with_uncertainty
from edgemeter.agent.base.metrics import metric_name
from edgemeter.agent.base.run_statistics import fewest_runs, median_interval
from edgemeter.agent.contract.case_identity import key_of
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.figures import TOO_FEW_QUERIES, Figure, in_view
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import VerdictState, worst
from edgemeter.agent.contract.steady_facts import of_frame

# The figures that answer for a case, by name: of a language model its tokens, of a camera its frames.
ANSWERS = ("latency_p50_ms",)
STEADY_ANSWERS = ("steady_missed_ratio", "latency_p50_ms", "steady_power_w")
TEXT_ANSWERS = ("generation_ttft_p50_ms", "generation_decode_tokens_per_s")


@dataclass(frozen=True)
class MeasuredCase:
    """The runs of one case in the order of measuring. Invalid ones do not count, unless all of them are."""

    runs: tuple[RunRecord, ...]

    @cached_property
    def counted(self) -> tuple[RunRecord, ...]:
        """The runs that its figures are of."""
        return tuple(run for run in self.runs if run.verdict.state != "invalid") or self.runs

    @property
    def state(self) -> VerdictState:
        """The worst verdict of the runs that count."""
        return worst([run.verdict.state for run in self.counted])

    def middle(self, value: Callable[[RunRecord], float | None]) -> RunRecord | None:
        """Return the run whose value is the median, of an even number the lower of the two in the middle; None where none has one."""
        valued = sorted(((number, index) for index, run in enumerate(self.counted) if (number := value(run)) is not None))
        return self.counted[valued[(len(valued) - 1) // 2][1]] if valued else None

    @property
    def typical(self) -> RunRecord:
        """The run with the median latency, of frames with the median share of missed ones; the first where none has a p50."""
        missed = self.middle(lambda run: run.steady.missed_ratio if run.steady else None)
        return missed or self.middle(lambda run: run.latency.p50_ms) or self.counted[0]

    def median_text(self, entry: Figure) -> str:
        """Return the median of a figure over the runs, or what they come to together; "-" where none has it."""
        if entry.over_runs:
            return entry.table_text(over[0] if (over := entry.over_runs(self.counted)) else None)
        values = self._values(entry)
        run = self.middle(entry.value) if values and entry.u else None
        if run and (ends := entry.bounds(run)):
            # No digit that the uncertainty leaves open.
            return with_uncertainty(median(values), (ends[1] - ends[0]) / 2).partition(" ")[0]
        return entry.table_text(median(values) if values else None)

    def interval_text(self, entry: Figure) -> str:
        """Return the 95% interval of the figure over the runs; empty where they are too few, or depend too much."""
        if entry.over_runs:
            over = entry.over_runs(self.counted)
            return entry.range_text(*over[1]) if over and over[1] else ""
        interval = median_interval(self._values(entry))
        return entry.range_text(*interval) if interval else ""

    def sentence(self) -> str:
        """Return the answer: figure with interval, accuracy, energy, and the verdict."""
        run = self.counted[0]
        names = TEXT_ANSWERS if run.generation else STEADY_ANSWERS if run.steady else ANSWERS
        entries = [entry for entry in in_view("run") if entry.name in names and self._values(entry)]
        figures = [self._figure_text(entry) for entry in sorted(entries, key=lambda entry: names.index(entry.name))]
        scored = self.middle(lambda run: run.accuracy.value if run.accuracy else None)
        energetic = self.middle(lambda run: run.energy.gross_mj if run.energy else None)
        parts = [
            *(figures or [f"{TOO_FEW_QUERIES} ({run.latency.count:,})"]),
            accuracy_text(scored.accuracy) if scored and scored.accuracy else "",
            gross_text(energetic, f" mJ gross{f' {of_frame(energetic.steady)}' if energetic.steady else ''}") if energetic else "",
        ]
        return f"{model_text(run)} {setting_text(run)} on {run.device}: {', '.join(filter(None, parts))}: {self.state}"

    def _values(self, entry: Figure) -> list[float]:
        runs = [run for run in self.counted if entry.group != "energy" or energy_provenance(run) != "shared"]
        return [value for run in runs if (value := entry.value(run)) is not None]

    def _figure_text(self, entry: Figure) -> str:
        name = entry.heading.removesuffix(entry.unit).strip() if entry.unit else entry.title
        return " ".join(filter(None, (name, self.median_text(entry), entry.unit, f"({self._certainty(entry)})")))

    def _certainty(self, entry: Figure) -> str:
        values = self._values(entry)
        if len(values) > 1:
            if interval_text := self.interval_text(entry):
                return f"95% {interval_text} over {len(values)} runs"
            remedy = "" if entry.over_runs else f", {fewest_runs(values)} give an interval"
            return f"{entry.range_text(min(values), max(values))} in {len(values)} runs{remedy}"
        bounds = entry.bounds(self.counted[0])
        return f"one run; 95% {entry.range_text(*bounds)} within it" if bounds else "one run"


def cases_of(runs: Iterable[RunRecord]) -> list[MeasuredCase]:
    """Return the cases of the runs, in the order of their first run."""
    cases: dict[object, list[RunRecord]] = {}
    for run in runs:
        cases.setdefault(key_of(run), []).append(run)
    return [MeasuredCase(tuple(of_case)) for of_case in cases.values()]


def model_text(run: RunRecord, *, lengths: bool = True) -> str:
    """Return the model's name, of a language model with the lengths of prompt and output."""
    return f"{run.model.name} {run.generation.lengths}" if run.generation and lengths else run.model.name


def setting_text(run: RunRecord) -> str:
    """Return precision (where it is known), runtime and threads, of a served load its users or rate, the company."""
    precision = "" if run.precision == "unknown" else run.precision
    users = count(run.load.concurrency, "user") if run.load and run.load.concurrency else ""
    rate = f"{plain_digits(run.load.target_per_s)} a second" if run.load and run.load.target_per_s else ""
    rate = f"{plain_digits(run.steady.rate_per_s)} frames a second" if run.steady else rate
    company = f"beside {run.together.names}" if run.together else ""
    return " ".join(filter(None, (precision, run.runtime.setting_text, users or rate, company)))


def accuracy_text(accuracy: Accuracy) -> str:
    """Return an accuracy with its bounds and what they take as independent, e.g. `AP 0.3720 (0.3410 to 0.4000; ...)`."""
    value = f"{metric_name(accuracy.metric)} {accuracy.value:.4f}"
    if accuracy.low is None or accuracy.high is None:
        return value
    return f"{value} ({accuracy.low:.4f} to {accuracy.high:.4f}{f'; {accuracy.over}' if accuracy.over else ''})"


def gross_text(run: RunRecord, unit: str = "") -> str:
    """Return the gross energy in mJ with its expanded uncertainty, the unit, and its origin where it was not measured."""
    if run.energy is None:
        return ABSENT
    provenance = energy_provenance(run)
    if provenance == "shared" and run.together:
        provenance_text = f"shared by {len(run.together.neighbours) + 1} models"
        return f"{energy_text(run.energy.gross_mj, run.energy.gross_u_mj)}{unit} ({provenance_text})"
    if provenance == "estimated":
        return f"{plain_digits(run.energy.gross_mj)}{unit} ({provenance})"
    text = energy_text(run.energy.gross_mj, run.energy.gross_u_mj) + unit
    return text if provenance == "measured" else f"{text} ({provenance})"


def energy_text(energy_mj: float, u_mj: float | None) -> str:
    """Return an energy with its expanded uncertainty, `?` where that is not known."""
    return f"{plain_digits(energy_mj)} ±{'?' if u_mj is None else plain_digits(u_mj, 2)}"
