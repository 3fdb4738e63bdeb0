"""The command `edgemeter references datacenter`: edge against datacenter, over bands."""

import math
from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from edgemeter.agent.base import number_text
from edgemeter.agent.base.cli.options import PATH, FiniteRange, format_option
from edgemeter.agent.base.cli.tables import Format, console_for, print_data
from edgemeter.agent.base.console import Console, Table, Text
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.terminal import print_text
from edgemeter.collector.cli.stores import all_days_option, opened_book, stores_option
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.datacenter import constants as assumed
from edgemeter.collector.datacenter.analysis import ServerAnalysis, analyse, million_g
from edgemeter.collector.datacenter.sides import Band, SideRequest, choose_sides

STYLES = {"edge": "green", "datacenter": "blue", "either": "dim"}


@click.command(
    short_help="Compare edge and datacenter energy over ranges of utilisation, PUE and network."
)
@click.option("--device", "edge", metavar="DEVICE", help="Edge device. Default: the only one.")
@click.option("-m", "--model", help="Model. Default: the only one.")
@click.option(
    "--precision", help="Precision of the edge case. Default: the one with the lowest energy."
)
@click.option(
    "--reference",
    "server",
    default="reference",
    metavar="DEVICE|ROLE",
    help="Server, by device or role. Default: reference.",
)
@click.option(
    "--rate",
    "rate_per_s",
    type=FiniteRange(0, min_open=True),
    help="Inferences per second at the edge. Default: its maximum.",
)
@click.option(
    "--bytes",
    "sent_bytes",
    type=FiniteRange(0),
    help="Bytes that a request sends. Default: 100,000, a photograph.",
)
@click.option(
    "--grid",
    default="world",
    help="Electricity grid, for the carbon intensity: world, DE, FR, ... Default: world.",
)
@click.option(
    "--constants",
    type=PATH,
    help="TOML file that overrides constants, each with its source and year.",
)
@stores_option("Ledger, or JSON of `edgemeter run`.", metavar=None)
@all_days_option
@format_option()
def datacenter(
    *,
    edge: str | None,
    model: str | None,
    precision: str | None,
    server: str,
    rate_per_s: float | None,
    sent_bytes: float | None,
    grid: str,
    constants: Path | None,
    stores: tuple[str, ...],
    days: DaysCounted,
    form: Format,
) -> None:
    """Compare the energy of a device and a server.

    The result has the break-even points over ranges of utilisation, PUE and network.

    Example: edgemeter references datacenter --device pi-1 --model yolov8n --rate 2 --grid DE
    """
    assumptions = assumed.read_constants(constants)
    if grid not in assumptions.grid:
        raise ConfigError(
            f"no carbon intensity of {grid!r}: choose from {', '.join(assumptions.grid)}, or add "
            f"[grid.{grid}]"
        )
    sides = choose_sides(
        opened_book(stores).summaries(days),
        SideRequest(edge, model, precision, server),
        assumptions.stated_server,
    )
    if rate_per_s and rate_per_s > sides.edge.rate_per_s.high:
        raise ConfigError(
            f"{sides.edge.name} reaches {sides.edge.rate_per_s.value:.4g} inferences per second, "
            f"not {rate_per_s:g}"
        )
    if rate_per_s and sides.edge.net_mj is None:
        raise ConfigError(
            f"{sides.edge.name}: idle power was not measured, so its energy at --rate "
            f"{rate_per_s:g} is unknown"
        )
    sent, g_per_kwh = (
        assumptions.request.bytes if sent_bytes is None else sent_bytes,
        assumptions.grid[grid].g_per_kwh,
    )
    edge_mj = sides.edge.gross_mj(rate_per_s)
    edge_g = million_g(edge_mj, g_per_kwh)
    against = [
        analyse(sides.edge, edge_mj, side, assumptions, sent, g_per_kwh) for side in sides.servers
    ]
    notes = [
        *sides.notes,
        *(
            f"{side.name}: {caution}"
            for side in (sides.edge, *sides.servers)
            for caution in side.cautions
        ),
    ]
    of_edge = {
        "edge": asdict(sides.edge),
        "edge_gross_mj": asdict(edge_mj),
        "edge_carbon_g": asdict(edge_g),
    }
    of_setting = {
        "request_bytes": sent,
        "grid": grid,
        "notes": notes,
        "constants": msgspec.to_builtins(assumptions),
    }
    if print_data(form, {**of_edge, "against": [asdict(part) for part in against], **of_setting}):
        return
    console = console_for(form)
    speed = f"{number_text.significant(rate_per_s or sides.edge.rate_per_s.value)} per s"
    net = f", net {_text(sides.edge.net_mj)} mJ" if sides.edge.net_mj else ""
    print_text(console, f"Edge: {sides.edge.name}, {sides.edge.scope}", "bold")
    print_text(
        console,
        f"  an inference at {speed} takes gross {_text(edge_mj)} mJ{net}; a million: "
        f"{_text(edge_g)} g CO2e ({grid})",
    )
    for part in against:
        _show(part, console)
    pue = f"PUE {assumptions.pue.low:g} to {assumptions.pue.high:g}"
    for line in (
        *notes,
        f"{pue}; {sent:,.0f} bytes a request; `either` is within the bands; sources: --format json",
    ):
        print_text(console, f"note: {line}")


def _show(part: ServerAnalysis, console: Console) -> None:
    print_text(
        console,
        f"\nLower energy against {part.server.load} {part.server.name}, {part.server.scope}",
        "bold",
    )
    table = Table("utilisation", "server mJ", right="server mJ")
    cells = {(cell.utilisation_ratio, cell.network): cell for cell in (*part.gross, *part.net)}
    networks = {cell.network: cell.network_mj for cell in part.gross}
    for name, sent_mj in networks.items():
        table.add_column(f"{name}\n+{number_text.significant(sent_mj)} mJ")
    for share in dict.fromkeys(share for share, _ in cells):
        row = [cells[share, name] for name in networks]
        energy = row[0].datacenter
        winners = [
            cell.winner
            if cell.winner != "either" or not cell.pue_from
            else f"edge from PUE {cell.pue_from:.2f}"
            for cell in row
        ]
        texts = [Text(words, STYLES[cell.winner]) for words, cell in zip(winners, row, strict=True)]
        table.add_row(
            "net of idle" if share is None else f"{share:.0%}",
            number_text.span(energy.low, energy.high),
            *texts,
        )
    console.print(table)
    print_text(console, "equal where:")
    for even in part.break_even:
        rate = (
            f"{_span(even.rate_per_s)} requests per s"
            if even.rate_per_s
            else "request rate unknown without idle power"
        )
        percent = _span(even.utilisation_ratio.scaled(100))
        print_text(
            console,
            f"  {even.network}: utilisation {percent}%, {rate}, {_span(even.sent_bytes)} "
            "bytes a request",
        )
    span = number_text.span(
        min(cell.carbon_g.low for cell in part.gross),
        max(cell.carbon_g.high for cell in part.gross),
    )
    print_text(console, f"a million there, with the network: {span} g CO2e")


def _span(band: Band) -> str:
    ends = [
        "never" if math.isinf(end) else number_text.significant(end)
        for end in (band.low, band.high)
    ]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _text(band: Band) -> str:
    return f"{number_text.significant(band.value)} ({number_text.span(band.low, band.high)})"
