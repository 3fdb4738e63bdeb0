"""What the page needs of a run without reading the record again: one row of plain figures, and the state of the machine beside it."""

from typing import NamedTuple

import msgspec

from edgemeter.agent.records import RunRecord
from edgemeter.collector.compare.cases import not_measured, unusable

COLD_START_STEPS = ("process_ms", "import_ms", "load_ms", "first_ms")


class RunFigures(NamedTuple):
    """One run in figures, None where it has none; `is_usable` is whether it may stand beside others at all.

    `energy_kind` and `accuracy_kind` say what was measured how: figures of two kinds are never merged.
    """

    row: int
    case_number: int
    fingerprint: int
    id: str
    started_at_ns: int
    verdict: str
    is_usable: bool
    p50_ms: float | None
    p50_low_ms: float | None
    p50_high_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    throughput_per_s: float | None
    cold_start_ms: float | None
    peak_mb: float | None
    gross_mj: float | None
    gross_u_mj: float | None
    net_mj: float | None
    net_u_mj: float | None
    energy_kind: str | None
    accuracy: float | None
    accuracy_kind: str | None
    temperature_c: float | None
    is_throttled: bool | None


class Fingerprint(msgspec.Struct, frozen=True):
    """What may change below a device from one run to the next: a step in a series is looked at beside a change of this."""

    agent: str
    runtime: str
    firmware: str | None
    kernel: str
    power_mode: str | None
    governor: str | None
    model: str
    meter: str | None

    def changes_to(self, later: "Fingerprint") -> list[str]:
        """Return what is different in `later`, in words, the model's file by the start of its hash."""
        pairs = ((name, getattr(self, name), getattr(later, name)) for name in self.__struct_fields__)
        return [f"{name.replace('_', ' ')} {before or 'none'} to {after or 'none'}" for name, before, after in pairs if before != after]


def fingerprint_of(run: RunRecord) -> Fingerprint:
    """Return the fingerprint of a run."""
    return Fingerprint(
        agent=run.environment.agent,
        runtime=f"{run.runtime.package} {run.runtime.version}",
        firmware=run.environment.firmware,
        kernel=run.environment.kernel,
        power_mode=run.environment.power_mode,
        governor=run.environment.governor,
        model=run.model.sha256[:12],
        meter=run.energy.sensor if run.energy else None,
    )


def figures_of(run: RunRecord, row: int, case_number: int, fingerprint: int) -> RunFigures:
    """Return the figures of a run; those that may not stand beside others (estimated, published) are left away."""
    energy = run.energy if not_measured(run, "energy") is None else None
    accuracy = run.accuracy if not_measured(run, "accuracy") is None else None
    has_start = not_measured(run, "cold_start") is None
    is_resolved = energy is not None and energy.net_state == "resolved"
    return RunFigures(
        row=row,
        case_number=case_number,
        fingerprint=fingerprint,
        id=run.id,
        started_at_ns=run.started_at_ns,
        verdict=run.verdict.state,
        is_usable=unusable(run) is None,
        p50_ms=run.latency.p50_ms,
        p50_low_ms=run.latency.p50_low_ms,
        p50_high_ms=run.latency.p50_high_ms,
        p90_ms=run.latency.p90_ms,
        p99_ms=run.latency.p99_ms,
        throughput_per_s=run.throughput_per_s,
        cold_start_ms=sum(getattr(run.cold_start, step) or 0.0 for step in COLD_START_STEPS) if has_start else None,
        peak_mb=run.memory.peak_mb if not_measured(run, "memory") is None else None,
        gross_mj=energy.gross_mj if energy else None,
        gross_u_mj=energy.gross_u_mj if energy else None,
        net_mj=energy.net_mj if energy and is_resolved else None,
        net_u_mj=energy.net_u_mj if energy and is_resolved else None,
        energy_kind=f"{energy.sensor} | {energy.scope} | {', '.join(energy.excludes)}" if energy else None,
        accuracy=accuracy.value if accuracy else None,
        accuracy_kind=f"{accuracy.metric} | {accuracy.images} | {accuracy.dataset_sha256[:12]}" if accuracy else None,
        temperature_c=_hottest_c(run),
        is_throttled=_is_throttled(run),
    )


def _hottest_c(run: RunRecord) -> float | None:
    return max((value for condition in run.conditions for value in condition.temperatures_c.values()), default=None)


def _is_throttled(run: RunRecord) -> bool | None:
    """Return whether the machine was throttled around the run, None where nothing tells."""
    told = [flag for one in run.conditions for flag in (one.throttled_now, one.under_voltage_now) if flag is not None]
    return any(told) if told else None
