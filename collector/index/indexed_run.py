"""One run in figures, as the index keeps it, so that no record is read again to follow a figure over time."""

from collections.abc import Sequence
from typing import NamedTuple

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.collector.compare.summary import hottest_c
from edgemeter.collector.runs.cases import not_measured, unusable
from edgemeter.collector.trend.metrics import has_own_energy, regressor_c


class IndexedRun(NamedTuple):
    """One run in figures, None where it has none; `is_usable` is whether it may be compared at all.

    `energy_kind` and `accuracy_kind` are what was measured how: figures of two kinds are never merged.
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
    throughput_per_s: float | None
    gross_mj: float | None
    gross_u_mj: float | None
    net_mj: float | None
    net_u_mj: float | None
    energy_kind: str | None
    energy_provenance: str | None
    has_own_energy: bool | None
    accuracy: float | None
    accuracy_kind: str | None
    temperature_c: float | None
    is_throttled: bool | None
    regressor_c: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None


def indexed_run_of(run: RunRecord, row: int, case_number: int, fingerprint: int) -> IndexedRun:
    """Return the figures of a run; those that may not be compared (estimated, published) are left out."""
    energy = run.energy if not_measured(run, "energy") is None else None
    accuracy = run.accuracy if not_measured(run, "accuracy") is None else None
    is_resolved, provenance = energy is not None and energy.net_state == "resolved", energy_provenance(run) if energy else None
    return IndexedRun(
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
        throughput_per_s=run.throughput_per_s,
        gross_mj=energy.gross_mj if energy else None,
        gross_u_mj=energy.gross_u_mj if energy else None,
        net_mj=energy.net_mj if energy and is_resolved else None,
        net_u_mj=energy.net_u_mj if energy and is_resolved else None,
        energy_kind=f"{energy.sensor} | {energy.scope} | {', '.join(energy.excludes)} | {provenance}" if energy else None,
        energy_provenance=provenance,
        has_own_energy=has_own_energy(run) if energy else None,
        accuracy=accuracy.value if accuracy else None,
        accuracy_kind=f"{accuracy.metric} | {accuracy.images} | {accuracy.dataset_sha256[:12]}" if accuracy else None,
        temperature_c=hottest_c([run]),
        is_throttled=_is_throttled(run),
        regressor_c=regressor_c(run),
        ttft_ms=run.generation.ttft.p50_ms if run.generation else None,
        tpot_ms=run.generation.tpot.p50_ms if run.generation and run.generation.tpot else None,
    )


def _is_throttled(run: RunRecord) -> bool | None:
    """Return whether the machine was throttled around the run, None if unknown."""
    flags = [flag for one in run.conditions for flag in (one.throttled_now, one.under_voltage_now) if flag is not None]
    return any(flags) if flags else None


ENERGIES = frozenset({"gross_mj", "net_mj"})
# What says of a figure how it was measured.
KINDS = {"gross_mj": "energy_kind", "net_mj": "energy_kind", "accuracy": "accuracy_kind"}


def of_newest_kind(runs: Sequence[IndexedRun], metric: str) -> list[IndexedRun]:
    """Return the runs (oldest first) whose figure is of one kind, the newest's; all of a metric that has no kinds."""
    kind = KINDS.get(metric)
    if kind is None:
        return list(runs)
    newest = next((found for run in reversed(runs) if (found := getattr(run, kind)) is not None), None)
    return [run for run in runs if getattr(run, kind) == newest] if newest is not None else []
