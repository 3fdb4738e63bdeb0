"""The energy of one run with the terms of its uncertainty, largest first: what to improve when the interval is too wide."""

from edgemeter.agent.records import Energy, RunRecord
from edgemeter.collector.show import drawing, figures
from edgemeter.collector.show.axis import linear
from edgemeter.collector.show.drawing import Frame
from edgemeter.collector.show.markup import Attributes, Markup, element, join

LINE, TOP, LEFT, RIGHT = 26.0, 8.0, 10.0, drawing.WIDTH - 12.0


def budget(run: RunRecord) -> Markup:
    """Return gross and net energy with scope and sensor, and the terms as bars."""
    energy = run.energy
    if energy is None:
        return element("p", {"class": "note"}, f"No energy: {run.energy_reason or 'not measured'}.")
    provenance = run.provenance.get("energy", run.provenance.get("latency", ""))
    label = "" if provenance == "measured" else f" ({provenance})"
    gross = f"{figures.with_uncertainty(energy.gross_mj, energy.gross_u_mj)} mJ gross{label}"
    excludes = f"; leaves out {', '.join(energy.excludes)}" if energy.excludes else ""
    scope = (
        f"{energy.sensor} at {energy.scope}{excludes}; {energy.samples:,} readings over {figures.significant(energy.window_ms / 1000)} s"
    )
    lines = [
        element("p", {"class": "figure-line"}, element("b", None, gross), f", {_net(energy)}"),
        element("p", {"class": "note"}, scope + "."),
    ]
    return join([*lines, _bars(energy)])


def _net(energy: Energy) -> str:
    if energy.net_mj is None:
        return f"net {energy.net_state.replace('_', ' ')}"
    return f"{figures.with_uncertainty(energy.net_mj, energy.net_u_mj)} mJ net of idle"


def _bars(energy: Energy) -> Markup:
    known = sorted(((term.u_mj, term) for term in energy.budget if term.u_mj is not None), key=lambda pair: -pair[0])
    unknown = [term.term for term in energy.budget if term.u_mj is None]
    parts: list[Markup] = []
    if known:
        bottom = TOP + LINE * len(known)
        frame = Frame(LEFT, TOP, RIGHT, bottom)
        axis = linear(0.0, known[0][0] * 1.05 or 1.0, LEFT, RIGHT)
        drawn = drawing.across(frame, axis, "Standard uncertainty of the gross energy, mJ")
        for index, (u_mj, term) in enumerate(known):
            y = TOP + index * LINE
            freedom = "" if term.degrees_of_freedom is None else f", {figures.significant(term.degrees_of_freedom, 2)} degrees of freedom"
            box: Attributes = {"x": LEFT, "y": y + 14, "width": max(axis.place(u_mj) - LEFT, 0.6), "height": 8.0, "class": "part step2"}
            drawn += [
                drawing.label(LEFT, y + 10, f"{term.term}{freedom}", "name"),
                drawing.label(RIGHT, y + 10, figures.significant(u_mj, 2), "figure", "end"),
            ]
            drawn.append(element("rect", box))
        parts.append(drawing.sheet(bottom + 44, f"Budget of {figures.significant(energy.gross_mj)} mJ", *drawn))
    if unknown:
        parts.append(element("p", {"class": "note"}, f"Not known, so the whole is not: {', '.join(unknown)}."))
    if not energy.budget:
        parts.append(element("p", {"class": "note"}, "This record came without the terms of its budget."))
    return join(parts)
