"""Edge against datacenter on a terminal: for each server a table of who wins in which part, the break-evens, cost and carbon."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgemeter.agent.base import figures
from edgemeter.agent.base.terminal import plain_table, print_text
from edgemeter.collector.datacenter import document
from edgemeter.collector.datacenter.analysis import Analysis, AnalysisCell, ServerAnalysis
from edgemeter.collector.datacenter.constants import Constants
from edgemeter.collector.datacenter.formulas import million, spanning
from edgemeter.collector.datacenter.workload import TokenWorkload

STYLES = {"edge": "green", "datacenter": "blue", "either": "dim"}


def show(analysis: Analysis, constants: Constants, sent_bytes: float, grid: str, notes: tuple[str, ...], console: Console) -> None:
    """Print the analysis."""
    edge = analysis.edge
    rate = analysis.rate_per_s
    at = f"at {figures.significant(rate)} per s" if rate else f"at full speed, {figures.significant(edge.rate_per_s.value)} per s"
    print_text(console, f"Edge: {edge.name}, {edge.scope}", "bold")
    net = f", net {document.band_text(edge.net_mj, 'mJ')}" if edge.net_mj else ""
    if edge.tokens:
        print_text(console, f"  a request is {edge.tokens.words}")
    print_text(
        console, f"  {'a request' if edge.tokens else 'an inference'} takes gross {document.band_text(analysis.edge_mj, 'mJ')} {at}{net}"
    )
    if edge.tokens:
        by_token = edge.tokens.per_output_token
        net = f", net {document.band_text(by_token(edge.net_mj), 'mJ')}" if edge.net_mj else ""
        print_text(
            console, f"  by its output tokens, prefill included: gross {document.band_text(by_token(analysis.edge_mj), 'mJ')} each{net}"
        )
    if edge.latency_ms is not None:
        print_text(console, f"  a response takes {figures.significant(edge.latency_ms)} ms (p50), without a network")
        if waiting := document.filling(edge, rate or edge.rate_per_s.value):
            print_text(console, f"  before that it waits {waiting}")
    cost = million("edge", analysis.edge_mj, rate or edge.rate_per_s.value, constants, grid)
    spent = document.band_text(cost.electricity, f"{cost.currency} of electricity")
    spent += f", {figures.significant(cost.hardware)} {cost.currency} of hardware" if cost.hardware is not None else ""
    print_text(console, f"  a million: {spent}, {document.band_text(cost.carbon_g, 'g CO2e')} ({grid})")
    for part in analysis.parts:
        console.print()
        _show_part(analysis, part, constants, sent_bytes, grid, console)
    console.print()
    for note in (*notes, *document.cautions(analysis)):
        print_text(console, f"note: {note}")
    print_text(console, f"PUE {constants.pue.low:g} to {constants.pue.high:g}; {sent_bytes:,.0f} bytes a request; sources: --json", "dim")


def _show_part(analysis: Analysis, part: ServerAnalysis, constants: Constants, sent_bytes: float, grid: str, console: Console) -> None:
    print_text(console, document.headline(part), "bold")
    networks = list(dict.fromkeys(cell.network for cell in part.gross))
    table = plain_table()
    table.add_column("utilisation")
    tokens = part.server.tokens
    table.add_column("server mJ\na request" if tokens else "server mJ", justify="right")
    if tokens:
        table.add_column("mJ per\noutput token", justify="right")
    for name in networks:
        sent = next(cell.network_mj for cell in part.gross if cell.network == name)
        table.add_column(Text(f"{name}\n+{figures.significant(sent)} mJ"), overflow="fold")
    for share in dict.fromkeys(cell.utilisation_ratio for cell in part.gross):
        _row(table, f"{share:.0%}", [cell for cell in part.gross if cell.utilisation_ratio == share], tokens)
    if part.net:
        _row(table, "net of idle", list(part.net), tokens)
    console.print(table, crop=False)
    for line in document.proofs(part, analysis.edge):
        print_text(console, line)
    print_text(console, "equal where:")
    for line in document.break_even_lines(part, analysis.edge):
        print_text(console, f"  {line}")
    costs = [cost for _, cost in document.millions(part, constants, grid)]
    money, carbon = spanning([cost.electricity for cost in costs]), spanning([cost.carbon_g for cost in costs])
    currency = constants.tariff.datacenter.currency
    spent = f"{currency} {figures.span(money.low, money.high)} of electricity"
    hardware = [cost.hardware for cost in costs if cost.hardware is not None]
    spent += f", {figures.span(min(hardware), max(hardware))} of hardware" if hardware else ""
    print_text(console, f"a million there, with the network: {spent}, {figures.span(carbon.low, carbon.high)} g CO2e ({grid})")
    for share, answer in document.response_times(part, constants, sent_bytes):
        waiting = document.filling(part.server, share * part.server.rate_per_s.value)
        print_text(
            console, f"response at {share:.0%}: {document.band_text(answer, 'ms')} on average{f', with {waiting}' if waiting else ''}"
        )


def _row(table: Table, name: str, cells: list[AnalysisCell], tokens: TokenWorkload | None) -> None:
    server = cells[0].datacenter
    energies = [server, *([tokens.per_output_token(server)] if tokens else [])]
    spans = (figures.span(energy.low, energy.high) for energy in energies)
    table.add_row(name, *spans, *(Text(document.cell_text(cell), STYLES[cell.winner]) for cell in cells))
