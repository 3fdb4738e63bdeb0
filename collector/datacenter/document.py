"""The analysis in sentences and as one JSON document: who wins where, every band with both ends, every constant with its source."""

import math
from dataclasses import asdict

import msgspec

from edgemeter.agent.base import figures
from edgemeter.collector.datacenter.analysis import Analysis, AnalysisCell, BreakEven, ServerAnalysis, datacenter_band
from edgemeter.collector.datacenter.constants import Constants
from edgemeter.collector.datacenter.formulas import Band, Million, between, fill_ms, million, response_ms
from edgemeter.collector.datacenter.sides import EdgeSide, ServerSide
from edgemeter.collector.datacenter.workload import DEFINITION, TokenWorkload


def headline(part: ServerAnalysis) -> str:
    """Return which side takes less energy, gross, over the assumptions: utilisation, PUE and network; what decides where it depends."""
    tokens = part.server.tokens
    at_once = f" with {figures.count(tokens.concurrency, 'request')} at once" if tokens else ""
    against = f"Against {part.server.load} {part.server.name}{at_once}"
    winners = {cell.winner for cell in part.gross}
    if len(winners) == 1 and "either" not in winners:
        shares = [cell.utilisation_ratio or 0.0 for cell in part.gross]
        return (
            f"{against}: the {winners.pop()} takes less energy at {min(shares):.0%} to {max(shares):.0%} utilisation, whatever the network."
        )
    bands = [even.utilisation_ratio for even in part.break_evens]
    low, high = min(band.low for band in bands), max(band.high for band in bands)
    edge = (
        f"the edge takes less energy below {low:.1%} utilisation" if low > 0 else "the edge takes less energy at no utilisation for certain"
    )
    server = f"the datacenter above {high:.1%}" if high < 1 else "the datacenter at none for certain"
    return f"{against}: {edge}, {server}; between them network, PUE and what was measured decide."


def cell_text(cell: AnalysisCell) -> str:
    """Return the winner of a part; `?` where the winner's figure leaves something out."""
    if cell.winner != "either":
        return cell.winner if cell.is_proven else f"{cell.winner}?"
    return f"edge from PUE {cell.pue_from:.2f}" if cell.pue_from and cell.pue_from < 10 else "either"


def proofs(part: ServerAnalysis, edge: EdgeSide) -> list[str]:
    """Return what `?` means here: what the figures leave out, and how much that may be before a winner changes."""
    lines = []
    for side, winner in ((edge, "edge"), (part.server, "datacenter")):
        margins = [cell.margin_mj for cell in (*part.gross, *part.net) if cell.winner == winner and not cell.is_proven]
        if margins and not side.is_whole:
            out = ", ".join(side.excludes) or "everything outside it"
            lines.append(
                f"{winner}?: the {winner}'s figure is of {side.scope} and excludes {out}; it wins there as long as that takes less than "
                f"the margin, at least {figures.significant(min(margins))} mJ per {'request' if edge.tokens else 'inference'}"
            )
    return lines


def break_even_lines(part: ServerAnalysis, edge: EdgeSide) -> list[str]:
    """Return the break-evens for each estimate of the network."""
    return [
        f"{even.network}: {_utilisation(even.utilisation_ratio)}; {_rate(even, edge)}; {_bytes(even.sent_bytes)}"
        for even in part.break_evens
    ]


def cautions(analysis: Analysis) -> list[str]:
    """Return what to know before trusting it."""
    edge = analysis.edge
    texts = [f"the edge's {edge.why_no_idle}: no net energy and no request rate; gross energy is at full speed"] if edge.why_no_idle else []
    sides: list[EdgeSide | ServerSide] = [edge, *(part.server for part in analysis.parts)]
    texts += [
        f"{side.name}: {side.provenance}, not measured; the same holds for every figure derived from it"
        for side in sides
        if side.provenance != "measured"
    ]
    return [*texts, *(f"{side.name}: {caution}" for side in sides for caution in side.cautions)]


def band_text(band: Band, unit: str) -> str:
    """Return `12.3 mJ (11 to 14)`."""
    return f"{figures.significant(band.value)} {unit} ({figures.span(band.low, band.high)})"


def _utilisation(band: Band) -> str:
    if band.low > 1:
        return "the edge wins at any utilisation"
    if math.isinf(band.high) or band.high > 1:
        return f"the datacenter wins from a utilisation of {band.low:.1%} or, at the other end of the bands, never"
    return f"the datacenter wins from a utilisation of {band.value:.1%} ({band.low:.1%} to {band.high:.1%})"


def _rate(even: BreakEven, edge: EdgeSide) -> str:
    rate_per_s = even.rate_per_s
    if rate_per_s is None:
        return "request rate unknown without idle power"
    highest_per_s = edge.rate_per_s.value
    if rate_per_s.low > highest_per_s:
        return f"the datacenter wins at every rate the edge can reach ({figures.significant(highest_per_s)} per s)"
    if rate_per_s.high > highest_per_s:
        return f"the edge wins from {figures.significant(rate_per_s.low)} per s or, at the other end of the bands, at no rate it can reach"
    return f"the edge wins from {figures.span(rate_per_s.low, rate_per_s.high)} per s"


def _bytes(band: Band) -> str:
    if band.high <= 0:
        return "the edge wins with any request"
    if band.low <= 0:
        return f"the edge wins from {figures.significant(band.high)} bytes a request, or with any"
    return f"the edge wins from {figures.span(band.low, band.high)} bytes a request"


Document = dict[str, object]


def document(analysis: Analysis, constants: Constants, sent_bytes: float, grid: str, notes: tuple[str, ...]) -> Document:
    """Return everything that is known; an infinite end is null, and so is what is by the token of a model that generates nothing."""
    edge = analysis.edge
    tokens = edge.tokens
    rate = analysis.rate_per_s or edge.rate_per_s.value
    return {
        "edge": edge,
        "edge_rate_per_s": rate,
        "edge_gross_mj": analysis.edge_mj,
        "edge_net_mj": edge.net_mj,
        "per_output_token_definition": DEFINITION if tokens else None,
        "edge_request_gross_mj_per_output_token": _per_output_token(analysis.edge_mj, tokens),
        "edge_request_net_mj_per_output_token": _per_output_token(edge.net_mj, tokens),
        "edge_per_million": million("edge", analysis.edge_mj, rate, constants, grid),
        "request_bytes": sent_bytes,
        "against": [_part(analysis, part, constants, sent_bytes, grid) for part in analysis.parts],
        "notes": [*notes, *cautions(analysis)],
        "constants": msgspec.to_builtins(constants),
    }


def millions(part: ServerAnalysis, constants: Constants, grid: str) -> list[tuple[AnalysisCell, Million]]:
    """Return a million inferences in the datacenter for each utilisation and network, gross."""
    full = part.server.rate_per_s.value
    return [(cell, million("datacenter", cell.other, (cell.utilisation_ratio or 1.0) * full, constants, grid)) for cell in part.gross]


def response_times(part: ServerAnalysis, constants: Constants, sent_bytes: float) -> list[tuple[float, Band]]:
    """Return the response time at each utilisation; none without a link or a latency."""
    link, latency_ms = constants.link, part.server.latency_ms
    if link is None or latency_ms is None:
        return []
    server, rate = part.server, part.server.rate_per_s.value
    shares = sorted(percent / 100 for percent in constants.utilisation.percent)
    return [(share, response_ms(link, sent_bytes, latency_ms, rate, share, server.batch)) for share in shares]


def filling(side: EdgeSide | ServerSide, arrivals_per_s: float) -> str:
    """Return how long a request waits for the batch of a side, in words; empty where a side takes one at a time."""
    if side.batch == 1:
        return ""
    mean_ms = fill_ms(side.batch, arrivals_per_s)
    mean, longest = figures.significant(mean_ms), figures.significant(2 * mean_ms)
    return (
        f"{mean} ms on average until its batch of {side.batch} is full at {figures.significant(arrivals_per_s)} per s, the first {longest}"
    )


def _part(analysis: Analysis, part: ServerAnalysis, constants: Constants, sent_bytes: float, grid: str) -> Document:
    pue = between(constants.pue.low, constants.pue.high)
    shares = sorted(percent / 100 for percent in constants.utilisation.percent)
    tokens = part.server.tokens
    at_shares = [(share, datacenter_band(part.server, pue, share)) for share in shares]
    return {
        "server": part.server,
        "headline": headline(part),
        "gross_by_utilisation": [
            {"utilisation_ratio": share, "energy_mj": energy, "request_gross_mj_per_output_token": _per_output_token(energy, tokens)}
            for share, energy in at_shares
        ],
        "gross": [
            {**asdict(cell), "request_gross_with_network_mj_per_output_token": _per_output_token(cell.other, tokens)} for cell in part.gross
        ],
        "net": [
            {**asdict(cell), "request_net_with_network_mj_per_output_token": _per_output_token(cell.other, tokens)} for cell in part.net
        ],
        "break_even": list(part.break_evens),
        "proof": proofs(part, analysis.edge),
        "per_million": [
            {"utilisation_ratio": cell.utilisation_ratio, "network": cell.network, **asdict(cost)}
            for cell, cost in millions(part, constants, grid)
        ],
        "response": [
            {"utilisation_ratio": share, "response_ms": answer, "fill_ms": fill_ms(part.server.batch, share * part.server.rate_per_s.value)}
            for share, answer in response_times(part, constants, sent_bytes)
        ],
    }


def _per_output_token(request: Band | None, tokens: TokenWorkload | None) -> object:
    return tokens.per_output_token(request) if request and tokens else None
