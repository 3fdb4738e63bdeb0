"""What a million inferences cost and emit on either side, and how long an answer takes."""

from dataclasses import dataclass

from edgemeter.collector.datacenter.band import Band
from edgemeter.collector.datacenter.constants import Constants, Hardware, Link
from edgemeter.collector.datacenter.energy import J_PER_KWH

MILLION = 1e6
SECONDS_PER_YEAR = 365.25 * 86400
BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class Million:
    """A million inferences: electricity, hardware (None: its price is not known), both in `currency`, and carbon in grams."""

    electricity: Band
    hardware: float | None
    currency: str
    carbon_g: Band


def edge_million(edge_mj: Band, rate_per_s: float, constants: Constants, grid: str) -> Million:
    """Return what a million inferences cost on the edge at `rate_per_s`: the board serves no more than that."""
    tariff, price = constants.tariff.edge, constants.hardware.edge
    hardware = _hardware(price, rate_per_s) if price else None
    return Million(_money(edge_mj, tariff.per_kwh), hardware, tariff.currency, _carbon(edge_mj, constants.grid[grid].g_per_kwh))


def datacenter_million(other_mj: Band, served_per_s: float, constants: Constants, grid: str) -> Million:
    """Return what a million inferences cost in the datacenter, network included, of a server that serves `served_per_s`."""
    tariff, price = constants.tariff.datacenter, constants.hardware.datacenter
    hardware = _hardware(price, served_per_s) if price else None
    return Million(_money(other_mj, tariff.per_kwh), hardware, tariff.currency, _carbon(other_mj, constants.grid[grid].g_per_kwh))


def response_ms(link: Link, sent_bytes: float, latency_ms: float, rate_per_s: float, utilisation_ratio: float) -> Band:
    """Return the time from asking to the answer: upload, round trip, queue (M/D/1) and the server's own latency.

    Below full load only: at a utilisation of 1 a queue grows without end.
    """
    upload_ms = BITS_PER_BYTE * sent_bytes / (link.uplink_mbit_per_s * 1e6) * 1000
    service_ms = 1000 / rate_per_s
    queue_ms = utilisation_ratio * service_ms / (2 * (1 - utilisation_ratio)) if utilisation_ratio < 1 else float("inf")
    own_ms = upload_ms + queue_ms + latency_ms
    best, worst = link.rtt_ms
    return Band(own_ms + best, own_ms + (best + worst) / 2, own_ms + worst)


def _money(each_mj: Band, per_kwh: float) -> Band:
    return each_mj.scaled(MILLION / 1000 / J_PER_KWH * per_kwh)


def _carbon(each_mj: Band, g_per_kwh: float) -> Band:
    return each_mj.scaled(MILLION / 1000 / J_PER_KWH * g_per_kwh)


def _hardware(hardware: Hardware, rate_per_s: float) -> float:
    return MILLION * hardware.price / (hardware.life_years * SECONDS_PER_YEAR * rate_per_s)
