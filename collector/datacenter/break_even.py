"""Where both sides cost the same: the utilisation, the request rate and the bytes at which one overtakes the other, as bands.

A break-even that does not exist is infinite or zero, as the formula has it: the words say which side wins throughout.
"""

import math

from edgemeter.collector.datacenter.band import Band, through


def utilisation(edge_mj: Band, network_mj: Band, pue: Band, idle_w: Band, max_w: Band, full_rate_per_s: Band) -> Band:
    """Return the utilisation (0..) of the server above which it wins: infinite, the edge wins at any; 0, the datacenter does.

    u* = PUE P_idle / (R_max (E_edge - E_network) - PUE (P_max - P_idle)).
    """

    def formula(edge: float, network: float, share: float, idle: float, most: float, rate: float) -> float:
        # W: what may be spent on an inference of the edge's cost, less what the server's work alone costs.
        left_w = rate * (edge - network) / 1000 - share * (most - idle)
        return share * idle / left_w if left_w > 0 else math.inf

    return through(formula, edge_mj, network_mj, pue, idle_w, max_w, full_rate_per_s)


def rate_per_s(idle_w: Band, net_mj: Band, other_mj: Band) -> Band:
    """Return the request rate above which the edge wins against `other_mj` (server and network); infinite: the datacenter always wins."""

    def formula(idle: float, net: float, other: float) -> float:
        return idle / (other - net) * 1000 if other > net else math.inf

    return through(formula, idle_w, net_mj, other_mj)


def sent_bytes(edge_mj: Band, datacenter_mj: Band, mj_per_byte: Band) -> Band:
    """Return the bytes of a request above which the edge wins; 0: it wins with any."""

    def formula(edge: float, datacenter: float, each: float) -> float:
        return max(0.0, edge - datacenter) / each

    return through(formula, edge_mj, datacenter_mj, mj_per_byte)


def pue(edge_mj: float, network_mj: float, it_mj: float) -> float | None:
    """Return the PUE above which the edge wins, `it_mj` being what the server's computers draw for an inference; None: at any PUE."""
    found = (edge_mj - network_mj) / it_mj
    return found if found >= 1 else None
