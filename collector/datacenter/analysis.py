"""Determine which side wins over utilisation, PUE and the estimates of the network.

The result is gross and net, with every break-even and the carbon.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from edgemeter.collector.datacenter.constants import Constants
from edgemeter.collector.datacenter.sides import Band, ComparedSide, exactly


@dataclass(frozen=True, slots=True)
class AnalysisCell:
    """One cell: a utilisation (None: net, independent of it) and one estimate of the network.

    `winner` (edge, datacenter or either) holds over the whole bands; by the best estimates the edge
    wins from a PUE of `pue_from` on. `other` is the energy of the datacenter with the network,
    `carbon_g` that of a million inferences.
    """

    utilisation_ratio: float | None
    network: str
    network_mj: float
    datacenter: Band
    other: Band
    winner: str
    pue_from: float | None
    carbon_g: Band


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The point where the sides are equal by one estimate of the network.

    It is infinite if one side always wins, and None if the idle power is not known.
    """

    network: str
    utilisation_ratio: Band
    rate_per_s: Band | None
    sent_bytes: Band


@dataclass(frozen=True, slots=True)
class ServerAnalysis:
    """All results against one server."""

    server: ComparedSide
    gross: tuple[AnalysisCell, ...]
    net: tuple[AnalysisCell, ...]
    break_even: tuple[BreakEven, ...]


def analyse(
    edge: ComparedSide,
    edge_mj: Band,
    server: ComparedSide,
    constants: Constants,
    sent_bytes: float,
    g_per_kwh: float,
) -> ServerAnalysis:
    """Return which side wins in each cell.

    An inference at the edge uses `edge_mj` gross, and would otherwise send this many bytes.
    """
    pue = constants.pue
    power = (
        Band(pue.low, math.sqrt(pue.low * pue.high), pue.high),
        server.idle_w or exactly(0.0),
        server.max_w,
        server.rate_per_s,
    )
    shares = sorted(percent / 100 for percent in constants.utilisation.percent)
    by_share = {share: through(server_mj, *power, exactly(share)) for share in shares}
    spanned = Band(by_share[shares[-1]].low, by_share[shares[-1]].value, by_share[shares[0]].high)
    sent_mj = {
        name: network.mj_per_byte * sent_bytes for name, network in constants.network.items()
    }

    def cell(share: float | None, own_mj: Band, there_mj: Band, name: str) -> AnalysisCell:
        other = there_mj.plus(exactly(sent_mj[name]))
        winner = (
            "edge"
            if own_mj.high < other.low
            else "datacenter"
            if other.high < own_mj.low
            else "either"
        )
        it_mj = (
            server_mj(1.0, power[1].value, power[2].value, power[3].value, share)
            if share
            else math.inf
        )
        pue_from = (own_mj.value - sent_mj[name]) / it_mj
        return AnalysisCell(
            share,
            name,
            sent_mj[name],
            there_mj,
            other,
            winner,
            pue_from if pue_from >= 1 else None,
            million_g(other, g_per_kwh),
        )

    evens = [
        BreakEven(
            network=name,
            utilisation_ratio=through(equal_utilisation, edge_mj, exactly(sent), *power),
            rate_per_s=through(equal_rate, edge.idle_w, edge.net_mj, spanned.plus(exactly(sent)))
            if edge.idle_w and edge.net_mj
            else None,
            sent_bytes=through(
                equal_bytes, edge_mj, spanned, exactly(constants.network[name].mj_per_byte)
            ),
        )
        for name, sent in sent_mj.items()
    ]
    net = [
        cell(None, edge.net_mj, through(server_net_mj, *power), name)
        for name in sent_mj
        if edge.net_mj
    ]
    gross = [
        cell(share, edge_mj, there_mj, name)
        for share, there_mj in by_share.items()
        for name in sent_mj
    ]
    return ServerAnalysis(server, tuple(gross), tuple(net), tuple(evens))


def through(formula: Callable[..., float], *inputs: Band) -> Band:
    """Return the band of `formula` over `inputs`.

    The formula must be monotonic in each of them, so that its extremes are at corners.
    """
    corners = [
        formula(*corner)
        for corner in itertools.product(*((band.low, band.high) for band in inputs))
    ]
    return Band(min(corners), formula(*(band.value for band in inputs)), max(corners))


def million_g(each_mj: Band, g_per_kwh: float) -> Band:
    """Return the carbon of a million inferences.

    A million mJ are 1,000 J, and a kWh is 3.6 x 10^6 J.
    """
    return each_mj.scaled(g_per_kwh / 3.6e3)


def server_mj(
    pue: float, idle_w: float, max_w: float, full_rate_per_s: float, utilisation_ratio: float
) -> float:
    """Return the gross energy of an inference of a server at `utilisation_ratio`.

    The ratio is the share that it serves of what it could.
    """
    power_w = idle_w + (max_w - idle_w) * utilisation_ratio
    return pue * power_w / (utilisation_ratio * full_rate_per_s) * 1000


def server_net_mj(pue: float, idle_w: float, max_w: float, full_rate_per_s: float) -> float:
    """Return the energy that one more inference adds on a server: the same at every utilisation."""
    return pue * (max_w - idle_w) / full_rate_per_s * 1000


def equal_utilisation(
    edge_mj: float,
    network_mj: float,
    pue: float,
    idle_w: float,
    max_w: float,
    full_rate_per_s: float,
) -> float:
    """Return the utilisation (0..) above which the server wins.

    It is PUE P_idle / (R_max (E_edge - E_network) - PUE (P_max - P_idle)).
    """
    left_w = full_rate_per_s * (edge_mj - network_mj) / 1000 - pue * (max_w - idle_w)
    return pue * idle_w / left_w if left_w > 0 else math.inf


def equal_rate(idle_w: float, net_mj: float, other_mj: float) -> float:
    """Return the request rate above which the edge wins against `other_mj` (server and network)."""
    return idle_w / (other_mj - net_mj) * 1000 if other_mj > net_mj else math.inf


def equal_bytes(edge_mj: float, datacenter_mj: float, mj_per_byte: float) -> float:
    """Return the bytes of a request above which the edge wins; 0: it wins with any."""
    return max(0.0, edge_mj - datacenter_mj) / mj_per_byte
