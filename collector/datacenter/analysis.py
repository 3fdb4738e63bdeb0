"""Which side wins in which part: over utilisation, PUE and the estimates of the network, gross and net, with every break-even."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.collector.datacenter import formulas
from edgemeter.collector.datacenter.constants import Constants
from edgemeter.collector.datacenter.formulas import Band, between, exactly, through
from edgemeter.collector.datacenter.sides import EdgeSide, ServerSide

Winner = Literal["edge", "datacenter", "either"]


@dataclass(frozen=True, slots=True)
class AnalysisSetting:
    """The setting: the edge's rate (None: as fast as it can), the bytes of a request, and which networks count."""

    edge_rate_per_s: float | None
    sent_bytes: float
    networks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnalysisCell:
    """One part: a utilisation (None: net, where it plays no role) and one estimate of the network.

    `winner` holds over the whole band of PUE and of what was measured. `margin_mj` is by how much at least, and `is_proven` whether the
    winner's own figure leaves nothing out: if not, it wins as long as what it leaves out takes less than the margin. `pue_from` is
    the PUE from which on the edge wins, for the best estimates.
    """

    utilisation_ratio: float | None
    network: str
    network_mj: float
    datacenter: Band
    other: Band
    winner: Winner
    margin_mj: float
    is_proven: bool
    pue_from: float | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where the sides are equal by one estimate of the network; `rate_per_s` is None where the edge's idle power is not known.

    `sent_bytes` and `rate_per_s` are at the lowest and at the highest utilisation compared, together a band.
    """

    network: str
    utilisation_ratio: Band
    rate_per_s: Band | None
    sent_bytes: Band


@dataclass(frozen=True, slots=True)
class ServerAnalysis:
    """Everything against one server."""

    server: ServerSide
    gross: tuple[AnalysisCell, ...]
    net: tuple[AnalysisCell, ...]
    break_evens: tuple[BreakEven, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The edge's energy at the requested rate, and the analysis of each server."""

    edge: EdgeSide
    rate_per_s: float | None
    edge_mj: Band
    parts: tuple[ServerAnalysis, ...]


def analyse(edge: EdgeSide, servers: Sequence[ServerSide], constants: Constants, setting: AnalysisSetting) -> Analysis:
    """Return which side wins in which part; `setting.edge_rate_per_s` needs the edge's idle power."""
    rate_per_s, gross_mj = setting.edge_rate_per_s, edge.saturated_mj
    if rate_per_s is not None and edge.idle_w and edge.net_mj:
        gross_mj = through(formulas.edge_mj, edge.idle_w, edge.net_mj, exactly(rate_per_s))
    parts = tuple(_part(edge, gross_mj, server, constants, setting) for server in servers)
    return Analysis(edge, rate_per_s, gross_mj, parts)


def datacenter_band(server: ServerSide, pue: Band, utilisation_ratio: float) -> Band:
    """Return the gross energy of an inference at a utilisation over the band of PUE."""
    return through(formulas.datacenter_mj, pue, server.idle_w, server.max_w, server.rate_per_s, exactly(utilisation_ratio))


def _part(edge: EdgeSide, edge_mj: Band, server: ServerSide, constants: Constants, setting: AnalysisSetting) -> ServerAnalysis:
    pue = between(constants.pue.low, constants.pue.high)
    shares = sorted(percent / 100 for percent in constants.utilisation.percent)
    sent_mj = {name: formulas.network_mj(constants.network[name], setting.sent_bytes) for name in setting.networks}
    gross = [
        _cell(edge, edge_mj, server, share, datacenter_band(server, pue, share), name, sent)
        for share in shares
        for name, sent in sent_mj.items()
    ]
    net_mj = through(formulas.datacenter_net_mj, pue, server.idle_w, server.max_w, server.rate_per_s)
    net = [_cell(edge, edge.net_mj, server, None, net_mj, name, sent) for name, sent in sent_mj.items() if edge.net_mj is not None]
    ends = datacenter_band(server, pue, shares[-1]), datacenter_band(server, pue, shares[0])
    spanned = Band(ends[0].low, ends[0].value, ends[1].high)
    evens = []
    for name, sent in sent_mj.items():
        others_mj = spanned.plus(exactly(sent))
        even = BreakEven(
            network=name,
            utilisation_ratio=formulas.break_even_utilisation(edge_mj, exactly(sent), pue, server.idle_w, server.max_w, server.rate_per_s),
            rate_per_s=formulas.break_even_rate_per_s(edge.idle_w, edge.net_mj, others_mj) if edge.idle_w and edge.net_mj else None,
            sent_bytes=formulas.break_even_sent_bytes(edge_mj, spanned, exactly(formulas.mj_per_byte(constants.network[name]))),
        )
        evens.append(even)
    return ServerAnalysis(server, tuple(gross), tuple(net), tuple(evens))


def _cell(
    edge: EdgeSide, edge_mj: Band, server: ServerSide, share: float | None, datacenter: Band, name: str, sent_mj: float
) -> AnalysisCell:
    other = datacenter.plus(exactly(sent_mj))
    winner: Winner = "edge" if edge_mj.high < other.low else "datacenter" if other.high < edge_mj.low else "either"
    margin = {"edge": other.low - edge_mj.high, "datacenter": edge_mj.low - other.high, "either": 0.0}[winner]
    proven = {"edge": edge.is_whole, "datacenter": server.is_whole, "either": False}[winner]
    it_mj = None if share is None else formulas.datacenter_mj(1.0, server.idle_w.value, server.max_w.value, server.rate_per_s.value, share)
    pue_from = formulas.break_even_pue(edge_mj.value, sent_mj, it_mj) if it_mj else None
    return AnalysisCell(share, name, sent_mj, datacenter, other, winner, margin, proven, pue_from)
