"""What the analysis says in sentences: who wins where, what the figures leave out, and where the sides are equal."""

import math
from collections import Counter

from edgemeter.collector.datacenter.analysis import Analysis, BreakEven, Cell, Part
from edgemeter.collector.datacenter.band import Band
from edgemeter.collector.datacenter.sides import Edge, Server
from edgemeter.collector.show import figures


def headline(part: Part) -> str:
    """Return who wins in how many parts, gross; no single verdict where it depends."""
    counts: Counter[str] = Counter(cell.winner for cell in part.gross)
    total = len(part.gross)
    said = [f"{who} in {counts[key]}" for key, who in (("edge", "the edge wins"), ("datacenter", "the datacenter")) if counts[key]]
    said += [f"{counts['either']} depend on PUE or on what was measured"] if counts["either"] else []
    sole = [key for key in ("edge", "datacenter") if counts[key] == total]
    if sole:
        who = "edge" if sole[0] == "edge" else "datacenter"
        return f"Against {part.server.load} {part.server.name}: the {who} wins in all {total} parts (utilisation x network)."
    return f"Against {part.server.load} {part.server.name}: of {total} parts (utilisation x network) {', '.join(said)}."


def cell_text(cell: Cell) -> str:
    """Return the winner of a part; `?` where the winner's figure leaves something out."""
    if cell.winner != "either":
        return cell.winner if cell.is_proven else f"{cell.winner}?"
    return f"edge from PUE {cell.pue_from:.2f}" if cell.pue_from and cell.pue_from < 10 else "either"


def proofs(part: Part, edge: Edge) -> list[str]:
    """Return what `?` means here: what the figures leave out, and how much that may be before a winner changes."""
    found = []
    for side, name, winner in ((edge, "edge", "edge"), (part.server, "datacenter", "datacenter")):
        won = [cell for cell in (*part.gross, *part.net) if cell.winner == winner and not cell.is_proven]
        if won and not side.is_whole:
            least = min(cell.margin_mj for cell in won)
            out = ", ".join(side.excludes) or "all that is outside"
            found.append(
                f"{winner}?: the {name}'s figure is of {side.scope} and leaves out {out}; it wins there as long as that takes less than "
                f"the margin, {figures.significant(least)} mJ an inference where it is smallest"
            )
    return found


def break_even_lines(part: Part, edge: Edge) -> list[str]:
    """Return the break-evens for each estimate of the network."""
    return [
        f"{one.network}: {_utilisation(one.utilisation_ratio)}; {_rate(one, edge)}; {_bytes(one.sent_bytes)}" for one in part.break_evens
    ]


def cautions(analysis: Analysis) -> list[str]:
    """Return what to know before trusting it."""
    edge = analysis.edge
    found = [f"the edge's {edge.why_no_idle}: no net energy, no request rate; gross is at full speed"] if edge.why_no_idle else []
    sides: list[Edge | Server] = [edge, *(part.server for part in analysis.parts)]
    found += [
        f"{side.name}: {side.provenance}, not measured: so is what follows from it" for side in sides if side.provenance != "measured"
    ]
    return [*found, *(f"{side.name}: {caution}" for side in sides for caution in side.cautions)]


def band_text(found: Band, unit: str) -> str:
    """Return `12.3 mJ (11 to 14)`."""
    return f"{figures.significant(found.value)} {unit} ({figures.span(found.low, found.high)})"


def _utilisation(found: Band) -> str:
    if found.low > 1:
        return "the edge wins at any utilisation"
    if math.isinf(found.high) or found.high > 1:
        return f"the datacenter wins from a utilisation of {found.low:.1%} or, at the other end of the bands, at none"
    return f"the datacenter wins from a utilisation of {found.value:.1%} ({found.low:.1%} to {found.high:.1%})"


def _rate(one: BreakEven, edge: Edge) -> str:
    found = one.rate_per_s
    if found is None:
        return "request rate not known without idle power"
    most = edge.rate_per_s.value
    if found.low > most:
        return f"the datacenter wins at every rate that the edge can do ({figures.significant(most)} per s)"
    if found.high > most:
        return f"the edge wins from {figures.significant(found.low)} per s or, at the other end of the bands, at no rate it can do"
    return f"the edge wins from {figures.span(found.low, found.high)} per s"


def _bytes(found: Band) -> str:
    if found.high <= 0:
        return "the edge wins with any request"
    if found.low <= 0:
        return f"the edge wins from {figures.significant(found.high)} bytes a request, or with any"
    return f"the edge wins from {figures.span(found.low, found.high)} bytes a request"
