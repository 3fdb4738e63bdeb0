"""The analysis as one JSON document: every band with both ends, every constant with its source."""

import math
from dataclasses import fields, is_dataclass

import msgspec

from edgemeter.collector.datacenter import costs, wording
from edgemeter.collector.datacenter.analysis import Analysis, Cell, Part, datacenter_band
from edgemeter.collector.datacenter.band import Band, between
from edgemeter.collector.datacenter.constants import Constants
from edgemeter.collector.datacenter.costs import Million

Document = dict[str, object]


def document(analysis: Analysis, constants: Constants, sent_bytes: float, grid: str, notes: tuple[str, ...]) -> Document:
    """Return everything that is known; an infinite end is null."""
    edge = analysis.edge
    rate = analysis.rate_per_s or edge.rate_per_s.value
    return {
        "edge": plain(edge),
        "edge_rate_per_s": rate,
        "edge_gross_mj": plain(analysis.edge_mj),
        "edge_net_mj": plain(edge.net_mj),
        "edge_per_million": plain(costs.edge_million(analysis.edge_mj, rate, constants, grid)),
        "request_bytes": sent_bytes,
        "against": [_part(analysis, part, constants, sent_bytes, grid) for part in analysis.parts],
        "notes": [*notes, *wording.cautions(analysis)],
        "constants": msgspec.to_builtins(constants),
    }


def millions(part: Part, constants: Constants, grid: str) -> list[tuple[Cell, Million]]:
    """Return a million inferences in the datacenter for each utilisation and network, gross."""
    full = part.server.rate_per_s.value
    return [(cell, costs.datacenter_million(cell.other, (cell.utilisation_ratio or 1.0) * full, constants, grid)) for cell in part.gross]


def plain(found: object) -> object:
    """Return dataclasses as dictionaries, and what is not finite as null."""
    if is_dataclass(found) and not isinstance(found, type):
        return {one.name: plain(getattr(found, one.name)) for one in fields(found)}
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    return [plain(one) for one in found] if isinstance(found, list | tuple) else found


def response_times(part: Part, constants: Constants, sent_bytes: float) -> list[tuple[float, Band]]:
    """Return the response time at each utilisation; none without a link or a latency."""
    link, latency_ms = constants.link, part.server.latency_ms
    if link is None or latency_ms is None:
        return []
    rate = part.server.rate_per_s.value
    shares = sorted(percent / 100 for percent in constants.utilisation.percent)
    return [(share, costs.response_ms(link, sent_bytes, latency_ms, rate, share)) for share in shares]


def _part(analysis: Analysis, part: Part, constants: Constants, sent_bytes: float, grid: str) -> Document:
    pue = between(constants.pue.low, constants.pue.high)
    shares = sorted(percent / 100 for percent in constants.utilisation.percent)
    return {
        "server": plain(part.server),
        "headline": wording.headline(part),
        "gross_by_utilisation": [
            {"utilisation_ratio": share, "energy_mj": plain(datacenter_band(part.server, pue, share))} for share in shares
        ],
        "gross": [plain(cell) for cell in part.gross],
        "net": [plain(cell) for cell in part.net],
        "break_even": [plain(one) for one in part.break_evens],
        "proof": wording.proofs(part, analysis.edge),
        "per_million": [
            {"utilisation_ratio": cell.utilisation_ratio, "network": cell.network, **_fields(found)}
            for cell, found in millions(part, constants, grid)
        ],
        "response": [
            {"utilisation_ratio": share, "response_ms": plain(answer)} for share, answer in response_times(part, constants, sent_bytes)
        ],
    }


def _fields(found: Million) -> Document:
    return {one.name: plain(getattr(found, one.name)) for one in fields(found)}
