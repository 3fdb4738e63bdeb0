"""The command `edgemeter compare --datacenter`: edge against datacenter, over bands."""

from pathlib import Path

import click
import msgspec

from edgemeter.agent.base.documents import print_json
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.options import PATH, FiniteRange, format_option, quiet_option
from edgemeter.agent.base.tables import Format, console_for, print_data
from edgemeter.collector.cli.stores import all_days_option, influx_token_option, stored_summaries, stores_option
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.datacenter import constants as assumed
from edgemeter.collector.datacenter.analysis import AnalysisSetting, analyse
from edgemeter.collector.datacenter.document import document
from edgemeter.collector.datacenter.side_choice import SideRequest, choose_sides
from edgemeter.collector.datacenter.table import show
from edgemeter.collector.datacenter.workload import text_bytes


@click.command(short_help="Compare edge and datacenter energy over ranges of utilisation, PUE and network.")
@click.option("--device", "edge", metavar="DEVICE", help="Edge device. Default: the only one.")
@click.option("-m", "--model", help="Model. Default: the only one.")
@click.option("--precision", help="Precision of the edge case. Default: the one with the lowest energy.")
@click.option("--prompt-tokens", type=click.IntRange(1), help="Prompt tokens of a language model's requests. Default: the only number.")
@click.option("--output-tokens", type=click.IntRange(1), help="Output tokens of a language model's requests. Default: the only number.")
@click.option(
    "--reference",
    "server",
    default="reference",
    metavar="DEVICE|ROLE",
    help="Server, measured by the same agent. Default: reference.",
)
@click.option(
    "--rate",
    "rate_per_s",
    type=FiniteRange(0, min_open=True),
    help="Inferences per second that the edge serves, of a language model requests. Default: its maximum.",
)
@click.option(
    "--bytes",
    "sent_bytes",
    type=FiniteRange(0),
    help="Bytes that a request sends. Default: 100,000, a photograph; of a language model its text.",
)
@click.option("--network", "networks", multiple=True, help="fixed, mobile, or the name of an estimate; repeatable. Default: all.")
@click.option("--grid", default="world", help="Country whose electricity sets the carbon intensity: world, DE, FR, ... Default: world.")
@click.option("--constants", type=PATH, help="TOML file that overrides constants, each with its source and year.")
@click.option("--show-constants", is_flag=True, help="Print the constants as JSON and exit.")
@stores_option("Where to read runs from, as for `edgemeter compare`.", metavar=None)
@influx_token_option
@all_days_option
@quiet_option
@format_option("Print one JSON document, with every band and constant.")
def datacenter(
    *,
    edge: str | None,
    model: str | None,
    precision: str | None,
    prompt_tokens: int | None,
    output_tokens: int | None,
    server: str,
    rate_per_s: float | None,
    sent_bytes: float | None,
    networks: tuple[str, ...],
    grid: str,
    constants: Path | None,
    show_constants: bool,
    stores: tuple[str, ...],
    influx_token_file: Path | None,
    days: DaysCounted,
    form: Format | None,
) -> None:
    """Compare the energy of a device and a server over bands of utilisation, PUE and network, with the break-even points.

    Example: edgemeter compare --datacenter --device pi-1 --model yolov8n --rate 2 --grid DE
    """
    assumptions = assumed.read_constants(constants)
    if show_constants:
        print_json(msgspec.to_builtins(assumptions))
        return
    if grid not in assumptions.grid:
        raise ConfigError(
            f"the carbon intensity of {grid!r} is unknown: choose from {', '.join(assumptions.grid)}, or add [grid.{grid}] with --constants"
        )
    chosen_networks = _networks(assumptions, networks)
    request = SideRequest(edge, model, precision, server, prompt_tokens, output_tokens)
    # No case is needed where both sides are stated.
    are_stated = assumptions.stated.edge and assumptions.stated.datacenter and not stores
    sides = choose_sides([] if are_stated else stored_summaries(stores, influx_token_file, days), request, assumptions.stated)
    if rate_per_s and rate_per_s > sides.edge.rate_per_s.high:
        unit = "requests" if sides.edge.tokens else "inferences"
        raise ConfigError(f"{sides.edge.name} reaches {sides.edge.rate_per_s.value:.4g} {unit} per second, not {rate_per_s:g}")
    if rate_per_s and (sides.edge.idle_w is None or sides.edge.net_mj is None):
        raise ConfigError(f"{sides.edge.name}: {sides.edge.why_no_idle}, so its energy at --rate {rate_per_s:g} is unknown")
    usual = text_bytes(assumptions.text_token, sides.edge.tokens) if sides.edge.tokens else assumptions.request.bytes
    sent = usual if sent_bytes is None else sent_bytes
    analysis = analyse(sides.edge, sides.servers, assumptions, AnalysisSetting(rate_per_s, sent, chosen_networks))
    if print_data(form, document(analysis, assumptions, sent, grid, sides.notes)):
        return

    show(analysis, assumptions, sent, grid, sides.notes, console_for(form))


def _networks(constants: assumed.Constants, requested: tuple[str, ...]) -> tuple[str, ...]:
    networks = constants.network
    if not requested:
        return tuple(networks)
    matching = tuple(name for name, network in networks.items() if name in requested or network.access in requested)
    unknown = [name for name in requested if name not in networks and name not in ("fixed", "mobile")]
    if unknown:
        raise ConfigError(f"no network is called {unknown[0]!r}: fixed, mobile, {', '.join(networks)}")
    return matching
