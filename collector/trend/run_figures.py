"""What the trend needs of a run: the series it belongs to, what stood around it, and its figures with their standard uncertainties."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from edgemeter.agent.records import Energy, RunRecord
from edgemeter.collector.compare.cases import UNKNOWN_BOARD, key_of, not_measured

NS_PER_DAY = 86_400 * 1_000_000_000
# Bounds of 95 % are so many standard deviations apart.
_BOUNDS_APART = 2 * 1.959964


class SeriesKey(msgspec.Struct, frozen=True, order=True):
    """What must be equal for runs to be one series: the case on its device, without what may change below it (see `Fingerprint`)."""

    fleet: str
    device: str
    role: str
    board: str
    model: str
    precision: str
    runtime: str
    backend: str
    threads: int
    batch: int
    scenario: str
    samples_per_query: int
    target_per_s: float | None
    task: str
    dataset_sha256: str
    input_values: int | None
    provenance: str

    def case(self) -> str:
        """Return the case as people call it."""
        threads = f"{self.threads} thread" + ("" if self.threads == 1 else "s")
        batch = "" if self.batch == 1 else f", batch {self.batch}"
        return f"{self.model} {self.precision} on {self.runtime} {self.backend}, {threads}{batch}, {self.scenario}"

    def of_type(self) -> "SeriesKey":
        """Return the same case on all devices of the board type."""
        return msgspec.structs.replace(self, device="")


class Fingerprint(msgspec.Struct, frozen=True):
    """What may change below a series: a step beside a change of one of these has a candidate for its cause."""

    agent: str
    runtime: str
    firmware: str | None
    kernel: str
    power_mode: str | None
    governor: str | None
    model: str
    meter: str | None

    def changes_to(self, later: "Fingerprint") -> list[str]:
        """Return what is different in `later`, in words."""
        pairs = ((name, getattr(self, name), getattr(later, name)) for name in self.__struct_fields__)
        return [
            f"{name.replace('_', ' ')} {before or 'none'} to {after or 'none'}"
            for name, before, after in pairs
            # A run without an energy says nothing of the meter.
            if before != after and not (name == "meter" and None in (before, after))
        ]


class RunFigures(NamedTuple):
    """One run in figures, None where it has none.

    `*_u` are relative standard uncertainties (k = 1) of one run, in the figure's own unit for the accuracy. `energy_kind` and
    `accuracy_kind` say what was measured how: two kinds are two series.
    """

    run: str
    started_at_ns: int
    received_ns: int
    day: int
    verdict: str
    temperature_c: float | None
    energy_mj: float | None
    energy_u: float | None
    net_mj: float | None
    net_u: float | None
    energy_kind: str | None
    p50_ms: float | None
    p50_u: float | None
    p90_ms: float | None
    p90_u: float | None
    accuracy: float | None
    accuracy_kind: str | None
    is_throttled: bool | None
    is_under_voltage: bool | None


def series_of(run: RunRecord) -> SeriesKey:
    """Return the series that `run` belongs to."""
    key = key_of(run)
    return SeriesKey(
        fleet=key.fleet,
        device=key.device,
        role=key.role,
        board=run.environment.board or UNKNOWN_BOARD,
        model=key.model,
        precision=key.precision,
        runtime=key.runtime,
        backend=key.backend,
        threads=key.threads,
        batch=key.batch,
        scenario=key.scenario,
        samples_per_query=key.samples_per_query,
        target_per_s=key.target_per_s,
        task=key.task,
        dataset_sha256=key.dataset_sha256,
        input_values=key.input_values,
        provenance=key.provenance,
    )


def fingerprint_of(run: RunRecord) -> Fingerprint:
    """Return what stood below `run`."""
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


def figures_of(run: RunRecord, received_ns: int | None = None) -> RunFigures:
    """Return the figures of `run`; those that were not measured (or replayed) are left away.

    A run whose device did not know the time is placed by when it was received, where that is known.
    """
    at_ns = received_ns if received_ns is not None and run.clock_synchronised is False else run.started_at_ns
    energy = run.energy if run.energy is not None and not_measured(run, "energy") is None and run.energy.gross_mj > 0 else None
    accuracy = run.accuracy if not_measured(run, "accuracy") is None else None
    has_latency = not_measured(run, "latency") is None
    latency = run.latency
    is_resolved = energy is not None and energy.net_state == "resolved" and energy.net_mj is not None and energy.net_mj > 0
    return RunFigures(
        run=run.id,
        started_at_ns=at_ns,
        received_ns=at_ns if received_ns is None else received_ns,
        day=at_ns // NS_PER_DAY,
        verdict=run.verdict.state,
        temperature_c=_temperature_c(run),
        energy_mj=energy.gross_mj if energy else None,
        energy_u=_ratio(energy.gross_u_mj, energy.gross_k, energy.gross_mj) if energy else None,
        net_mj=energy.net_mj if energy and is_resolved else None,
        net_u=_ratio(energy.net_u_mj, energy.net_k, energy.net_mj) if energy and is_resolved else None,
        energy_kind=_energy_kind(energy) if energy else None,
        p50_ms=latency.p50_ms if has_latency and latency.p50_ms and latency.p50_ms > 0 else None,
        p50_u=_from_bounds(latency.p50_low_ms, latency.p50_high_ms, latency.p50_ms),
        p90_ms=latency.p90_ms if has_latency and latency.p90_ms and latency.p90_ms > 0 else None,
        p90_u=_from_bounds(latency.p90_low_ms, latency.p90_high_ms, latency.p90_ms),
        accuracy=accuracy.value if accuracy else None,
        accuracy_kind=f"{accuracy.metric} over {accuracy.images} images {accuracy.dataset_sha256[:12]}" if accuracy else None,
        is_throttled=_is_throttled(run),
        is_under_voltage=_any(one.under_voltage_now for one in run.conditions),
    )


def _ratio(expanded: float | None, factor: float | None, value: float | None) -> float | None:
    return expanded / (factor or 2.0) / value if expanded is not None and value else None


def _from_bounds(low: float | None, high: float | None, value: float | None) -> float | None:
    return (high - low) / _BOUNDS_APART / value if low is not None and high is not None and value else None


def _energy_kind(energy: Energy) -> str:
    excludes = f" without {', '.join(energy.excludes)}" if energy.excludes else ""
    return f"{energy.scope}{excludes}"


def _temperature_c(run: RunRecord) -> float | None:
    """Return the highest temperature before the run: what the load itself makes of it is no cause. Without one, that of any look."""
    for when in ("before", "during", "after"):
        found = [value for one in run.conditions if one.when == when for value in one.temperatures_c.values()]
        if found:
            return max(found)
    return None


def _is_throttled(run: RunRecord) -> bool | None:
    """Return whether the board throttled, None where nothing tells."""
    if any(reason.partition(":")[0] == "throttled" for reason in run.verdict.reasons):
        return True
    return _any(one.throttled_now for one in run.conditions)


def _any(flags: Iterable[bool | None]) -> bool | None:
    told = [flag for flag in flags if flag is not None]
    return any(told) if told else None
