"""The energy of a run on a page: gross, net, of what and by which sensor, and the terms of its uncertainty as bars."""

from edgemeter.agent.base import figures
from edgemeter.agent.contract.energy_provenance import energy_provenance
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.charts.specs import ranked_bars
from edgemeter.collector.web.context import ViewContext
from edgemeter.collector.web.markup import Markup, element, join
from edgemeter.collector.web.view import note


def energy_budget(context: ViewContext, run: RunRecord) -> Markup:
    """Return gross and net energy with scope and sensor, and the terms as bars."""
    energy = run.energy
    if energy is None:
        return note(f"No energy: {run.energy_reason or 'not measured'}.")
    provenance = energy_provenance(run) or "not stated to be measured"
    label = "" if provenance == "measured" else f" ({provenance})"
    gross = f"{figures.with_uncertainty(energy.gross_mj, energy.gross_u_mj)} mJ gross{label}"
    excludes = f"; leaves out {', '.join(energy.excludes)}" if energy.excludes else ""
    scope = (
        f"{energy.sensor} at {energy.scope}{excludes}; {energy.samples:,} readings over {figures.significant(energy.window_ms / 1000)} s"
    )
    lines = [element("p", {"class": "figure-line"}, element("b", None, gross), f", {_net(energy)}"), note(f"{scope}.")]
    return join([*lines, _bars(context, energy)])


def _net(energy: Energy) -> str:
    if energy.net_mj is None:
        return f"net {energy.net_state.replace('_', ' ')}"
    return f"{figures.with_uncertainty(energy.net_mj, energy.net_u_mj)} mJ net of idle"


def _bars(context: ViewContext, energy: Energy) -> Markup:
    known = sorted(((term.u_mj, term) for term in energy.budget if term.u_mj is not None), key=lambda pair: -pair[0])
    unknown = [term.term for term in energy.budget if term.u_mj is None]
    parts: list[str] = []
    if known:
        rows = [{"term": term.term, "value": u_mj, "detail": figures.significant(term.degrees_of_freedom, 2)} for u_mj, term in known]
        title = f"Budget of {figures.significant(energy.gross_mj)} mJ"
        parts.append(
            context.sheet.draw(Chart(title, ranked_bars("standard uncertainty of the gross energy, mJ", len(rows)), rows_table(rows)))
        )
    if unknown:
        parts.append(note(f"Unknown, so the total is unknown too: {', '.join(unknown)}."))
    if not energy.budget:
        parts.append(note("This record has no uncertainty budget."))
    return join(parts)
