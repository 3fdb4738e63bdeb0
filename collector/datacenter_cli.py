"""The command `edgemeter datacenter`: edge against datacenter, over bands."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.finite_range import FiniteRange
from edgemeter.collector.store_path import StorePath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgemeter.collector.compare.summary import Summary
    from edgemeter.collector.datacenter.constants import Constants


@click.command(short_help="Edge against datacenter: which side wins where, over bands.")
@click.option("--edge", metavar="DEVICE", help="The device. Default: the only one.")
@click.option("--model", help="The model. Default: the only one.")
@click.option("--precision", help="Of the edge. Default: that of the lowest energy.")
@click.option("--server", default="reference", metavar="DEVICE|ROLE", help="The server: measured by the same agent. Default: reference.")
@click.option(
    "--rate",
    "rate_per_s",
    type=FiniteRange(0, min_open=True),
    help="Inferences a second that the edge is needed for. Default: all it can.",
)
@click.option("--bytes", "sent_bytes", type=FiniteRange(0), help="What a request sends. Default: 100,000, one photograph.")
@click.option("--network", "networks", multiple=True, help="fixed, mobile, or an estimate's name; several. Default: all.")
@click.option("--grid", default="world", help="Carbon of which country's electricity: world, DE, FR, ... Default: world.")
@click.option("--constants", type=click.Path(path_type=Path), help="TOML that overrides the constants, each with its source and year.")
@click.option("--show-constants", is_flag=True, help="Print the constants as JSON and end.")
@click.option("--store", "stores", multiple=True, type=StorePath(), envvar="EDGEMETER_STORE", help="As of `edgemeter compare`.")
@click.option("--influx-token-file", type=click.Path(path_type=Path), help="Of an InfluxDB. Or set EDGEMETER_INFLUX_TOKEN.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, with every band and constant.")
def datacenter(
    *,
    edge: str | None,
    model: str | None,
    precision: str | None,
    server: str,
    rate_per_s: float | None,
    sent_bytes: float | None,
    networks: tuple[str, ...],
    grid: str,
    constants: Path | None,
    show_constants: bool,
    stores: tuple[str, ...],
    influx_token_file: Path | None,
    as_json: bool,
) -> None:
    """Compare a device with a server in energy, over bands of utilisation, PUE and network: who wins where, and where both are equal.

    Example: edgemeter datacenter --edge pi-1 --model yolov8n --rate 2 --grid DE
    """
    import msgspec

    from edgemeter.collector.datacenter import constants as assumed
    from edgemeter.collector.datacenter.analysis import Setting, analyse
    from edgemeter.collector.datacenter.choosing import Wanted, choose
    from edgemeter.collector.datacenter.document import document

    found = assumed.read(constants)
    if show_constants:
        click.echo(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    if grid not in found.grid:
        message = f"no carbon of {grid!r} is known: one of {', '.join(found.grid)}, or add [grid.{grid}] with --constants"
        raise ConfigError(message)
    chosen = _networks(found, networks)
    sides = choose(_summaries(found, stores, influx_token_file), Wanted(edge, model, precision, server), found.stated)
    if rate_per_s and rate_per_s > sides.edge.rate_per_s.high:
        message = f"{sides.edge.name} can do {sides.edge.rate_per_s.value:.4g} inferences a second, not {rate_per_s:g}"
        raise ConfigError(message)
    if rate_per_s and (sides.edge.idle_w is None or sides.edge.net_mj is None):
        message = f"{sides.edge.name}: {sides.edge.why_no_idle}, so that its energy at --rate {rate_per_s:g} is not known"
        raise ConfigError(message)
    sent = found.request.bytes if sent_bytes is None else sent_bytes
    analysis = analyse(sides.edge, sides.servers, found, Setting(rate_per_s, sent, chosen))
    if as_json:
        click.echo(json.dumps(document(analysis, found, sent, grid, sides.notes), indent=2))
        return
    from rich.console import Console

    from edgemeter.collector.show.datacenter_table import show

    console = Console()
    show(analysis, found, sent, grid, sides.notes, console if console.is_terminal else Console(width=400))


def _networks(constants: "Constants", asked: tuple[str, ...]) -> tuple[str, ...]:
    known = constants.network
    if not asked:
        return tuple(known)
    wanted = tuple(name for name, network in known.items() if name in asked or network.access in asked)
    unknown = [one for one in asked if one not in known and one not in ("fixed", "mobile")]
    if unknown:
        message = f"no network is called {unknown[0]!r}: fixed, mobile, {', '.join(known)}"
        raise ConfigError(message)
    return wanted


def _summaries(constants: "Constants", stores: tuple[str, ...], token_file: Path | None) -> "Sequence[Summary]":
    """Return the cases of the stores; none are needed where both sides are stated."""
    from edgemeter.collector import stored_cases

    return [] if constants.stated.edge and constants.stated.datacenter and not stores else stored_cases.summaries(stores, token_file)
