"""The two sides: which cases represent the edge device and the servers, and each of their figures as a band."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import WIDEST_FIRST, Energy, Scope
from edgemeter.collector.compare.comparison import not_ranked
from edgemeter.collector.compare.pairing import LIKENESSES, is_one_class
from edgemeter.collector.compare.spread import Spread, of_points, point_of
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.datacenter.constants import Stated, StatedDatacenter, StatedEdge
from edgemeter.collector.datacenter.formulas import Band, exactly, through
from edgemeter.collector.runs.cases import named, not_measured
from edgemeter.collector.runs.energy_class import MEASURED, EnergyClass

# The only scope that leaves nothing out: any other figure is too low by what it does not see.
WHOLE = "wall-ac"

# A server without a meter at its plug is seen by its processor and its GPU, each without the other.
HALVES: frozenset[Scope] = frozenset({"cpu-package", "gpu-board"})


@dataclass(frozen=True, slots=True)
class EdgeSide:
    """An edge device: gross energy when it does nothing else, idle power and net energy where they are known, and the rate it can do."""

    name: str
    provenance: str
    scope: str
    excludes: tuple[str, ...]
    saturated_mj: Band
    idle_w: Band | None
    net_mj: Band | None
    rate_per_s: Band
    latency_ms: float | None
    why_no_idle: str | None = None
    cautions: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the energy leaves nothing out."""
        return self.scope == WHOLE


@dataclass(frozen=True, slots=True)
class ServerSide:
    """A server under one load: idle and full power, and the rate at full load; `load` is `single stream` or `batch-saturated`."""

    name: str
    load: str
    provenance: str
    scope: str
    excludes: tuple[str, ...]
    idle_w: Band
    max_w: Band
    rate_per_s: Band
    latency_ms: float | None
    cautions: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the energy leaves nothing out."""
        return self.scope == WHOLE


def edge_of(case: CaseSummary) -> EdgeSide | None:
    """Return a measured case as an edge device, None where it has no energy."""
    found = case.energy
    if found is None:
        return None
    idle, why = _idle(case)
    net = _band(found.net_mj, found.net_u_mj) if found.net_mj else None
    if idle is not None and net is None:
        # Net energy is lost in the noise of idle power: it is what is left of the gross energy, and may be nothing.
        left = max(0.0, found.gross_mj.median - idle.value / case.throughput_per_s.median * 1000)
        net = Band(0.0, left, left + (found.gross_u_mj or found.gross_mj.median))
    return EdgeSide(
        name=named(case.key),
        provenance=found.provenance,
        scope=found.scope,
        excludes=found.excludes,
        saturated_mj=_band(found.gross_mj, found.gross_u_mj),
        idle_w=idle,
        net_mj=net if idle is not None else None,
        rate_per_s=_band(case.throughput_per_s, 0.0),
        latency_ms=case.p50_ms.median if case.p50_ms else None,
        why_no_idle=why,
        cautions=_cautions(case),
    )


def server_of(case: CaseSummary) -> ServerSide | str:
    """Return a measured case as a server, or why it cannot be one."""
    found = case.energy
    if found is None:
        return f"no energy: {case.energy_reason}"
    idle, why = _idle(case)
    if idle is None:
        return why or "no idle power"
    scope: str = found.scope
    excludes, most = found.excludes, _band(found.mean_power_w, _relative_u(case) * found.mean_power_w.median)
    beside = _beside(case)
    if beside is not None:
        scope, excludes = f"{found.scope} + {beside.scope}", beside.excludes
        idle, most = _sum(idle, beside.idle_w), _sum(most, beside.max_w)
    return ServerSide(
        name=named(case.key),
        load="batch-saturated" if case.key.scenario == "offline" else "single stream",
        provenance=found.provenance,
        scope=scope,
        excludes=excludes,
        idle_w=idle,
        max_w=most,
        rate_per_s=_band(case.throughput_per_s, 0.0),
        latency_ms=case.p50_ms.median if case.p50_ms else None,
        cautions=_cautions(case),
    )


def stated_edge(stated: StatedEdge) -> EdgeSide:
    """Return an edge device by stated numbers."""
    idle, net, rate = exactly(stated.idle_w), exactly(stated.net_mj), exactly(stated.rate_per_s)
    saturated = through(lambda watts, mj, per_s: watts / per_s * 1000 + mj, idle, net, rate)
    return EdgeSide(f"stated: {stated.source}", "stated", stated.scope, (), saturated, idle, net, rate, stated.latency_ms)


def stated_server(stated: StatedDatacenter) -> ServerSide:
    """Return a server by stated numbers."""
    bands = exactly(stated.idle_w), exactly(stated.max_w), exactly(stated.rate_per_s)
    return ServerSide(f"stated: {stated.source}", "as stated", "stated", stated.scope, (), *bands, stated.latency_ms)


def _idle(case: CaseSummary) -> tuple[Band | None, str | None]:
    """Return the idle power over the runs whose energy the case has, or why there is none."""
    powers = [(run, watts) for run in _kept(case) if (watts := _idle_w(run)) is not None]
    found = of_points([point_of(run, watts) for run, watts in powers])
    if found is None:
        return None, "idle power was not measured: its runs have no idle period before or after"
    # The record gives no uncertainty of idle power; the same meter read it, so the relative uncertainty of the gross energy is used.
    return _band(found, _relative_u(case) * found.median), None


def _relative_u(case: CaseSummary) -> float:
    energy = case.energy
    return energy.gross_u_mj / energy.gross_mj.median if energy and energy.gross_u_mj is not None and energy.gross_mj.median > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Beside:
    """What a second sensor measured of a part of the server that the first one does not cover."""

    scope: str
    excludes: tuple[str, ...]
    idle_w: Band
    max_w: Band


def _beside(case: CaseSummary) -> _Beside | None:
    """Return the other half where every run has one: a processor package and a GPU board. They share no watt, so they add up."""
    if case.energy is None or case.energy.scope not in HALVES:
        return None
    wanted = [EnergyClass(scope, case.energy.provenance) for scope in HALVES - {case.energy.scope}]
    found = [(run, other) for run in _kept(case) for other in run.other_energies if _class_of(run, other) in wanted]
    idle = [point_of(run, watts) for run, other in found if (watts := _idle_of(other)) is not None]
    most = [point_of(run, other.mean_power_w) for run, other in found]
    if not len(found) == len(idle) == len(_kept(case)):
        return None
    idle_w, max_w = of_points(idle), of_points(most)
    if idle_w is None or max_w is None:
        return None
    other = found[-1][1]
    relative = other.gross_u_mj / other.gross_mj if other.gross_u_mj is not None and other.gross_mj > 0 else 0.0
    both = dict.fromkeys((*case.energy.excludes, *other.excludes))
    excludes = tuple(one for one in both if not any(half in one for half in ("processor", "accelerator")))
    return _Beside(other.scope, excludes, _band(idle_w, relative * idle_w.median), _band(max_w, relative * max_w.median))


def _sum(one: Band, other: Band) -> Band:
    return Band(one.low + other.low, one.value + other.value, one.high + other.high)


def _cautions(case: CaseSummary) -> tuple[str, ...]:
    found = ["suspect: at least one run violates a measurement rule"] if case.suspect else []
    found += ["measured once: its bands do not include run-to-run variation"] if len(case.runs) == 1 else []
    found += [f"its level changed: only the runs {case.segment.words}, count"] if case.segment else []
    within = case.gross_mj.interval.within if case.gross_mj and case.gross_mj.interval else ""
    found += [f"its bands are within {within}: how others differ is not in them"] if within else []
    unknown = case.energy is not None and case.energy.gross_u_mj is None
    return tuple(found + (["the uncertainty of its meter is unknown: its bands are too narrow"] if unknown else []))


def _kept(case: CaseSummary) -> Sequence[RunRecord]:
    """Return the runs whose energy is of the case's meter, scope and provenance."""
    kind = (case.energy.sensor, case.energy.ranks_as) if case.energy else None
    having = [(run, run.energy) for run in case.runs if run.energy is not None and not_measured(run, "energy") is None]
    return [run for run, energy in having if (energy.sensor, _class_of(run, energy)) == kind]


def _class_of(run: RunRecord, energy: Energy) -> EnergyClass:
    return EnergyClass(energy.scope, energy_provenance(run, energy) or "")


def _idle_w(run: RunRecord) -> float | None:
    return _idle_of(run.energy) if run.energy else None


def _idle_of(energy: Energy) -> float | None:
    known = [watts for watts in (energy.idle_before_w, energy.idle_after_w) if watts is not None]
    return median(known) if known else None


def _band(found: Spread, u: float | None) -> Band:
    """Return the band of a figure: its interval, or the range where runs are too few for one, and what the meter may be wrong by."""
    low, high = (found.interval.low, found.interval.high) if found.interval else (found.low, found.high)
    return Band(max(0.0, min(low, found.median) - (u or 0.0)), found.median, max(high, found.median) + (u or 0.0))


# A server saturated by batches and a device with one query at a time are what is compared here, so these need not be alike.
FREE = ("scenario", "samples a query", "rate")


@dataclass(frozen=True, slots=True)
class SideRequest:
    """The request: the device and the model (None: the only one), the reference by device or role."""

    edge: str | None
    model: str | None
    precision: str | None
    server: str


@dataclass(frozen=True, slots=True)
class ChosenSides:
    """The edge, the servers, and what was noted while they were chosen."""

    edge: EdgeSide
    servers: tuple[ServerSide, ...]
    notes: tuple[str, ...]


def choose_sides(summaries: Sequence[CaseSummary], request: SideRequest, stated: Stated) -> ChosenSides:
    """Return the sides: what is stated goes before what was measured.

    Raises:
        ConfigError: there are several models and none is requested, or no case matches.
        UnavailableError: no case of a side has what is needed; the message names what to measure.
    """
    notes: list[str] = []
    case = None if stated.edge else _edge_case(summaries, request, notes)
    edge = stated_edge(stated.edge) if stated.edge else edge_of(case) if case else None
    if edge is None:
        raise UnavailableError("no edge device has an energy figure: measure one with a power sensor (`edgemeter sensors`)")
    if stated.datacenter:
        return ChosenSides(edge, (stated_server(stated.datacenter),), tuple(notes))
    servers = _servers(summaries, case, request, notes)
    return ChosenSides(edge, servers, tuple(notes))


def _edge_case(summaries: Sequence[CaseSummary], request: SideRequest, notes: list[str]) -> CaseSummary:
    devices = [case for case in summaries if not _is_server(case, request) and case.key.role != "reference"]
    matching = [case for case in devices if _matches(case, request) and (request.edge is None or case.key.device == request.edge)]
    if not matching:
        there = ", ".join(sorted({f"{case.key.model} on {case.key.device}" for case in devices})) or "none"
        raise ConfigError(f"no device case matches --edge, --model and --precision; available: {there}")
    sound = [case for case in matching if not_ranked(case, summaries) is None and case.energy is not None]
    if not sound:
        why = "; ".join(dict.fromkeys(case.energy_reason or not_ranked(case, summaries) or "" for case in matching))
        raise UnavailableError(f"no edge case has a usable energy figure: {why}")
    several = {name: sorted({getattr(case.key, name) for case in sound}) for name in ("model", "device")}
    for name, option in (("model", "--model"), ("device", "--edge")):
        if len(several[name]) > 1:
            raise ConfigError(f"there are several, choose one with {option}: {', '.join(several[name])}")
    # Energies of two classes have no lowest: what was not measured stands in only where nothing was, then the widest scope goes first.
    classes = [case.energy.ranks_as for case in sound if case.energy]
    first = min(classes, key=lambda one: (not one.is_measured, WIDEST_FIRST.index(one.scope)))
    ranked = [case for case in sound if case.energy and case.energy.ranks_as == first]
    best = min(ranked, key=lambda case: (case.suspect > 0, case.gross_mj.median if case.gross_mj else float("inf")))
    if len(sound) > 1:
        among = f"of {len(sound)} edge cases" if len(ranked) == len(sound) else f"of {len(ranked)} edge cases with an energy at {first}"
        notes.append(f"{among}, the one with the lowest energy: {named(best.key)}")
    return best


def _servers(summaries: Sequence[CaseSummary], case: CaseSummary | None, request: SideRequest, notes: list[str]) -> tuple[ServerSide, ...]:
    servers = [one for one in summaries if _is_server(one, request) and _matches(one, request, with_precision=False)]
    alike = [one for one in servers if case is None or _is_alike(case, one)]
    notes += [f"left out: {named(one.key)} has other data or another input size" for one in servers if one not in alike]
    source = _source(case, alike)
    notes += [
        f"left out: {named(one.key)}: its energy is {one.energy.provenance}, not {source}"
        for one in alike
        if one.energy and one.energy.provenance != source
    ]
    alike = [one for one in alike if one.energy is None or one.energy.provenance == source]
    like = [one for one in alike if case is None or is_one_class(case, one)]
    best = _best(like, summaries, notes)
    other = _best([one for one in alike if one not in like], summaries, notes)
    for load in sorted(set(other) - set(best)):
        best[load] = other[load]
        pair = f"{named(case.key)} against {other[load].name}" if case else other[load].name
        notes.append(f"{pair}, {load}: not like with like, because the server was not measured in that precision class")
    if not best:
        left_out = f" ({'; '.join(notes)})" if notes else ""
        raise UnavailableError(
            f"no server {request.server!r} has an energy figure{left_out}: run the same agent there with --role reference, also with "
            "--scenario offline, or state one in --constants as [stated.datacenter]; imported and published figures do not count"
        )
    return tuple(best[load] for load in sorted(best))


def _source(case: CaseSummary | None, servers: Sequence[CaseSummary]) -> str:
    """Return the provenance that the servers' energies must have: the edge's; beside a stated edge measured, if there is one."""
    if case is not None and case.energy is not None:
        return case.energy.provenance
    found = [one.energy.provenance for one in servers if one.energy]
    return MEASURED if MEASURED in found or not found else found[0]


def _best(cases: Sequence[CaseSummary], summaries: Sequence[CaseSummary], notes: list[str]) -> dict[str, ServerSide]:
    """Return for each load the server that takes the least; what is none is noted."""
    best: dict[str, ServerSide] = {}
    for one in cases:
        why = not_ranked(one, summaries)
        found = why or server_of(one)
        if isinstance(found, str):
            notes.append(f"left out: {named(one.key)}, {one.key.scenario}: {found}")
        elif (
            found.load not in best
            or found.max_w.value / found.rate_per_s.value < best[found.load].max_w.value / best[found.load].rate_per_s.value
        ):
            best[found.load] = found
    return best


def _is_server(case: CaseSummary, request: SideRequest) -> bool:
    return request.server in (case.key.role, case.key.device)


def _matches(case: CaseSummary, request: SideRequest, *, with_precision: bool = True) -> bool:
    is_precision = not with_precision or request.precision in (None, case.key.precision)
    return request.model in (None, case.key.model) and is_precision


def _is_alike(case: CaseSummary, server: CaseSummary) -> bool:
    return all(one.holds(case, server) for one in LIKENESSES if one.name not in FREE)
