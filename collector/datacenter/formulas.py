"""Formulas over bands: energy per inference in mJ, break-evens, and what a million inferences cost and emit."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from edgemeter.collector.datacenter.constants import Constants, Hardware, Link, Network, Tariff

J_PER_KWH = 3.6e6
BYTES_PER_GB = 1e9
MBIT_PER_BYTE = 8e-6
MILLION = 1e6
SECONDS_PER_YEAR = 365.25 * 86400
BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class Band:
    """A value from `low` to `high`; `value` is the best estimate, of something that only has ends their geometric mean."""

    low: float
    value: float
    high: float

    def plus(self, other: "Band") -> "Band":
        """Return the band of the sum."""
        return Band(self.low + other.low, self.value + other.value, self.high + other.high)

    def scaled(self, factor: float) -> "Band":
        """Return the band times a factor (>= 0)."""
        return Band(self.low * factor, self.value * factor, self.high * factor)


def exactly(value: float) -> Band:
    """Return the band of what is known."""
    return Band(value, value, value)


def between(low: float, high: float) -> Band:
    """Return the band of which only the ends are known (>= 0)."""
    return Band(low, math.sqrt(low * high), high)


def through(formula: Callable[..., float], *inputs: Band) -> Band:
    """Return the band of `formula` over `inputs`: it must rise or fall in each of them alone, so that its extremes lie at corners.

    The corners are wider than independent errors would be together: a statement over the whole band holds for every mixture within it.
    """
    corners = [formula(*corner) for corner in itertools.product(*((band.low, band.high) for band in inputs))]
    return Band(min(corners), formula(*(band.value for band in inputs)), max(corners))


def spanning(bands: Sequence[Band]) -> Band:
    """Return the band from the lowest to the highest of several; its value is between its ends."""
    return between(min(band.low for band in bands), max(band.high for band in bands))


def edge_mj(idle_w: float, net_mj: float, rate_per_s: float) -> float:
    """Return the gross energy of an inference of a board that is always on and serves `rate_per_s`."""
    return idle_w / rate_per_s * 1000 + net_mj


def datacenter_mj(pue: float, idle_w: float, max_w: float, full_rate_per_s: float, utilisation_ratio: float) -> float:
    """Return the gross energy of an inference of a server that serves `utilisation_ratio` of what it could."""
    power_w = idle_w + (max_w - idle_w) * utilisation_ratio
    return pue * power_w / (utilisation_ratio * full_rate_per_s) * 1000


def datacenter_net_mj(pue: float, idle_w: float, max_w: float, full_rate_per_s: float) -> float:
    """Return the energy that one more inference adds on a server: the same at every utilisation."""
    return pue * (max_w - idle_w) / full_rate_per_s * 1000


def network_mj(network: Network, sent_bytes: float) -> float:
    """Return the energy of sending this many bytes by one estimate."""
    return mj_per_byte(network) * sent_bytes


def mj_per_byte(network: Network) -> float:
    """Return the energy of a byte by one estimate."""
    if network.kwh_per_gb is not None:
        return network.kwh_per_gb * J_PER_KWH / BYTES_PER_GB * 1000
    return MBIT_PER_BYTE * (network.w_per_mbit_per_s or 0.0) * 1000


def break_even_utilisation(edge_mj: Band, network_mj: Band, pue: Band, idle_w: Band, max_w: Band, full_rate_per_s: Band) -> Band:
    """Return the utilisation (0..) of the server above which it wins: infinite, the edge wins at any; 0, the datacenter does.

    u* = PUE P_idle / (R_max (E_edge - E_network) - PUE (P_max - P_idle)).
    """

    def formula(edge: float, network: float, share: float, idle: float, full: float, rate: float) -> float:
        # W: what may be spent on an inference of the edge's cost, less what the server's work alone costs.
        left_w = rate * (edge - network) / 1000 - share * (full - idle)
        return share * idle / left_w if left_w > 0 else math.inf

    return through(formula, edge_mj, network_mj, pue, idle_w, max_w, full_rate_per_s)


def break_even_rate_per_s(idle_w: Band, net_mj: Band, other_mj: Band) -> Band:
    """Return the request rate above which the edge wins against `other_mj` (server and network); infinite: the datacenter always wins."""
    return through(lambda idle, net, other: idle / (other - net) * 1000 if other > net else math.inf, idle_w, net_mj, other_mj)


def break_even_sent_bytes(edge_mj: Band, datacenter_mj: Band, mj_per_byte: Band) -> Band:
    """Return the bytes of a request above which the edge wins; 0: it wins with any."""
    return through(lambda edge, datacenter, each: max(0.0, edge - datacenter) / each, edge_mj, datacenter_mj, mj_per_byte)


def break_even_pue(edge_mj: float, network_mj: float, it_mj: float) -> float | None:
    """Return the PUE above which the edge wins, `it_mj` being what the server's computers draw for an inference; None: at any PUE."""
    pue = (edge_mj - network_mj) / it_mj
    return pue if pue >= 1 else None


@dataclass(frozen=True, slots=True)
class Million:
    """A million inferences: electricity, hardware (None: its price is not known), both in `currency`, and carbon in grams."""

    electricity: Band
    hardware: float | None
    currency: str
    carbon_g: Band


def million(side: Literal["edge", "datacenter"], each_mj: Band, served_per_s: float, constants: Constants, grid: str) -> Million:
    """Return what a million inferences of `each_mj` (with the network) cost on a side whose machine serves `served_per_s`."""
    tariff: Tariff = getattr(constants.tariff, side)
    machine: Hardware | None = getattr(constants.hardware, side)
    hardware = MILLION * machine.price / (machine.life_years * SECONDS_PER_YEAR * served_per_s) if machine else None
    kwh = MILLION / 1000 / J_PER_KWH
    return Million(
        electricity=each_mj.scaled(kwh * tariff.per_kwh),
        hardware=hardware,
        currency=tariff.currency,
        carbon_g=each_mj.scaled(kwh * constants.grid[grid].g_per_kwh),
    )


def fill_ms(batch: int, arrivals_per_s: float) -> float:
    """Return how long a request waits on average until its batch is full; the first of a batch waits twice that, the last not at all."""
    return (batch - 1) / (2 * arrivals_per_s) * 1000


def response_ms(link: Link, sent_bytes: float, latency_ms: float, full_rate_per_s: float, utilisation_ratio: float, batch: int = 1) -> Band:
    """Return the mean response time: upload, round trip, filling of the batch, queue, and the time of the server for a batch.

    Requests come at random (Poisson). Below full load only: at a utilisation of 1 a queue grows without end.

    Source: Kingman's bound on the queue. It is exact for single requests (M/D/1), and for batches, which come more evenly, up to 5% of the
    response too high; the service of a batch and the spread of its arrivals cancel, so that the batch is not in it.
    """
    upload_ms = BITS_PER_BYTE * sent_bytes / (link.uplink_mbit_per_s * 1e6) * 1000
    service_ms = 1000 / full_rate_per_s
    queue_ms = utilisation_ratio * service_ms / (2 * (1 - utilisation_ratio)) if utilisation_ratio < 1 else float("inf")
    own_ms = upload_ms + fill_ms(batch, utilisation_ratio * full_rate_per_s) + queue_ms + latency_ms
    best, worst = link.rtt_ms
    return Band(own_ms + best, own_ms + (best + worst) / 2, own_ms + worst)
