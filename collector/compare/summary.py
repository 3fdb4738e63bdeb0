"""The summary of a case: for each figure the median over its runs, with the range and the number of runs behind it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.agent.base.accuracy_bounds import BoundedFigure
from edgemeter.agent.base.metrics import Better, gain
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_accuracy import Accuracy
from edgemeter.agent.contract.record_conditions import TextForm
from edgemeter.agent.contract.record_figures import ColdStart, Memory, Stage
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.collector.compare.energy_summary import EnergySummary, energy_of
from edgemeter.collector.compare.spread import Spread, of_one_kind, of_points, point_of, spread
from edgemeter.collector.runs.cases import Case, CaseKey, CurrentSegment, distinct, not_measured
from edgemeter.collector.runs.store import LeftOut
from edgemeter.collector.trend.current import current_cases

# Which runs of a case count: those since the newest step of its level, or all.
DaysCounted = Literal["current", "all"]


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

    @property
    def bounded(self) -> BoundedFigure:
        """Return the median with the bounds of the newest run."""
        return BoundedFigure(self.value.median, self.low, self.high, self.without_parts, self.interval_reason)

    @property
    def gain(self) -> float:
        """Return the median, with its sign turned where lower is better: the larger of two is the better."""
        return gain(self.value.median, self.better)


def accuracy_of(runs: Sequence[RunRecord]) -> tuple[AccuracySummary | None, str | None, list[LeftOut]]:
    """Return the accuracy of the runs of a case (oldest first), or why there is none, and what is left out of it."""
    kept, left_out = of_one_kind(runs, "accuracy", lambda run: run.accuracy, _kind_of_accuracy)
    value = of_points([point_of(run, accuracy.value) for run, accuracy in kept])
    if value is None:
        reasons = distinct([*(run.accuracy_reason for run in runs), *(entry.reason for entry in left_out)])
        return None, "; ".join(reasons) or "not scored", left_out
    newest = kept[-1][1]
    found = AccuracySummary(
        metric=newest.metric,
        value=value,
        images=newest.images,
        dataset_sha256=newest.dataset_sha256,
        detail=newest.detail,
        low=newest.low,
        high=newest.high,
        without_parts=newest.without_parts,
        better=newest.better,
        interval_reason=newest.interval_reason,
    )
    return found, None, left_out


def _kind_of_accuracy(_: RunRecord, accuracy: Accuracy) -> str:
    return f"{accuracy.metric} on {accuracy.images} images ({accuracy.dataset_sha256[:12]})"


# What is shown of the machine that a case ran on.
ENVIRONMENT = ("board", "soc", "cpu", "cores", "os", "kernel", "virtualisation", "governor", "power_mode", "agent", "firmware")


@dataclass(frozen=True, slots=True)
class ColdStartSummary:
    """Time from process start to the first output, step by step; `process_ms` is None if unknown."""

    process_ms: Spread | None
    import_ms: Spread
    load_ms: Spread
    first_ms: Spread


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """Resident memory of the run's process; `prepared_inputs_mb` of the peak are inputs that the benchmark itself keeps ready."""

    before_load_mb: Spread
    loaded_mb: Spread
    peak_mb: Spread
    prepared_inputs_mb: Spread


@dataclass(frozen=True, slots=True)
class CaseSurroundings:
    """The surroundings of the runs of a case, read once, so that showing a case reads no run again.

    Values of the environment that differ between the runs are joined by ` | `.
    """

    first_started_at_ns: int
    queries: int
    modes: tuple[str, ...]
    environment: dict[str, str | None]
    has_several_libraries: bool
    hottest_c: float | None


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """One case in figures. A figure is None where no run of the case has it.

    `gate_ratio` is the accuracy gate of the newest run that has one, `generates` whether the newest run generated text, `text` the form of
    its texts, None where its data are none. `segment` is since when its runs count and why, None where all do. Where there are many cases,
    `runs` and `run_ids` are read on demand.
    """

    key: CaseKey
    runs: Sequence[RunRecord]
    run_ids: Sequence[str]
    around: CaseSurroundings
    p50_ms: Spread | None
    p90_ms: Spread | None
    p99_ms: Spread | None
    throughput_per_s: Spread
    cold_start: ColdStartSummary | None
    preprocess_p50_ms: Spread | None
    postprocess_p50_ms: Spread | None
    memory: MemorySummary | None
    accuracy: AccuracySummary | None
    accuracy_reason: str | None
    energy: EnergySummary | None
    energy_reason: str | None
    suspect: int
    verdict_reasons: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    generates: bool
    gate_ratio: float | None = None
    segment: CurrentSegment | None = None
    text: TextForm | None = None

    @property
    def verdict(self) -> str:
        """`suspect` when any run is, else `valid`; invalid runs never come this far."""
        return "suspect" if self.suspect else "valid"

    @property
    def peak_mb(self) -> Spread | None:
        """Peak resident memory."""
        return self.memory.peak_mb if self.memory else None

    @property
    def accuracy_value(self) -> Spread | None:
        """Accuracy in its own metric."""
        return self.accuracy.value if self.accuracy else None

    @property
    def gross_mj(self) -> Spread | None:
        """Gross energy per inference."""
        return self.energy.gross_mj if self.energy else None

    @property
    def net_mj(self) -> Spread | None:
        """Net energy per inference, where it is resolved."""
        return self.energy.net_mj if self.energy else None

    @property
    def ttft_p50_ms(self) -> Spread | None:
        """Time to first token, of a language model."""
        return self._generated(lambda found: found.ttft.p50_ms)

    @property
    def tpot_p50_ms(self) -> Spread | None:
        """Time per output token, of a language model."""
        return self._generated(lambda found: found.tpot.p50_ms if found.tpot else None)

    @property
    def prefill_tokens_per_s(self) -> Spread | None:
        """Prompt tokens per second, of a language model."""
        return self._generated(lambda found: found.prefill_tokens_per_s)

    @property
    def decode_tokens_per_s(self) -> Spread | None:
        """Tokens decoded per second, of a language model."""
        return self._generated(lambda found: found.decode_tokens_per_s)

    def _generated(self, figure: Callable[[Generation], float | None]) -> Spread | None:
        # The runs may have to be read first: only where there is a figure in them.
        if not self.generates:
            return None
        return spread(self.runs, lambda run: figure(run.generation) if run.generation else None)

    @property
    def newest(self) -> RunRecord:
        """The newest run: what is the same in all runs of the case is read from it."""
        return self.runs[-1]


def summarise(case: Case) -> CaseSummary:
    """Return the summary of `case`."""
    runs = case.runs
    energy, energy_reason, energy_left_out = energy_of(runs)
    accuracy, accuracy_reason, accuracy_left_out = accuracy_of(runs)
    return CaseSummary(
        key=case.key,
        runs=runs,
        run_ids=tuple(run.id for run in runs),
        around=_surroundings(runs),
        p50_ms=spread(runs, lambda run: run.latency.p50_ms),
        p90_ms=spread(runs, lambda run: run.latency.p90_ms),
        p99_ms=spread(runs, lambda run: run.latency.p99_ms),
        throughput_per_s=_over(runs, lambda run: run.throughput_per_s),
        cold_start=_cold_start(runs),
        preprocess_p50_ms=_stage(runs, lambda run: run.preprocess),
        postprocess_p50_ms=_stage(runs, lambda run: run.postprocess),
        memory=_memory(runs),
        accuracy=accuracy,
        accuracy_reason=accuracy_reason,
        energy=energy,
        energy_reason=energy_reason,
        suspect=sum(run.verdict.state == "suspect" for run in runs),
        verdict_reasons=_reasons(runs),
        left_out=(*energy_left_out, *accuracy_left_out, *_earlier(case)),
        generates=runs[-1].generation is not None,
        gate_ratio=next((run.accuracy_gate.ratio for run in reversed(runs) if run.accuracy_gate), None),
        segment=case.segment,
        text=runs[-1].dataset.text,
    )


def summaries_of(cases: Sequence[Case], days: DaysCounted = "current") -> list[CaseSummary]:
    """Return the summary of each case: of the level that the board has now, or of all days."""
    return [summarise(case) for case in (current_cases(cases) if days == "current" else cases)]


def _earlier(case: Case) -> list[LeftOut]:
    if case.segment is None:
        return []
    reason = f"earlier than the current level, {case.segment.words}"
    return [LeftOut(run.id, reason) for run in case.earlier]


def environment(runs: Sequence[RunRecord], field: str) -> str | None:
    """Return one field of the environment (`board`, `governor`, ...) as text; values that differ between the runs are joined by ` | `."""
    return " | ".join(distinct(_text(getattr(run.environment, field)) for run in runs)) or None


def hottest_c(runs: Sequence[RunRecord]) -> float | None:
    """Return the highest temperature that any sensor of the device showed around any run, None when it has none."""
    conditions = [condition for run in runs for condition in run.conditions]
    return max((value for condition in conditions for value in condition.temperatures_c.values()), default=None)


def rule_of(reason: str) -> str:
    """Return the rule of a verdict's reason, which is `rule: evidence`."""
    return reason.partition(":")[0]


def _surroundings(runs: Sequence[RunRecord]) -> CaseSurroundings:
    return CaseSurroundings(
        first_started_at_ns=runs[0].started_at_ns,
        queries=sum(run.latency.count for run in runs),
        modes=tuple(dict.fromkeys(run.mode for run in runs)),
        environment={field: environment(runs, field) for field in ENVIRONMENT},
        has_several_libraries=len({tuple(sorted(run.environment.libraries.items())) for run in runs}) > 1,
        hottest_c=hottest_c(runs),
    )


def _text(value: object) -> str | None:
    if value is None or value == ():
        return None
    return ", ".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _over(runs: Sequence[RunRecord], figure: Callable[[RunRecord], float]) -> Spread:
    found = spread(runs, figure)
    if found is None:
        raise ValueError("a case has at least one run")
    return found


def _cold_start(runs: Sequence[RunRecord]) -> ColdStartSummary | None:
    measured = [run for run in runs if not_measured(run, "cold_start") is None]
    if not measured:
        return None

    def step(figure: Callable[[ColdStart], float]) -> Spread:
        return _over(measured, lambda run: figure(run.cold_start))

    return ColdStartSummary(
        process_ms=spread(measured, lambda run: run.cold_start.process_ms),
        import_ms=step(lambda start: start.import_ms),
        load_ms=step(lambda start: start.load_ms),
        first_ms=step(lambda start: start.first_ms),
    )


def _memory(runs: Sequence[RunRecord]) -> MemorySummary | None:
    measured = [run for run in runs if not_measured(run, "memory") is None]
    if not measured:
        return None

    def level(figure: Callable[[Memory], float]) -> Spread:
        return _over(measured, lambda run: figure(run.memory))

    return MemorySummary(
        before_load_mb=level(lambda memory: memory.before_load_mb),
        loaded_mb=level(lambda memory: memory.loaded_mb),
        peak_mb=level(lambda memory: memory.peak_mb),
        prepared_inputs_mb=level(lambda memory: memory.prepared_inputs_mb),
    )


def _stage(runs: Sequence[RunRecord], stage: Callable[[RunRecord], Stage | None]) -> Spread | None:
    return spread(runs, lambda run: found.p50_ms if (found := stage(run)) else None)


def _reasons(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return each broken rule once, with the evidence of the first run that broke it and how many of the runs did."""
    first: dict[str, str] = {}
    count: Counter[str] = Counter()
    for run in runs:
        for reason in run.verdict.reasons:
            rule = rule_of(reason)
            first.setdefault(rule, reason)
            count[rule] += 1
    return tuple(f"{reason} ({count[rule]} of {len(runs)} runs)" if len(runs) > 1 else reason for rule, reason in first.items())
