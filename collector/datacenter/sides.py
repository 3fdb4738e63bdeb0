"""The two sides: an edge device and a server, measured or stated, each of their figures as a band."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy, Scope
from edgemeter.collector.compare.spread import Spread, of_points, point_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.datacenter.constants import StatedDatacenter, StatedEdge
from edgemeter.collector.datacenter.formulas import Band, edge_mj, exactly, through
from edgemeter.collector.datacenter.workload import TokenWorkload, stated_workload, workload_of
from edgemeter.collector.runs.cases import EnergyClass, named, not_measured

# The only scope that leaves nothing out: any other figure is too low by what it does not see.
WHOLE = "wall-ac"

# A server without a meter at its plug is seen by its processor and its GPU, each without the other.
HALVES: frozenset[Scope] = frozenset({"cpu-package", "gpu-board"})

# What is measured of a language model is one request after the other; a datacenter's server works on many at once.
UNBATCHED = (
    "measured with one request at a time; a server that batches requests takes less energy for each: state one with its concurrency "
    "in --constants as [stated.datacenter]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The fields of both sides. Energies and the rate are by the inference, of a language model by the request with its `tokens`.

    `latency_ms` is of a whole batch, which a side begins when it is full.
    """

    name: str
    provenance: str
    scope: str
    excludes: tuple[str, ...]
    rate_per_s: Band
    latency_ms: float | None
    batch: int = 1
    cautions: tuple[str, ...] = ()
    tokens: TokenWorkload | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the energy leaves nothing out."""
        return self.scope == WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSide(_Side):
    """An edge device: gross energy when it does nothing else, idle power and net energy where they are known, and the rate it can do."""

    saturated_mj: Band
    idle_w: Band | None
    net_mj: Band | None
    why_no_idle: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSide(_Side):
    """A server under one load: idle and full power, and the rate at full load; `load` is `single stream` or `batch-saturated`."""

    load: str
    idle_w: Band
    max_w: Band

    @property
    def full_load_j(self) -> float:
        """The gross energy of an inference at full load in J."""
        return self.max_w.value / self.rate_per_s.value


def edge_of(case: CaseSummary) -> EdgeSide | None:
    """Return a measured case as an edge device, None where it has no energy."""
    energy, gross = case.energy, case.gross_mj
    if energy is None or gross is None:
        return None
    idle, why = _idle(case)
    resolved = case.spreads.get("energy_net_mj")
    net = _band(resolved, case.uncertainties.get("energy_net_mj")) if resolved else None
    if idle is not None and net is None:
        # Net energy is lost in the noise of idle power: it is what is left of the gross energy, and may be nothing.
        remainder_mj = max(0.0, gross.median - idle.value / case.throughput_per_s.median * 1000)
        net = Band(0.0, remainder_mj, remainder_mj + (case.gross_u_mj or gross.median))
    return EdgeSide(
        **_measured(case),
        scope=energy.scope,
        excludes=energy.excludes,
        saturated_mj=_band(gross, case.gross_u_mj),
        idle_w=idle,
        net_mj=net if idle is not None else None,
        why_no_idle=why,
        cautions=_cautions(case),
    )


def server_of(case: CaseSummary) -> ServerSide | str:
    """Return a measured case as a server, or why it cannot be one."""
    energy, power = case.energy, case.spreads.get("energy_mean_power_w")
    if energy is None or power is None:
        return f"no energy: {case.energy_reason}"
    idle, why = _idle(case)
    if idle is None:
        return why or "no idle power"
    scope: str = energy.scope
    excludes, mean_w = energy.excludes, _band(power, _relative_u(case) * power.median)
    if other_half := _other_half(case):
        other_scope, excludes, other_idle, other_most = other_half
        scope = f"{energy.scope} + {other_scope}"
        idle, mean_w = idle.plus(other_idle), mean_w.plus(other_most)
    return ServerSide(
        **_measured(case),
        load="batch-saturated" if case.key.scenario == "offline" else "single stream",
        scope=scope,
        excludes=excludes,
        idle_w=idle,
        max_w=mean_w,
        cautions=(*_cautions(case), *([UNBATCHED] if case.newest.generation else [])),
    )


def stated_edge(edge: StatedEdge) -> EdgeSide:
    """Return an edge device by stated numbers."""
    idle, net = exactly(edge.idle_w), exactly(edge.net_mj)
    saturated = through(edge_mj, idle, net, exactly(edge.rate_per_s))
    return EdgeSide(**_stated(edge), saturated_mj=saturated, idle_w=idle, net_mj=net)


def stated_server(server: StatedDatacenter) -> ServerSide:
    """Return a server by stated numbers."""
    return ServerSide(**_stated(server), load="as stated", idle_w=exactly(server.idle_w), max_w=exactly(server.max_w))


def _stated(side: StatedEdge | StatedDatacenter) -> dict[str, Any]:
    return {
        "name": f"stated: {side.source}", "provenance": "stated", "scope": side.scope, "excludes": (),
        "rate_per_s": exactly(side.rate_per_s), "latency_ms": side.latency_ms, "batch": side.batch, "tokens": stated_workload(side.tokens),
    }  # fmt: skip


def _measured(case: CaseSummary) -> dict[str, Any]:
    return {
        "name": named(case.key), "provenance": case.energy.provenance if case.energy else "",
        "rate_per_s": _band(case.throughput_per_s, 0.0), "latency_ms": case.p50_ms.median if case.p50_ms else None,
        "batch": case.key.batch, "tokens": workload_of(case),
    }  # fmt: skip


def _idle(case: CaseSummary) -> tuple[Band | None, str | None]:
    """Return the idle power over the runs whose energy the case has, or why there is none."""
    powers = [(run, watts) for run in _kept(case) if run.energy and (watts := _idle_of(run.energy)) is not None]
    spread = of_points([point_of(run, watts) for run, watts in powers])
    if spread is None:
        return None, "idle power was not measured: its runs have no idle period before or after"
    # The record gives no uncertainty of idle power; the same meter read it, so the relative uncertainty of the gross energy is used.
    return _band(spread, _relative_u(case) * spread.median), None


def _relative_u(case: CaseSummary) -> float:
    gross, u_mj = case.gross_mj, case.gross_u_mj
    return u_mj / gross.median if gross and u_mj is not None and gross.median > 0 else 0.0


def _other_half(case: CaseSummary) -> tuple[str, tuple[str, ...], Band, Band] | None:
    """Return the other half of the server where every run has one: its scope, what both exclude, its idle and its mean power.

    Processor package and GPU board do not overlap and add up.
    """
    if case.energy is None or case.energy.scope not in HALVES:
        return None
    other_classes = [EnergyClass(scope, case.energy.provenance) for scope in HALVES - {case.energy.scope}]
    readings = [(run, other) for run in _kept(case) for other in run.other_energies if _class_of(run, other) in other_classes]
    idle = [point_of(run, watts) for run, other in readings if (watts := _idle_of(other)) is not None]
    mean = [point_of(run, other.mean_power_w) for run, other in readings]
    if not len(readings) == len(idle) == len(_kept(case)):
        return None
    idle_w, max_w = of_points(idle), of_points(mean)
    if idle_w is None or max_w is None:
        return None
    other = readings[-1][1]
    relative = other.gross_u_mj / other.gross_mj if other.gross_u_mj is not None and other.gross_mj > 0 else 0.0
    both = dict.fromkeys((*case.energy.excludes, *other.excludes))
    excludes = tuple(excluded for excluded in both if not any(half in excluded for half in ("processor", "accelerator")))
    return other.scope, excludes, _band(idle_w, relative * idle_w.median), _band(max_w, relative * max_w.median)


def _cautions(case: CaseSummary) -> tuple[str, ...]:
    texts = ["suspect: at least one run violates a measurement rule"] if case.suspect else []
    texts += ["measured once: its bands do not include run-to-run variation"] if len(case.runs) == 1 else []
    texts += [f"its level changed: only the runs {case.segment.words}, count"] if case.segment else []
    within = case.gross_mj.interval.within if case.gross_mj and case.gross_mj.interval else ""
    suspicion = case.gross_mj.interval.suspicion if case.gross_mj and case.gross_mj.interval else ""
    texts += [f"{suspicion}: its energy is of both levels"] if suspicion else []
    texts += [f"its bands are within {within}: how others differ is not in them"] if within else []
    texts += tokens.cautions() if (tokens := workload_of(case)) else []
    unknown = case.energy is not None and case.gross_u_mj is None
    return tuple(texts + (["the uncertainty of its meter is unknown: its bands are too narrow"] if unknown else []))


def _kept(case: CaseSummary) -> Sequence[RunRecord]:
    """Return the runs whose energy is of the case's meter, scope and provenance."""
    kind = (case.energy.sensor, case.energy.ranks_as) if case.energy else None
    having = [(run, run.energy) for run in case.runs if run.energy is not None and not_measured(run, "energy") is None]
    return [run for run, energy in having if (energy.sensor, _class_of(run, energy)) == kind]


def _class_of(run: RunRecord, energy: Energy) -> EnergyClass:
    return EnergyClass(energy.scope, energy_provenance(run, energy) or "")


def _idle_of(energy: Energy) -> float | None:
    idle_w = [watts for watts in (energy.idle_before_w, energy.idle_after_w) if watts is not None]
    return median(idle_w) if idle_w else None


def _band(spread: Spread, u: float | None) -> Band:
    """Return the band of a figure: its interval, or the range where runs are too few for one, and what the meter may be wrong by."""
    low, high = (spread.interval.low, spread.interval.high) if spread.interval else (spread.low, spread.high)
    return Band(max(0.0, min(low, spread.median) - (u or 0.0)), spread.median, max(high, spread.median) + (u or 0.0))
